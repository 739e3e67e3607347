package limits

// Windows and device memory.
const (
	// MaxMW bounds memory windows, which share the index of keys with regions.
	MaxMW = 1 << 18
	// MaxDMBytes bounds the device memory of a NIC: it is ordinary memory, and nobody else's limits
	// count it.
	MaxDMBytes = 1 << 30
	// MaxQueueBytes bounds the queues and device memory of one program: the NIC maps them, and its
	// address space ends.
	MaxQueueBytes = 1 << 42
	// MaxDMPerContext bounds pieces of device memory: a descriptor and a mapping each.
	MaxDMPerContext = 1024
	// DMAlignLog is the alignment, 2^n bytes, that device memory has at least.
	DMAlignLog = 12
)
