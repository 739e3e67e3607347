package verbs

import (
	"errors"
	"strings"
	"sync"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
	"github.com/softrnic/softrnic/internal/shm"
)

// Cause is what the NIC saw when a queue pair failed: the evidence behind a completion with an
// error. It is an error itself, the one that a *StatusError unwraps to; errors.As finds it. Fields
// that do not apply are zero.
type Cause struct {
	// Status and ID are those of the work request that failed first. Flushed requests have it as
	// their cause, too.
	Status WCStatus
	ID     uint64
	// Evidence is the vendor_err of that completion.
	Evidence Evidence
	// Operation is the request's; it does not count with IsPeersRequest.
	Operation WROpcode
	QPN       QPN
	// State is the queue pair's before the error.
	State QPState
	// Local, Peer and PeerQPN are the ends of the connection.
	Local, Peer GID
	PeerQPN     QPN
	// IsPeersRequest says that a request of the peer was refused here; ID is then that of the
	// receive in use, if any.
	IsPeersRequest bool
	// IsProgramsOwn says that the program itself moved the queue pair to ERR.
	IsProgramsOwn bool
	PSN           PSN
	// Key, Addr, Length and Asked are the memory that was asked for. With HasRegion there is a
	// region of that key, with an address range and rights of its own.
	Key                      Key
	Addr, Length             uint64
	Asked                    Access
	HasRegion                bool
	RegionAddr, RegionLength uint64
	Granted                  Access
	// QPAccess is what the queue pair grants its peer.
	QPAccess Access
	// NAK is the AETH syndrome that ended it, received or, with IsPeersRequest, sent; 0 for none.
	NAK uint8
	// Terminate is the layer (4 bits), error type (4 bits) and code (8 bits) of the Terminate that
	// ended a connection of iWARP, where IsTerminated; IsPeersTerminate says that the peer sent it.
	Terminate                      uint16
	IsTerminated, IsPeersTerminate bool
	// NAKs counts those received in all; LastNAK is the syndrome of the last, for LastNAKPSN.
	NAKs       uint32
	LastNAK    uint8
	LastNAKPSN PSN
	// Timeouts, Retries and RNRNAKs count since the last progress, against Timeout, RetryCnt and
	// RNRRetry of the queue pair.
	Timeouts, Retries, RNRNAKs  uint32
	Timeout, RetryCnt, RNRRetry uint8

	chain []string
}

// Error tells the whole chain.
func (c *Cause) Error() string { return "verbs: " + strings.Join(c.chain, "; ") }

// Chain tells the cause in sentences, each explaining the one before.
func (c *Cause) Chain() []string { return append([]string(nil), c.chain...) }

// Unwrap returns the errno that stands behind it where there is one: ECONNREFUSED if the peer's
// host said that it has no NIC, EHOSTUNREACH if there is no route.
func (c *Cause) Unwrap() error {
	switch c.Evidence.vendor() {
	case abi.VendorNoNIC:
		return syscall.ECONNREFUSED
	case abi.VendorNoRoute:
		return syscall.EHOSTUNREACH
	default:
		return nil
	}
}

func causeFrom(c *abi.Cause) *Cause {
	has := func(flag uint8) bool { return c.Flags&flag != 0 }
	return &Cause{
		Status: WCStatus(c.Status), ID: c.WRID, Evidence: Evidence(c.Vendor),
		Operation: WROpcode(c.Opcode), QPN: QPN(c.QPN), State: QPState(c.State),
		Local: c.Local, Peer: c.Peer, PeerQPN: QPN(c.PeerQPN),
		IsPeersRequest: has(abi.CauseOfPeer),
		IsProgramsOwn:  abi.Vendor(c.Vendor) == abi.VendorModified,
		PSN:            PSN(c.PSN), Key: Key(c.Key), Addr: c.Addr, Length: c.Length,
		Asked: Access(c.Asked), HasRegion: has(abi.CauseHasRegion), RegionAddr: c.RegionAddr,
		RegionLength: c.RegionLength, Granted: Access(c.Granted), QPAccess: Access(c.QPAccess),
		Terminate: c.Terminate, IsTerminated: has(abi.CauseHasTerminate),
		IsPeersTerminate: has(abi.CauseIsTold),
		NAK:              c.Syndrome, NAKs: c.Naks, LastNAK: c.LastNak, LastNAKPSN: PSN(c.LastNakPSN),
		Timeouts: c.Timeouts, Retries: c.Retries, RNRNAKs: c.RNRTries,
		Timeout: c.Timeout, RetryCnt: c.RetryCnt, RNRRetry: c.RNRRetry, chain: explain.Chain(c),
	}
}

// causeTries bounds how often a reader meets a writer in the middle.
const causeTries = 3

// readCause returns what the NIC left in a queue pair's memory, or nil.
func readCause(m *shm.Memory) *Cause {
	var words [abi.CauseWords]uint32
	for range causeTries {
		for i := range words {
			words[i] = ring.Word(m.Bytes(), abi.OffQPCause+4*i).Load()
		}
		c := abi.TakeCause(&words)
		// The number is written last and taken away first.
		isWhole := true
		for i := range abi.CauseNumberWords {
			isWhole = isWhole && ring.Word(m.Bytes(), abi.OffQPCause+4*i).Load() == words[i]
		}
		if isWhole && c.Number != 0 {
			return causeFrom(&c)
		}
	}
	return nil
}

// Cause returns why the queue pair failed or was moved to ERR, or nil while it has not. It is the
// latest trouble: after one of its own requests failed, the NIC may refuse one of the peer's, too.
func (q *QP) Cause() *Cause {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	return readCause(q.memory)
}

// addCauses gives completions with an error their evidence. Success costs one comparison each.
func (q *CQ) addCauses(wcs []WC) {
	var last *QP
	var cause *Cause
	for i := range wcs {
		w := &wcs[i]
		if w.Status == WCSuccess {
			continue
		}
		if last == nil || last.qpn != w.QPN {
			if last = q.userOf(w.QPN); last == nil {
				continue
			}
			cause = last.Cause()
		}
		isOwn := cause != nil && cause.Status == w.Status && cause.ID == w.ID
		if isOwn || cause != nil && w.Status == WCWRFlushErr {
			w.cause = cause
		}
	}
}

// userOf returns the queue pair with a number that completes here.
func (q *CQ) userOf(n QPN) *QP {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.users[n]
}

// refusals leaves word of posts that were refused in a queue pair's memory, where `rnic ps
// --errors` finds it: the NIC never sees such a request.
type refusals struct {
	mu     sync.Mutex
	area   []byte // guarded by mu, as the queue's owner guards that it is mapped
	latest abi.PostRefusal
}

// newRefusals writes into the memory of a queue.
func newRefusals(memory []byte) *refusals {
	return &refusals{area: memory[abi.OffQPRefusal : abi.OffQPRefusal+abi.PostRefusalBytes]}
}

// note writes a refusal down. It allocates nothing for a full queue, which programs meet in loops.
//
// Preconditions: the memory is mapped until note returns.
func (r *refusals) note(id uint64, opcode uint32, err error) {
	errno, text := syscall.ENOMEM, "the queue is full: poll completions, then post again"
	if !errors.Is(err, ErrQueueFull) {
		errno, text = reasonOf(err)
	}
	if errno == 0 {
		return // the queue or the NIC is gone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.latest
	p.Count, p.Error, p.WRID, p.Opcode = p.Count+1, uint32(errno), id, opcode
	clear(p.Text[copy(p.Text[:], text):])
	abi.EncodePostRefusal(r.area, p)
}

// reasonOf takes a refusal apart; 0 for an error that is none.
func reasonOf(err error) (syscall.Errno, string) {
	var refused *rdma.Refusal
	if errors.As(err, &refused) {
		return refused.Errno, refused.Reason
	}
	return 0, ""
}
