// Pingpong measures round trips of SENDs between two queue pairs, the "hello, world" of RDMA.
//
//	go run ./examples/pingpong                      # a NIC inside the program, both ends
//	rnic up & go run ./examples/pingpong            # with RNIC_SOCKET set: on that NIC
//	go run ./examples/pingpong -listen :7000        # one end …
//	go run ./examples/pingpong -connect HOST:7000   # … and the other, on that NIC
//
// Two ends in two programs tell each other their verbs.Endpoint over TCP, as text.
package main
