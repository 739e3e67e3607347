// Package abi is the contract between an application's library and the NIC process: the layout
// of the shared queues and of the control messages. It is the single source: the C header
// clib/include/rnic_abi.h is generated from it (internal/abi/cheader).
//
// Every structure is naturally aligned, has no implicit padding and is in host byte order, since
// both ends run on one machine. Fields that verbs define as big-endian (immediate data) travel as
// the raw bytes that verbs hands over.
//
// The NIC trusts nothing in here: it copies an entry once and checks the copy.
package abi

// Version is the version of this contract; Hello refuses any other.
const Version = 1

// Magic begins every Hello, so that a stranger on the socket is recognised ("RNIC").
const Magic uint32 = 0x43494e52
