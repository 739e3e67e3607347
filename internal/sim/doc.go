// Package sim runs the product itself in a world that is made of a seed: several hosts with a real
// nic.NIC each, applications with real queues in slices, links that lose, double, damage, delay and
// reorder serialised packets, and a clock that jumps to the next thing that happens. It has no
// goroutine, reads no clock, and the same seed repeats the same run to the last byte.
//
//	         application ── rings, doorbells ──┐          (app, endpoint, workload)
//	              │ told what happens          ▼
//	check.*  ◀────┘                        nic.NIC        (host)
//	                                           │ bytes with ICRC
//	                              faulty.Decider, partition   (link)
//
// In the world of iWARP TCP takes the place of the links: sockets that join the NICs' streams, with
// faults of their own (sock, network).
//
// A run has three parts: trouble (everything random), calm (the network is perfect, nobody posts
// anything new, and all that was posted has to come to an end), and the end (everything is closed
// and nothing may be left). Package check judges all of it from outside.
//
//	report, err := sim.Run(sim.Config{Seed: 4711})
package sim
