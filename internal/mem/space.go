package mem

// Space reaches the memory of one application by its own virtual addresses. Both calls move all
// bytes or report false, with an unknown part moved; they never panic.
type Space interface {
	Read(addr uint64, dst []byte) bool
	Write(addr uint64, src []byte) bool
	// IsGone reports, after a call that failed, that it did because the application has ended.
	IsGone() bool
}

// Segment is one piece of a region. Mapped is the NIC's own view of the piece, of Length bytes,
// or nil: then the piece is reached through the region's Space at Addr.
type Segment struct {
	Addr   uint64 // user virtual address
	Length uint64
	Mapped []byte
}
