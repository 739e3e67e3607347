// Command guest is the first process of a virtual machine: it mounts what programs expect, loads
// the kernel modules listed in /modules, brings up the network card and an rdma_rxe device on it,
// and then serves requests to run programs, one on each TCP connection to port 2.
//
// The kernel's command line gives its addresses: guest.addr=10.77.0.2/24,fd77::2/64
// guest.mtu=1500. Started by a request instead, as "/init await-port 18515", the same program waits
// until something listens on that TCP port.
package main
