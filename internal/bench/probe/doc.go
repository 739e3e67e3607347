// Package probe has the measuring programs that are SoftRNIC's own: limits of the machine that
// nothing can beat (a copy of memory, a ping-pong over shared memory, datagrams with segmentation
// offload and a checksum), TCP of the Go library, and what needs package verbs to be seen: the cost
// of many queue pairs, an idle NIC, one-sided operations by themselves, the simulator.
//
// Each is a process, started by a command that ends in Main's arguments: a name and what it takes.
// It prints a bench.Sample as JSON. Of a pair the first argument of both is the server's address;
// the server listens at its TCP port when it is ready, and the client prints the sample. A client
// that tells bench.CPUCost tells how many gigabytes there were; whoever started both divides what
// they used by it.
package probe
