package conformance

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/verbs"
)

// Patience bounds what must happen; a case that fails takes that long.
const Patience = 30 * time.Second

// Feature is something that a fabric may lack.
type Feature string

// Features.
const (
	FeatureUC           Feature = "unreliable connections"
	FeatureUD           Feature = "datagrams"
	FeatureAtomics      Feature = "atomic operations"
	FeatureMappedMemory Feature = "memory that the NIC maps"
	FeatureSRQ          Feature = "shared receive queues"
	FeatureWindows      Feature = "memory windows" // then ends are Windows
	FeatureTags         Feature = "tag matching"   // then ends with UseTags are Tags
	FeaturePSN          Feature = "packet sequence numbers"
	FeatureFlush        Feature = "FLUSH and ATOMIC WRITE"
	FeatureFlushWR      Feature = "work requests for these" // which fail without FeatureFlush
	FeatureXRC          Feature = "XRC"
	FeatureGroups       Feature = "multicast groups"
	FeatureAH           Feature = "address handles"
	FeatureManual       Feature = "connections that the program makes itself"
	// FeatureAcks: a SEND or WRITE that has completed is at the peer, and one that failed there says
	// so. Without it, a completion says that the transport has the message, and a failure ends the
	// connection.
	FeatureAcks Feature = "acknowledged completions"
)

// Link describes a pair to connect. Zero values are the defaults of verbs.ConnectConfig and
// verbs.QPConfig.
type Link struct {
	Type verbs.QPType
	// A and B describe the two ends where they are to differ from the defaults.
	A, B EndConfig
}

// EndConfig describes one end.
type EndConfig struct {
	Adjust    func(*verbs.ConnectConfig)
	PSN       *verbs.PSN // where the packets of this end begin
	SignalAll bool
	MaxSendWR int
	UseSRQ    bool
	UseTags   bool
	QKey      verbs.QKey
}

// Fabric makes pairs of ends.
type Fabric interface {
	// Lacks returns why a feature is not there, or "".
	Lacks(Feature) string
	// MTU returns the path MTU of its links, in bytes.
	MTU() int
	// Connect returns a pair in state RTS. The test's end cleans it up. All first ends share a
	// protection domain, and so do all second ones.
	Connect(t *testing.T, l Link) (a, b End)
}

// Kind is how the NIC reaches a region.
type Kind string

// Kinds of memory.
const (
	KindProcess Kind = "process"
	KindMapped  Kind = "mapped"
)

// RegionConfig describes a region to make.
type RegionConfig struct {
	Size   int
	Access verbs.Access
	Kind   Kind // "" is KindProcess
	// OtherPD registers it in a protection domain that is not the queue pair's.
	OtherPD bool
}

// End is one queue pair with its completion queue, which both its queues share.
type End interface {
	QPN() verbs.QPN
	State() verbs.QPState
	Region(t *testing.T, c RegionConfig) Region
	Send(wrs ...verbs.SendWR) (int, error)
	Recv(wrs ...verbs.RecvWR) (int, error)
	// Poll returns at most one completion, without waiting.
	Poll(t *testing.T) (verbs.WC, bool)
	// Fail takes the queue pair to ERR.
	Fail(t *testing.T)
	// Aim addresses a datagram to the other end.
	Aim(wr *verbs.SendWR)
	// Event returns the next asynchronous event about this queue pair, waiting for it.
	Event(t *testing.T) verbs.EventType
}

// Windows is an end that has memory windows.
type Windows interface {
	Window(t *testing.T, typ verbs.MWType) Window
}

// Window is a memory window of an end.
type Window interface {
	// Bind returns the signaled work request that binds the window to n bytes at off of a region,
	// or with n 0 unbinds it. RKey is its key once that was posted.
	Bind(r Region, off, n int, access verbs.Access) verbs.SendWR
	RKey() verbs.Key
}

// Region is registered memory of an end.
type Region interface {
	Piece(off, n int) verbs.SGE
	Addr() uint64
	LKey() verbs.Key
	RKey() verbs.Key
	Load() []byte // a copy
	Store(b []byte)
	Close(t *testing.T)
}

// require skips the test where a feature is missing.
func require(t *testing.T, f Fabric, features ...Feature) {
	t.Helper()
	for _, feature := range features {
		if why := f.Lacks(feature); why != "" {
			t.Skipf("unsupported: %s: %s", feature, why)
		}
	}
}

// next returns the next completion.
func next(t *testing.T, e End) verbs.WC {
	t.Helper()
	for end := time.Now().Add(Patience); ; {
		if wc, ok := e.Poll(t); ok {
			return wc
		}
		if time.Now().After(end) {
			t.Fatalf("QP %v in state %v: no completion within %v", e.QPN(), e.State(), Patience)
		}
	}
}

// quiet fails if a completion is there or comes at once.
func quiet(t *testing.T, e End) {
	t.Helper()
	for end := time.Now().Add(2 * time.Millisecond); time.Now().Before(end); {
		if wc, ok := e.Poll(t); ok {
			t.Fatalf("QP %v: unexpected completion %+v", e.QPN(), wc)
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !f(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}
