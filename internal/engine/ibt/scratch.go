package ibt

// ScratchBytes bounds what is gathered from process memory at once: one system call then serves
// many packets.
const ScratchBytes = 256 << 10

// Scratch is the buffer in which a NIC's QPs gather payload that is not mapped. One lane shares
// one: its content is good until the next call into any of the lane's QPs.
type Scratch struct {
	buf []byte
	// owner is the QP whose bytes the buffer holds; another one's gather evicts them.
	owner *QP
}

// NewScratch makes a buffer for the QPs of one lane.
func NewScratch() *Scratch { return &Scratch{buf: make([]byte, ScratchBytes)} }
