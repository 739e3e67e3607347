// Package clibtest tests the drop-in C library of clib from outside: what it exports, that
// unmodified programs load it, and how it behaves towards a NIC that is absent, answers garbage or
// dies. For that it has a NIC of its own that can be told to misbehave; that the library works
// with the real one is shown by the end-to-end tests.
package clibtest
