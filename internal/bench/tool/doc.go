// Package tool runs the programs that measure, each with a server and a client on the two hosts of
// a path, and reads what they report:
//
//	path := &tool.Path{Server: host, Client: host, Address: "127.0.0.1"}
//	sample, err := path.Perftest(ctx, tool.Perftest{Name: "ib_write_bw", Size: 65536, Count: 20000})
//
// A host is this machine, or a network namespace of it, with a NIC process of its own that is
// started as "rnic run" would do.
// A program that is not installed is bench.ErrMissing, with the package that brings it.
package tool
