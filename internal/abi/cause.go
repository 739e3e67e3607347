package abi

import "encoding/binary"

// What the NIC and an application leave for each other in the header of a queue pair's memfd,
// behind the indices: why things failed (ADR 0019). Neither is on the path of what goes
// well.
const (
	// OffQPCause is a Cause, written by the NIC before the completion that it explains. Its Number
	// is written last, and 0 while the rest changes, so that a reader who finds the same number
	// before and after has read one piece.
	OffQPCause = 0x800
	// OffQPRefusal is a PostRefusal, written by the application's library.
	OffQPRefusal = 0xa00
)

// Evidence of queue pairs that fail without a work request or a packet at fault.
const (
	VendorCQOverrun Vendor = 19 // a completion found no room in its queue
	VendorModified  Vendor = 20 // the program moved the QP to error itself
)

// Flags of a Cause.
const (
	// CauseOfPeer says that the peer's request failed here, not one of this queue pair.
	CauseOfPeer = 1
	// CauseTookReceive says that WRID is that of the receive in use.
	CauseTookReceive = 2
	// CauseHasRegion says that RegionAddr, RegionLength and Granted describe a region, or the
	// memory window of Window.
	CauseHasRegion = 4
	// CauseHasRoom says that RegionLength is how many bytes Length was to fit into.
	CauseHasRoom = 8
	// CauseHasPath says that Local, Peer and PeerQPN describe a connection.
	CauseHasPath = 16
	// CauseHasTerminate says that Terminate is the code that ended a connection of iWARP.
	CauseHasTerminate = 32
	// CauseIsTold says that the peer sent that Terminate; else this end did.
	CauseIsTold = 64
	// CauseOfStream says that the connection is one of TCP: PeerQPN is the TCP port of the peer.
	CauseOfStream = 128
)

// Cause is all that the NIC saw when a queue pair failed: the evidence behind a completion status.
// What does not apply is zero.
type Cause struct {
	Number       uint64 // counts the errors of the NIC from 1
	WRID         uint64
	Addr         uint64 // with Length and Key: what was asked for
	Length       uint64
	RegionAddr   uint64 // what there is
	RegionLength uint64
	Timestamp    uint64 // the clock of CQE.Timestamp
	Local        [16]byte
	Peer         [16]byte
	Status       uint32 // rdma.WCStatus
	Vendor       uint32 // as CQE.VendorErr
	QPN          uint32
	PeerQPN      uint32
	PSN          uint32
	Key          uint32
	Asked        uint32 // rdma.Access; 0 is to read locally
	Granted      uint32 // by the region
	QPAccess     uint32 // by the queue pair, to its peer
	Retries      uint32 // of retry_cnt, since the last progress
	RNRTries     uint32 // of rnr_retry, since the last progress
	Timeouts     uint32 // local ACK timeouts since the last progress
	Naks         uint32 // NAKs received by the queue pair in all
	LastNakPSN   uint32
	Opcode       uint8 // rdma.WROpcode; with CauseOfPeer that of the packet (of iWARP: the message)
	State        uint8 // rdma.QPState before the error
	QPType       uint8
	Syndrome     uint8 // of the NAK that ended it, received or sent
	LastNak      uint8 // syndrome of the last NAK received
	Fault        uint8 // mem.Fault
	Flags        uint8
	Timeout      uint8 // attributes of the queue pair
	RetryCnt     uint8
	RNRRetry     uint8
	MaxRdAtomic  uint8  // as target, with CauseOfPeer
	Window       uint8  // rdma.MWType, where CauseHasRegion describes one
	Terminate    uint16 // iwarp.Code, with CauseHasTerminate
	Reserved2    uint16
}

// CauseBytes is the size of Cause. Both ends read and write it in whole words, CauseWords of them,
// of which the first CauseNumberWords are Number.
const (
	CauseBytes       = 160
	CauseWords       = CauseBytes / 4
	CauseNumberWords = 2
)

// PutCause returns the words of a cause. It allocates, which errors may.
func PutCause(c *Cause) (w [CauseWords]uint32) {
	var b [CauseBytes]byte
	_, _ = binary.Encode(b[:], binary.NativeEndian, c)
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

// TakeCause returns what the words say.
func TakeCause(w *[CauseWords]uint32) (c Cause) {
	var b [CauseBytes]byte
	for i, v := range w {
		binary.NativeEndian.PutUint32(b[4*i:], v)
	}
	_, _ = binary.Decode(b[:], binary.NativeEndian, &c)
	return c
}

// PostRefusalText is the room for the words of a PostRefusal.
const PostRefusalText = 104

// PostRefusal is the last work request that the library refused to post, for `rnic ps --errors`:
// the NIC never sees such a request.
type PostRefusal struct {
	Count  uint32 // refused so far; written last
	Error  uint32
	WRID   uint64
	Opcode uint32 // rdma.WROpcode; 128 for a receive, 130 for an operation on a matching list
	Unused uint32
	Text   [PostRefusalText]uint8 // ends with the first zero
}

// PostRefusalBytes is the size of PostRefusal.
const PostRefusalBytes = 128

// DecodePostRefusal reads a refusal; b is a private copy of at least PostRefusalBytes.
func DecodePostRefusal(b []byte, p *PostRefusal) {
	_ = b[PostRefusalBytes-1]
	p.Count, p.Error = ne.Uint32(b[0:]), ne.Uint32(b[4:])
	p.WRID = ne.Uint64(b[8:])
	p.Opcode, p.Unused = ne.Uint32(b[16:]), ne.Uint32(b[20:])
	copy(p.Text[:], b[24:])
}

// EncodePostRefusal writes a refusal into b.
func EncodePostRefusal(b []byte, p *PostRefusal) {
	_ = b[PostRefusalBytes-1]
	ne.PutUint32(b[0:], p.Count)
	ne.PutUint32(b[4:], p.Error)
	ne.PutUint64(b[8:], p.WRID)
	ne.PutUint32(b[16:], p.Opcode)
	ne.PutUint32(b[20:], p.Unused)
	copy(b[24:], p.Text[:])
}
