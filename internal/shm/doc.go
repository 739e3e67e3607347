// Package shm is memory that two processes see: sealed memfds, which hold queues, doorbells and
// regions; event descriptors and pipes beside them; and the memory of another process, read and
// written by address.
//
// Who makes memory:
//
//	m, err := shm.Create("rnic-qp", bytes)   // sealed against shrinking and growing, mapped
//	send m.FD() to the other side; m.CloseFD()
//	… m.Bytes() …
//	m.Release()
//
// Who receives a descriptor from somebody trusted (an application from its NIC) maps it with Open;
// who does not trust the sender (the NIC) uses OpenForeign, which accepts only what can never
// raise SIGBUS by being truncated.
package shm
