// Package pyverbs lets rdma-core's own tests judge the drop-in libraries. Debian's package
// rdma-core brings them (/usr/share/doc/rdma-core/tests), python3-pyverbs what they are written
// with.
//
// Each module of the suite that needs no vendor's hardware runs on a NIC of its own, where the
// machine allows it in network namespaces of its own, and each test in it becomes a subtest:
//
//	go test ./test/pyverbs -run 'TestSuite/test_cq/' -v
//
// A test may skip itself only where testdata/skips.txt lists it with the reason that it gives. A
// row of that list whose test has run is stale and fails too, unless what it lacks is a matter of
// the machine.
package pyverbs
