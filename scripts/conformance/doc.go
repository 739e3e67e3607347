// Command conformance writes docs/conformance.md: which verbs work here and on other devices, and
// the tests that show it.
//
// The rows are in data: what functions there are, and what rdma-core's providers say of rxe, siw
// and mlx5. What SoftRNIC does is taken from the sources: the functions that the C libraries
// export, the tables that they fill, and answers of a NIC that the program makes. Tests are looked
// for: those of C programs that call a function are found by themselves, others are named in data,
// and a name that no test has fails the run. What works without a test is counted in the document.
//
//	go generate ./scripts/conformance
package main

//go:generate go run . -root ../..
