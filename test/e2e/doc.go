// Package e2e runs unmodified programs on a SoftRNIC and looks at what a user would see: their
// own reports, their exit status, a silent standard error, and nothing left behind.
//
// The tests use bin/rnic as "make build" leaves it (or the binary that RNIC_BIN names), copied to
// a directory that any user can read: a user copies one file too. Where the machine allows it,
// each test has network namespaces of its own, so UDP port 4791 and the NIC are its own as well,
// and runs once as root and once as an ordinary user, who exists as a number only. What a machine
// cannot do is skipped with the reason.
//
//	make e2e
//	go test ./test/e2e -run 'TestPerftest/.*/ib_write_bw' -v
package e2e
