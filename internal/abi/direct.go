package abi

// The direct path (ADR 0026): between queue pairs of one NIC, of programs of one user, the
// initiator's library carries one-sided operations out itself, where the NIC lets it.
const (
	// OffSQDone is the index below which all entries of the send queue are complete, and their
	// completions shown; written by the NIC while OffQPGrant is not 0. OffSQConsumer may be ahead
	// of what is shown.
	OffSQDone = 0x084
	// OffQPGrant is what the library may do at the peer: Grant bits, and from bit GrantLinkShift on
	// the number of the connection; 0 while nothing. Written by the NIC, which clears it first and
	// looks at OffDirectBusy then.
	OffQPGrant = 0x204
	// OffDirectBusy is odd while the library is at it. It counts up before it looks at the grant and
	// at tickets, sequentially consistent, and again when it has written and read all.
	OffDirectBusy = 0x280
	// What the library has done itself so far: operations, bytes written at the peer, and bytes that
	// came from there. uint64 each, written by the library.
	OffDirectOps      = 0x288
	OffDirectSent     = 0x290
	OffDirectReceived = 0x298

	// OffCQListHead and OffCQListTail, in the header of a CQ's memfd, bound the completions in the
	// library's own list: they take room of the queue. Written by the library.
	OffCQListHead = 0x084
	OffCQListTail = 0x180
	// OffCQListCount is how many completions have been in the list so far, uint64.
	OffCQListCount = 0x188
)

// Rights in the grant word.
const (
	GrantWrite  uint32 = 1
	GrantRead   uint32 = 2
	GrantAtomic uint32 = 4
	// GrantAtomicWrite is for ATOMIC WRITE, which a transport without it does not know.
	GrantAtomicWrite uint32 = 8
	// GrantLinkShift is where the number of the connection begins.
	GrantLinkShift = 8
)

// Ticket memory: one per NIC, read-only for applications, TicketSlots uint64. A slot holds the
// ticket of a mapped region while its key is good, and 0 or another ticket from the moment on when
// it is not. No ticket is ever given twice.
const (
	TicketSlots = 4096
	TicketBytes = 8 * TicketSlots
)

// HelloKeepsOut says in HelloReq.Flags that the program wants no part in the direct path.
const HelloKeepsOut = 1

// OpMapRemote is a MapRemoteReq. The reply MapRemoteRsp comes with the ticket memory and the memfd
// that the peer's memory lies in, in this order.
const OpMapRemote Op = 88

// MapRemoteReq asks for memory behind a remote key of a queue pair's peer.
type MapRemoteReq struct {
	QP     uint32 // handle
	RKey   uint32
	Addr   uint64 // with Length: what is to be in it
	Length uint64
}

// MapRemoteRsp describes the part of the region, around what was asked for, that lies in the memfd
// in one piece. It holds for this queue pair, as long as the slot holds the ticket and the grant
// word the link.
type MapRemoteRsp struct {
	Ticket   uint64
	Addr     uint64 // as work requests have it
	Length   uint64
	FDOffset uint64
	Slot     uint32
	Access   uint32 // of the region
	Link     uint32
	Reserved uint32
}
