// Command bench measures unmodified perftest programs on a SoftRNIC, on one host and between two
// network namespaces over veth, and how many connections (rdmacm, rnet, cmtime) and HTTP requests
// go by in a second, beside TCP on the same paths, all in one run: on a machine that is shared or
// slow only the ratios mean anything.
//
//	make bench
//	go run ./test/bench -runs 5 -only connections
//
// It judges nothing; its exit status is 1 only when something could not be measured.
package main
