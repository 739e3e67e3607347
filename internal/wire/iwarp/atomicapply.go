package iwarp

// Apply returns what memory holds after the operation, when it held old before (RFC 7306 5.1).
//
// A set bit of an addition's mask is the highest of a field, and no carry leaves it. A swap
// compares the bits of CompareMask and, if they agree, stores those of DataMask.
func (r *AtomicRequest) Apply(old uint64) uint64 {
	switch r.Op {
	case AtomicFetchAdd:
		m := r.DataMask
		return (old&^m + r.Data&^m) ^ (old^r.Data)&m
	case AtomicCompareSwap:
		if old&r.CompareMask == r.Compare&r.CompareMask {
			return old&^r.DataMask | r.Data&r.DataMask
		}
	}
	return old
}
