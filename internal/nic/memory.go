package nic

// Shared is the memory of one queue, which the NIC and an application both map.
type Shared interface {
	// Bytes is the NIC's view; it stays valid until Release.
	Bytes() []byte
	// Release gives the NIC's view up. The application's own view, if any, lives on.
	Release()
}

// Allocator makes queue memory, zeroed. The daemon's is a sealed memfd, the simulator's a slice.
type Allocator interface {
	Alloc(bytes int) (Shared, error)
}
