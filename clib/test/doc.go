// Package clibtest tests the drop-in C libraries of clib from outside: what they export, that
// unmodified programs load them, and how they behave towards a NIC that is absent, answers garbage
// or dies. For that it has a NIC of its own that can be told to misbehave; that the libraries work
// with the real one is shown by the end-to-end tests.
package clibtest
