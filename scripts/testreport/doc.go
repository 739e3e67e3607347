// Command testreport runs "go test" and prints what a person wants to know: one line for each
// package as it ends and for each slow test, the whole output of what failed, which tests were
// skipped and why, and a last line of counts. Its arguments are those of "go test", several runs
// separated by "--"; its exit status says whether all passed.
//
//	go run ./scripts/testreport ./internal/... -- -p 1 ./test/...
//
// With -again as the first argument, tests that failed are run once more, each alone, and are
// listed at the end if they pass then; not when more than three of a run failed, and not what
// crashed or met a data race.
//
// A skipped test is easy to miss in the output of "go test", which prints nothing about it
// unless asked to print everything.
package main
