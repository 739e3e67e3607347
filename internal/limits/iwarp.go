package limits

import "time"

// MPA and its streams.
const (
	// MPARequestTimeout is how long a peer that has connected may take for its MPA request, to the
	// last byte: who sends one byte a minute occupies a place no longer than who sends none. It is
	// the value of Linux's siw.
	MPARequestTimeout = 10 * time.Second
	// MPAReplyTimeout is how long a peer may take to answer a request: a program decides there.
	MPAReplyTimeout = 60 * time.Second
	// MPASendTimeout is how long a peer may take to let itself be told no, and MPARTRTimeout to
	// say the first word.
	MPASendTimeout = 5 * time.Second
	MPARTRTimeout  = 10 * time.Second
	// MPAHoldTime is how long a responder leaves the first word to an initiator that has not
	// offered to say one. RFC 5044 7.1.2 would have it wait for ever, and Linux's siw does not wait
	// at all: programs whose server speaks first exist. An initiator on siw that has not read the
	// reply when the first message comes takes both for a fault, and on a busy host it takes a while.
	// It begins anew where the reply was lost and sent again.
	MPAHoldTime = 200 * time.Millisecond
	// StreamDrainTimeout is how long an orderly end may take, and TerminateTimeout the last word of
	// one that is not.
	StreamDrainTimeout = 10 * time.Second
	TerminateTimeout   = 2 * time.Second
	// StreamMSSDefault stands for a segment size that the shell does not know: what an Ethernet
	// frame carries with IPv6 and time stamps.
	StreamMSSDefault = 1428
)
