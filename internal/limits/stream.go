package limits

// TCP connections of iWARP.
const (
	// MaxStreams bounds TCP connections and listeners of one NIC, each of which costs the shell a
	// descriptor. A connection needs a queue pair.
	MaxStreams = MaxQP
	// MaxStreamsUnasked bounds connections that have come in and said nothing that makes sense yet.
	// The oldest gives way to the newest: who connects in order to occupy a place is displaced by
	// those who have something to say, which they do at once.
	MaxStreamsUnasked = 1024
	// StreamTimeoutsPerCall bounds the timers of streams that one call serves.
	StreamTimeoutsPerCall = 256
)
