// Readwrite shows what makes RDMA different: one side writes to, adds to and reads from the
// other's memory, whose owner takes no part.
//
//	go run ./examples/readwrite            # a NIC inside the program
//	rnic run -- go run ./examples/readwrite   # on the NIC that RNIC_SOCKET names
package main
