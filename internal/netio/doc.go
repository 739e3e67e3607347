// Package netio is the seam between a lane and a wire: batches of datagrams out, batches in, and
// nothing that blocks. Packages below it are ports (udp, loop) and decorators of the same
// interface (faulty, pcap).
//
// A lane drives its port on one thread:
//
//	port.Poll(now)                         // release what a decorator held back
//	n, err := port.Receive(in[:])          // until it returns 0
//	sent, err := port.Send(out[:k])        // sent < k: the socket is full, keep the rest
//	for _, u := range port.Unreachable() { … }
//	wait until port.NextDeadline() or until one of port.FDs() is readable or has an error
//
// The ICRC is the port's business, because it covers the IPv4 identification and the UDP source
// port, and only the port knows what the kernel will write there: Send fills it in, Receive checks
// it, drops what fails and counts it.
package netio
