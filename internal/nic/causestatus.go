package nic

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// ErrorStatus is one error, for people and tools.
type ErrorStatus struct {
	Number     uint64    `json:"number"`
	AgeSeconds float64   `json:"age_seconds"`
	Kind       ErrorKind `json:"kind"`
	Program    string    `json:"program,omitempty"`
	PID        uint32    `json:"pid,omitempty"`
	UID        uint32    `json:"uid"`
	Ended      bool      `json:"program_ended,omitempty"`
	QPN        uint32    `json:"qpn,omitempty"`
	Errno      string    `json:"errno,omitempty"`
	// Count is how often the same has happened; AgeSeconds is the age of the last one.
	Count           uint64  `json:"count"`
	FirstAgeSeconds float64 `json:"first_age_seconds"`
	// Chain tells it in sentences, each explaining the one before.
	Chain    []string        `json:"chain"`
	Evidence *EvidenceStatus `json:"evidence,omitempty"`
}

// EvidenceStatus is what the NIC saw when a queue pair was hit.
type EvidenceStatus struct {
	WRID         uint64 `json:"wr_id"`
	Status       uint32 `json:"status"`
	VendorErr    uint32 `json:"vendor_err"`
	State        string `json:"qp_state"`
	Local        string `json:"local_gid,omitempty"`
	Peer         string `json:"remote_gid,omitempty"`
	PeerQPN      uint32 `json:"dest_qpn,omitempty"`
	PSN          uint32 `json:"psn"`
	Syndrome     uint8  `json:"syndrome,omitempty"`
	Key          uint32 `json:"key,omitempty"`
	Addr         uint64 `json:"addr,omitempty"`
	Length       uint64 `json:"length,omitempty"`
	RegionAddr   uint64 `json:"region_addr,omitempty"`
	RegionLength uint64 `json:"region_length,omitempty"`
	Asked        string `json:"access_asked,omitempty"`
	Granted      string `json:"access_of_region,omitempty"`
	QPAccess     string `json:"access_of_qp,omitempty"`
	Timeouts     uint32 `json:"ack_timeouts"`
	Timeout      uint8  `json:"timeout"`
	Retries      uint32 `json:"retries"`
	RetryCnt     uint8  `json:"retry_cnt"`
	RNRTries     uint32 `json:"rnr_naks"`
	RNRRetry     uint8  `json:"rnr_retry"`
	Naks         uint32 `json:"naks_received"`
	LastNak      string `json:"last_nak,omitempty"`
	LastNakPSN   uint32 `json:"last_nak_psn,omitempty"`
}

// errorsShown bounds a listing: the newest of many programs' errors.
const errorsShown = 1024

// errorStatus lists what is remembered, oldest first.
func (n *NIC) errorStatus() []ErrorStatus {
	l := &n.causes
	l.expire(n.now)
	for _, c := range n.contexts {
		c.noteAllRefusedPosts()
	}
	records := slices.Clone(l.own.items)
	ended := map[*CauseRecord]bool{}
	for _, p := range l.past {
		records = append(records, p.items...)
		for _, r := range p.items {
			ended[r] = true
		}
	}
	for _, c := range n.contexts {
		records = append(records, c.errors.items...)
	}
	for _, s := range n.cm.sessions {
		records = append(records, s.errors.items...)
	}
	slices.SortFunc(records, func(a, b *CauseRecord) int { return cmp.Compare(a.Number, b.Number) })
	out := []ErrorStatus{}
	for _, r := range records[max(len(records)-errorsShown, 0):] {
		s := r.status(n)
		s.Ended = ended[r]
		out = append(out, s)
	}
	return out
}

// noteAllRefusedPosts looks at every queue of a program.
func (c *Context) noteAllRefusedPosts() {
	for _, q := range c.sortedQPs() {
		q.noteRefusedPosts()
	}
	for _, h := range slices.Sorted(maps.Keys(c.srqs)) {
		c.srqs[h].noteRefusedPosts()
	}
}

func (r *CauseRecord) status(n *NIC) ErrorStatus {
	s := ErrorStatus{
		Number: r.Number, AgeSeconds: n.ageOf(r.At), Kind: r.Kind, Program: r.Program, PID: r.PID,
		UID: r.UID, QPN: uint32(r.QPN), Chain: r.Chain,
		Count: r.Count, FirstAgeSeconds: n.ageOf(r.First),
	}
	if r.Errno != 0 {
		s.Errno = explain.ErrnoName(r.Errno)
	}
	if r.Cause != nil {
		s.Evidence = evidenceOf(r.Cause)
	}
	return s
}

func (n *NIC) ageOf(t clock.Time) float64 {
	return n.now.Sub(t).Round(time.Millisecond).Seconds()
}

func evidenceOf(c *abi.Cause) *EvidenceStatus {
	e := &EvidenceStatus{
		WRID: c.WRID, Status: c.Status, VendorErr: c.Vendor, State: rdma.QPState(c.State).String(),
		PSN: c.PSN, Syndrome: c.Syndrome, Key: c.Key, Addr: c.Addr, Length: c.Length,
		RegionAddr: c.RegionAddr, RegionLength: c.RegionLength, Timeouts: c.Timeouts,
		Timeout: c.Timeout, Retries: c.Retries, RetryCnt: c.RetryCnt, RNRTries: c.RNRTries,
		RNRRetry: c.RNRRetry, Naks: c.Naks,
	}
	if c.Flags&abi.CauseHasPath != 0 {
		e.Local, e.Peer = rdma.GID(c.Local).String(), rdma.GID(c.Peer).String()
		e.PeerQPN = c.PeerQPN
	}
	if c.Key != 0 {
		e.Asked = rdma.Access(c.Asked).String()
	}
	if c.Flags&abi.CauseHasRegion != 0 {
		e.Granted = rdma.Access(c.Granted).String()
	}
	if c.Flags&abi.CauseOfPeer != 0 {
		e.QPAccess = rdma.Access(c.QPAccess).String()
	}
	if c.Naks > 0 {
		e.LastNak, e.LastNakPSN = ib.Syndrome(c.LastNak).String(), c.LastNakPSN
	}
	return e
}
