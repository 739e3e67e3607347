package limits

import "time"

// TCP connections of iWARP.
const (
	// MaxStreams bounds TCP connections and listeners of one NIC, each of which costs the shell a
	// descriptor. A connection needs a queue pair.
	MaxStreams = MaxQP
	// MaxStreamsUnasked bounds connections that have come in and said nothing that makes sense yet.
	// The oldest gives way to the newest: who connects in order to occupy a place is displaced by
	// those who have something to say, which they do at once. Those who wait for room in a
	// listener's backlog count as well, and give way when nobody else does.
	MaxStreamsUnasked = 1024
	// ReceivePatience is how long a message waits for a receive that the program has not posted yet.
	// iWARP has no receiver-not-ready: a peer that sends is told at once, or, as here, held up by
	// TCP for a while, which programs that post as fast as they can need.
	ReceivePatience = time.Second
	// RefusedPatience is for how long a connection that TCP refuses is asked for again, every
	// RefusedPause: servers exist that tell their port just before they listen (qperf).
	RefusedPatience = 200 * time.Millisecond
	RefusedPause    = 20 * time.Millisecond
	// MPAShyTime is how long an initiator is silent after the reply of a peer that may be Linux's
	// Soft-iWARP: that driver replies first and looks for data afterwards, and what has come in
	// between stays unnoticed until more does, which for a ping-pong is never.
	MPAShyTime = 10 * time.Millisecond
	// StreamTimeoutsPerCall bounds the timers of streams that one call serves.
	StreamTimeoutsPerCall = 256
)
