// Command rnic runs and inspects SoftRNIC, an RDMA network adapter made of software.
//
//	rnic run -- ib_write_bw          # run a program on the NIC, starting one if need be
//	rnic up                          # a NIC in the foreground
//	rnic devinfo; rnic ps            # what the NIC has, and who uses it
//	rnic stat; rnic capture -w FILE  # counters; packets, for Wireshark
//	rnic ping HOST                   # round trips, as by ping and rping
//	rnic explain STATUS              # what it means, and what usually causes it
//	rnic down
//
// This package is flags and wiring: what a NIC does is in internal/daemon and below. Every failure
// is one line on standard error. The exit status is 2 for a wrong command line, 1 for anything
// else; "rnic run" ends with the program's own, or 127 (no such program) or 126 (it cannot be
// executed), like a shell.
package main
