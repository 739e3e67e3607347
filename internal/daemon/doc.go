// Package daemon is the shell around the NIC: the one place with goroutines, sockets, shared
// memory and a clock. It serves applications over the control protocol of package ctl, moves
// packets between the NIC and a port of package netio, and keeps the GID table in step with the
// addresses of the host.
//
//	d, err := daemon.Start(ctx, daemon.Config{Logger: logger})
//	…
//	err = d.Wait()
//
// Threads. One goroutine, locked to its OS thread, is the lane: it owns the nic.NIC with all that
// is in it, the ports, and everything marked "lane" below. Each control connection has a goroutine
// that reads requests, does what may take long (mapping, probing, making descriptors), lets the
// lane execute the rest, and writes the reply; so no application can make the lane wait. One
// goroutine accepts connections, one watches addresses, one writes the log.
//
// The lane raises its priority where it may (root, RLIMIT_NICE), looks for work a few microseconds
// after the last it found while it offers its processor to others, and then sleeps in epoll: an
// idle NIC costs nothing.
//
// A connection, its context and its process live and die together: when the connection is closed
// or the process that opened it ends (a forked child may still hold the socket), everything that
// was made through it vanishes.
package daemon
