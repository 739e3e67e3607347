// Command cheader writes clib/include/rnic_abi.h, the C view of package abi, so that the layout
// that both ends share has one source. It takes the structures from the Go types by reflection
// and asserts in C every size and offset that Go sees.
package main

//go:generate go run . -o ../../../clib/include/rnic_abi.h
