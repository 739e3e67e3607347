package limits

import "time"

// Connection management.
const (
	// MaxCMConnections bounds what one communication manager knows of: connections in any state
	// and service queries. A connection needs a queue pair.
	MaxCMConnections = MaxQP
	// MaxCMListeners bounds services listened to: one for every port of TCP and of UDP is enough
	// for anybody.
	MaxCMListeners = 4096
	// MaxCMBacklog bounds requests of one listener that the application has not taken, and is the
	// backlog of a listener that names none.
	MaxCMBacklog = 1024
	// CMBacklogPatience is for how long requests beyond a backlog get no answer, so that their
	// peers ask again, while the application takes none of those that wait. From then on they are
	// rejected: a peer learns why before its own patience ends, which for rdma_cm is 69 s.
	CMBacklogPatience = 30 * time.Second
	// MaxCMRequests bounds such requests over all listeners. A flood of REQs costs no more memory
	// than this; nothing is kept of those beyond it.
	MaxCMRequests = 8192
	// MaxCMLingering bounds connections that nobody owns and that wait for old packets to die out
	// (TIMEWAIT), or to repeat a rejection. Beyond it the oldest is forgotten early, so that
	// connecting and leaving at speed costs no more memory than this.
	MaxCMLingering = 8192
	// MaxCMTransmit bounds messages that wait to be sent. More are dropped as if the network had:
	// whoever waits for one asks again.
	MaxCMTransmit = 4096
	// MaxCMReplies bounds those among them that answer strangers, so that a flood of nonsense does
	// not displace what connections have to say.
	MaxCMReplies = MaxCMTransmit / 4
	// CMTimeoutsPerCall bounds the timers that one call serves.
	CMTimeoutsPerCall = 256
	// CMTimeoutMin and CMTimeoutMax bound, as 4.096 µs × 2^n, what a peer can make us wait before
	// we repeat ourselves: 33 ms, so that it cannot make us busy, and 69 s.
	CMTimeoutMin = 13
	CMTimeoutMax = 24
	// CMRepeatFirst is when the first repetition of a message comes, 134 ms: late enough for a
	// busy peer and the round trip to any place on Earth, early enough that a lost message is no
	// more than a hiccup.
	CMRepeatFirst = 15
	// CMRejectRepeats is how often a rejection is repeated that no answer follows and nobody asks
	// for again.
	CMRejectRepeats = 5
	// CMDecisionTime is how long a program decides about a request before a peer that repeats it
	// is asked to wait.
	CMDecisionTime = time.Second
	// CMServiceTimeout is how long a peer that asks again is told that a program may take to
	// decide, 17 s. The peer then waits for that long, and for nothing if the host fails
	// meanwhile, so that it is asked for in parts.
	CMServiceTimeout = 22
)
