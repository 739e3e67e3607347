package conformance

// observe copies memory that the NIC may be writing at the same instant, as a program does that
// polls for a remote WRITE. The race detector is told so.
//
//go:norace
func observe(dst, src []byte) { copy(dst, src) }
