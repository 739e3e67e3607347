// Package nic is the adapter: object tables, verbs semantics, the QP state machine's rules, GIDs,
// events and counters, over the transport engine. It is one deterministic state machine: a shell
// (the daemon or the simulator) passes in packets, doorbells, commands and time, from one thread,
//
//	n.HandleDoorbells(now)       applications rang
//	n.HandlePacket(now, &p)      a packet arrived
//	n.HandleTimeout(now)         n.PollTimeout() has come
//	context.CreateQP(…) …        a command
//
// and then drains, in this order,
//
//	for n.PollTransmit(now, &p) { loop back when n.IsLocal(p.DGID), else send }
//	for n.PollEvent(&e) { tell the application }
//	for n.PollConnectionEvent(&c) { tell the application }
//	for n.PollLookup(&l) { find the route, then n.HandleRoute }
//	deadline := n.PollTimeout()
//
// until n.HasWork is false. Each call does bounded work. A packet to a multicast GID goes to the
// network and, when n.HasGroup, back to this NIC as well.
package nic
