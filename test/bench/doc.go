// Command bench measures SoftRNIC and its peers in turn in one run: unmodified perftest, and what
// else package suite lists, on one host, between two network namespaces over veth, and in the
// virtual machine of test/interop beside the kernel's drivers.
//
//	make bench
//	make bench ARGS='-only veth -rounds 3'
//	go run ./test/bench -only 'One host: latency' -length 0.1
//
// A whole run writes its report, its plots and its data into docs/bench, and compares itself with
// the run that it finds there: a line that begins with REGRESSION is one. It judges nothing else;
// its exit status is 1 only when something could not be measured that should have been.
package main
