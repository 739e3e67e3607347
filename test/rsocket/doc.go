// Package rsocket tests sockets over RDMA: C programs of its own that say what each call promises,
// the programs of rdmacm-utils, and TCP programs that know nothing of RDMA.
//
// Each test has a NIC, or two joined by a link where the tests run as root.
//
//	make build && go test ./test/rsocket
package rsocket
