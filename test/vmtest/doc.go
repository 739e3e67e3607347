// Package vmtest boots Debian's kernel with one of its software RDMA devices, rdma_rxe or siw, in a
// virtual machine for tests and benchmarks: under QEMU, without KVM and without touching the
// host's kernel. Its first process is the program in guest, which runs what it is asked to over
// TCP, at the other end of the machine's cable.
package vmtest
