package conformance

import (
	"slices"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// What transports promise differently is here; the cases ask isAcked, landed and allowed.
//
// A completion of RoCE's reliable service is an acknowledgement: the peer has the message, and
// where the peer refuses one, the request that it refuses fails and says why (IBTA 9.7.5). On iWARP
// a SEND or WRITE is complete as soon as TCP has it (RFC 5040 5.5 leaves that open; siw does
// the same). So its effect comes a little later, and a peer that refuses it says so by a Terminate,
// which ends the connection: whatever has not completed by then is flushed, whoever was at fault. A
// READ or an atomic has its answer on either, and fails as on RoCE where it is refused, but that a
// right which the queue pair withholds is one more reason of protection (RFC 5040 4.8). A receive
// that is missing is waited for on iWARP, for a second, as TCP lets the sender wait; there are no
// retries to count.

// streamLacks is what iWARP does not have, and why (RFC 5040, RFC 7306).
var streamLacks = map[Feature]string{
	FeatureUC:     "iWARP knows reliable connections only",
	FeatureUD:     "iWARP has no datagrams",
	FeaturePSN:    "TCP counts bytes",
	FeatureAcks:   "a message is complete when TCP has it",
	FeatureFlush:  "RDMAP has no such messages",
	FeatureXRC:    "RDMAP leads to one queue only",
	FeatureGroups: "TCP has two ends",
	FeatureAH:     "they are for datagrams",
	FeatureManual: "MPA is spoken by rdma_cm",
}

// isAcked says that what has completed is at the peer.
func isAcked(f Fabric) bool { return f.Lacks(FeatureAcks) == "" }

// landed wants the effect of a request that has completed: at once where completions are
// acknowledged, else before long.
func landed(t *testing.T, f Fabric, what string, condition func() bool) {
	t.Helper()
	if !isAcked(f) {
		eventually(t, what, condition)
	} else if !condition() {
		t.Fatalf("not true: %s", what)
	}
}

// isLocal says that the request fails before anything is sent.
func (c *failure) isLocal() bool { return c.want == verbs.WCLocProtErr }

// allowed are the statuses of the request, and of the one behind it, where a completion says no
// more than that the transport has the message: what waits for an answer fails where the peer
// refuses it, and everything else completes in time or is flushed.
func (c *failure) allowed() (first, second []verbs.WCStatus) {
	either := []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr}
	flushed := either[1:]
	switch {
	case c.isLocal():
		return []verbs.WCStatus{c.want}, flushed
	case c.opcode == verbs.WRRead && c.want == verbs.WCRemInvReqErr: // the queue pair's rights
		return []verbs.WCStatus{verbs.WCRemAccessErr}, flushed
	case c.opcode == verbs.WRRead, c.opcode == verbs.WRFetchAdd:
		return []verbs.WCStatus{c.want}, flushed
	}
	return either, either
}

// checkUnacknowledged is check for such a transport. Any fault ends the connection on both sides.
func (c *failure) checkUnacknowledged(t *testing.T, s *stage) {
	t.Helper()
	first, second := c.allowed()
	for i, want := range [][]verbs.WCStatus{first, second} {
		wc := next(t, s.a)
		if wc.ID != uint64(1+i) || wc.QPN != s.a.QPN() || !slices.Contains(want, wc.Status) {
			t.Fatalf("completion %d: %+v (%v), want one of %v", i, wc, wc.Err(), want)
		}
	}
	if c.wantPeer != 0 {
		if wc := next(t, s.b); wc.Status != c.wantPeer || wc.ID != 500 {
			t.Errorf("the peer's receive: %+v (%v), want %v", wc, wc.Err(), c.wantPeer)
		}
	}
	for _, e := range []End{s.a, s.b} {
		eventually(t, "both ends are in ERR", func() bool {
			return e.State() == verbs.QPStateError
		})
	}
	quiet(t, s.a)
	quiet(t, s.b)
	// A WRITE with immediate data is a WRITE, which needs no receive, and a message behind it.
	if !c.partial() && c.opcode != verbs.WRWriteWithImm {
		compare(t, "the peer's memory", s.rb.Load(), pattern(4096, 0x77))
	}
}
