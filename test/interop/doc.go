// Package interop lets a SoftRNIC and the kernel's own drivers, rdma_rxe for RoCE v2 and siw for
// iWARP, talk to each other: unmodified programs on both sides, the kernel in a virtual machine,
// the NIC in a network namespace at the other end of its cable.
//
//	namespace                        virtual machine
//	programs, rnic ─── tap0 ═══ eth0 ─── rdma_rxe or siw, programs
//	                    │
//	                    └ wiretap: every checksum of ours; tshark
//
// The tests fetch Debian's kernel package, compile siw for it, which it lacks, and boot it under
// QEMU, without KVM and without touching the host's kernel. That takes a network the first time,
// and minutes of a core, so they run only when asked for:
//
//	make interop
//	RNIC_INTEROP=1 go test ./test/interop -run TestKernel/1500/Sizes/ib_write_bw -v
//	RNIC_INTEROP=all go test ./test/interop -timeout 2h
//	RNIC_INTEROP=1 RNIC_DIFFERENTIAL=1000-1099 go test ./test/interop -run TestDifferential
//
// The guest has no distribution in it: its first process is the program in guest, which loads
// the modules, brings the device up and then runs what it is asked to over TCP.
package interop
