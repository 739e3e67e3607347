package limits

// Tag matching.
const (
	// MaxTags bounds the tagged buffers of one shared receive queue, whether they wait for a
	// message or receive one. Each message with a tag may be compared with all of them.
	MaxTags = 1024
	// MaxTagsInAll bounds those of all queues of the NIC, which has some 160 bytes of its own for
	// each. One program may have half of them.
	MaxTagsInAll = 1 << 20
	// MaxTagOps bounds the operations on the list that wait for the NIC, which carries all of them
	// out before it matches the next message.
	MaxTagOps = 4096
	// MaxTagSGE bounds scatter/gather entries of a tagged buffer: each is copied whole, and the
	// list has room for all.
	MaxTagSGE = 4
	// MaxRendezvousHeader bounds a rendezvous request with what its sender adds, in bytes. It is the
	// smallest MTU, so that a request is always one packet.
	MaxRendezvousHeader = 256
	// MaxTagDebt is how many unexpected messages the application may be behind before completions
	// of further ones remind it to synchronize. Programs that count in 16 bits still see a
	// difference.
	MaxTagDebt = 0x3fff
)
