// Command guest is the first process of a virtual machine: it mounts what programs expect, loads
// the kernel modules listed in /modules, brings up the network card and an rdma_rxe device on it,
// and then serves requests to run programs, one on each TCP connection to port 2.
//
// The kernel's command line gives its addresses: guest.addr=10.77.0.2/24,fd77::2/64
// guest.mtu=1500. What is called "guest" is no program but what this one does itself, and so
// without the time that an emulated processor takes to start one: "guest await tcp 18515" waits
// until something listens on that port, "guest disturb 1" makes the cable a bad one.
package main
