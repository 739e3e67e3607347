package cm

import (
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// State is where a connection or a service query stands (IBTA 12.9.3, 12.9.4).
type State uint8

// States.
const (
	StateClosed          State = iota // dead, and still the owner's
	StateRequestSent                  // active: a REQ is out
	StateReplyReceived                // active: the owner decides about a REP
	StateRequestReceived              // passive: the owner decides about a REQ
	StateReplySent                    // passive: a REP is out
	StateEstablished
	StateDisconnectSent // a DREQ is out
	StateTimewait       // old packets may be on their way
	StateRejected       // we said no, and may have to repeat it
	StateQuerySent      // a SIDR_REQ is out
	StateQueryReceived  // the owner decides about a SIDR_REQ
	StateQueryAnswered  // we said what we know, and may have to repeat it
)

var stateNames = [...]string{
	"closed", "REQ sent", "REP received", "REQ received", "REP sent", "established", "DREQ sent",
	"TIMEWAIT", "rejected", "SIDR_REQ sent", "SIDR_REQ received", "SIDR_REQ answered",
}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Timeouts that a kernel's rdma_cm uses, as 4.096 µs × 2^n.
const (
	DefaultResponseTimeout = 20 // 4.3 s
	DefaultAckTimeout      = 19 // 2.1 s
	DefaultAckDelay        = 15 // 134 ms
	// DefaultMaxCMRetries is how often it repeats a message.
	DefaultMaxCMRetries = 15
)

// conn is a connection or a service query, seen from one side.
type conn struct {
	id       ID
	state    State
	active   bool
	released bool // the owner has let go of it; it has no events any more
	xrc      bool

	path    Path // to the peer's communication manager
	dest    rdma.QPN
	guid    rdma.GUID  // the peer's
	peerID  mad.CommID // what the peer calls it; 0 until we learn it
	tid     uint64
	service uint64

	localQPN, remoteQPN rdma.QPN
	remotePSN           rdma.PSN
	ackTimeout          uint8

	listener *listener // that counts the request; nil when it does not

	// sent is the message to repeat when the peer does not answer, or asks again.
	sent        [mad.Len]byte
	timeout     uint8 // what we wait for an answer
	peerTimeout uint8 // what the peer waits for one
	triesMax    uint8 // repetitions of a message
	triesLeft   uint8
	step        uint8      // exponent of the next early repetition, see interval
	patience    clock.Time // when we give up
	undecided   clock.Time // since when the owner decides about the peer's message

	deadline clock.Time
	timer    int   // index in timers
	older    *conn // lingerList
	newer    *conn
	lingers  bool
}

func (c *conn) peerKey() peerKey   { return peerKey{c.path.DGID, c.guid, c.peerID} }
func (c *conn) qpKey() qpKey       { return qpKey{c.path.DGID, c.guid, c.remoteQPN} }
func (c *conn) queryKey() queryKey { return queryKey{c.path.DGID, c.peerID} }

// isQuery reports a service query.
func (c *conn) isQuery() bool {
	return c.state == StateQuerySent || c.state == StateQueryReceived ||
		c.state == StateQueryAnswered
}

// duration returns 4.096 µs × 2^n, within the bounds that we wait.
func duration(n uint8) time.Duration {
	n = min(max(n, limits.CMTimeoutMin), limits.CMTimeoutMax)
	return 4096 * time.Nanosecond << n
}

// sumTimeouts returns the exponent of the sum of two timeouts, rounded up (IBTA 12.7.34).
func sumTimeouts(a, b uint8) uint8 {
	n := max(a, b)
	if n-min(a, b) <= 1 {
		n++
	}
	return min(n, 31)
}

// lingerList is the connections that only wait for their time to be over and that nobody owns, in
// the order in which they began to.
type lingerList struct {
	first, last *conn
	len         int
}

func (l *lingerList) add(c *conn) {
	if c.lingers {
		return
	}
	c.lingers = true
	c.older, c.newer = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.newer = c
	}
	l.last = c
	l.len++
}

func (l *lingerList) remove(c *conn) {
	if !c.lingers {
		return
	}
	if c.older == nil {
		l.first = c.newer
	} else {
		c.older.newer = c.newer
	}
	if c.newer == nil {
		l.last = c.older
	} else {
		c.newer.older = c.older
	}
	c.lingers, c.older, c.newer = false, nil, nil
	l.len--
}
