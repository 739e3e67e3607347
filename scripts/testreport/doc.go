// Command testreport runs "go test" and prints what a person wants to know: one line for each
// package as it ends and for each slow test, the whole output of what failed, which tests were
// skipped and why, and a last line of counts. Its arguments are those of "go test", several runs
// separated by "--"; its exit status says whether all passed.
//
//	go run ./scripts/testreport ./internal/... -- -p 1 ./test/...
//
// A skipped test is easy to miss in the output of "go test", which prints nothing about it
// unless asked to print everything.
package main
