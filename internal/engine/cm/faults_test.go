package cm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed of the fault tests only")
	seedCount = flag.Uint64("seeds", 100, "number of seeds of the fault tests")
)

// faultyTime is how long links lose messages and nodes restart; then all is well.
const faultyTime = 300 * time.Second

// TestFaults_RestartsAndLoss_EachConnectionEndsOnce lets two nodes connect, in both directions and
// to themselves, over links that lose, double, delay and reorder, while either is restarted at any
// time. Each connection and each query has exactly one end, all memory is given back, and what a
// side learns about the other belongs to the same connection.
func TestFaults_RestartsAndLoss_EachConnectionEndsOnce(t *testing.T) {
	seen := map[string]int{}
	if *seedFlag != 0 {
		newFaults(t, *seedFlag, seen).run()
		return
	}
	for seed := range *seedCount {
		newFaults(t, seed+1, seen).run()
		if t.Failed() {
			t.Fatalf("seed %d", seed+1)
		}
	}
	// What is rare must have happened, else this test tests less than it says.
	for _, what := range []string{
		"disconnected by the peer", "disconnected by its answer", "disconnected by timeout",
		"disconnected by a rejection", "disconnected since the peer has forgotten it",
		"rejected stale connection", "rejected invalid communication ID", "rejected timeout",
		"rejected rejected by the application", "unreachable", "TIMEWAIT exit",
		"service reply ok", "service reply rejected by the application",
		"established",
	} {
		if seen[what] == 0 {
			t.Errorf("it never happened that: %s", what)
		}
	}
}

// faults is one run.
type faults struct {
	t      *testing.T
	w      *world
	r      *rand.Rand
	calm   bool
	serial int
	qpns   map[string]rdma.QPN
	tracks map[trackKey]*track
	all    []*track // in the order of their coming
	seen   map[string]int
}

// trackKey names a connection of one life of a node.
type trackKey struct {
	node string
	life uint64
	id   ID
}

// track is what its owner knows of it.
type track struct {
	node     *node
	life     uint64
	id       ID
	token    string
	open     bool // established on this side
	ended    bool // a terminal event
	decided  bool // by its owner
	timewait bool
	released bool
}

func newFaults(t *testing.T, seed uint64, seen map[string]int) *faults {
	f := &faults{
		t: t, w: newWorld(t), r: rand.New(rand.NewPCG(seed, 17)), seen: seen,
		qpns: map[string]rdma.QPN{}, tracks: map[trackKey]*track{},
	}
	loss, restarts := f.r.IntN(40), f.r.IntN(8)
	f.w.judge = func(*node, *Message) fate {
		if f.calm {
			return fate{}
		}
		return fate{
			lost: f.r.IntN(100) < loss, double: f.r.IntN(5) == 0,
			later: time.Duration(f.r.IntN(200)) * time.Millisecond,
			stray: []time.Duration{0, 0, 0, 0, 0, 0, 0, f.upTo(20 * time.Second)}[f.r.IntN(8)],
		}
	}
	for _, name := range []string{"a", "b"} {
		n := f.w.nodes[name]
		n.onEvent = func(v *Event) { f.event(n, v) }
		f.listen(n)
		for range restarts {
			f.w.after(f.upTo(faultyTime), func() { n.restart(); f.listen(n); f.qpns[name] = 10 })
		}
		f.qpns[name] = 10
	}
	for range 40 {
		f.w.after(f.upTo(faultyTime), f.begin)
	}
	burst := f.upTo(faultyTime)
	for range 20 {
		f.w.after(burst, f.begin)
	}
	return f
}

func (f *faults) upTo(d time.Duration) time.Duration { return time.Duration(f.r.Int64N(int64(d))) }

func (f *faults) listen(n *node) {
	for service := range uint64(2) {
		if refusal := n.e.Listen(service, exact, 3, uint32(service)); refusal != nil {
			f.t.Error(refusal)
		}
	}
}

func (f *faults) pick() *node { return f.w.nodes[[]string{"a", "b"}[f.r.IntN(2)]] }

// begin connects, or asks for a service.
func (f *faults) begin() {
	from, to := f.pick(), f.pick()
	f.serial++
	token := fmt.Sprintf("token %d", f.serial)
	var id ID
	var refusal *rdma.Refusal
	retries := uint8(f.r.IntN(4))
	if f.r.IntN(5) == 0 {
		id, refusal = from.e.QueryService(f.w.now, &SIDRParams{
			Path: from.path(to), ServiceID: 1, MaxCMRetries: retries, PrivateData: []byte(token),
		})
	} else {
		id, refusal = from.e.Connect(f.w.now, &ConnectParams{
			Path: from.path(to), LocalQPN: f.qpn(from), StartPSN: rdma.PSN(f.r.IntN(1 << 24)),
			QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024, MaxCMRetries: retries,
			CMResponseTimeout: uint8(16 + f.r.IntN(5)), AckTimeout: uint8(13 + f.r.IntN(8)),
			PrivateData: []byte(token),
		})
	}
	if refusal != nil {
		f.t.Fatal(refusal)
	}
	tr := f.add(from, id, token)
	if f.r.IntN(8) == 0 {
		f.later(tr, 10*time.Second, func() { f.release(tr) })
	}
	from.drain()
}

func (f *faults) qpn(n *node) rdma.QPN {
	f.qpns[n.name]++
	return f.qpns[n.name]
}

func (f *faults) add(n *node, id ID, token string) *track {
	key := trackKey{n.name, n.restarts, id}
	if f.tracks[key] != nil {
		f.t.Errorf("connection %08x of %s is there twice", uint32(id), n.name)
	}
	tr := &track{node: n, life: n.restarts, id: id, token: token}
	f.tracks[key] = tr
	f.all = append(f.all, tr)
	return tr
}

// later plans what an owner does with a connection, if both live until then.
func (f *faults) later(tr *track, within time.Duration, do func()) {
	f.w.after(f.upTo(within), func() {
		if tr.node.restarts == tr.life && !tr.released {
			do()
			tr.node.drain()
		}
	})
}

func (f *faults) release(tr *track) {
	if tr.released {
		return
	}
	tr.released = true
	if !tr.ended {
		tr.decided = true
	}
	tr.node.e.Release(f.w.now, tr.id)
}

func textOf(v *Event) string {
	return strings.TrimRight(string(v.PrivateData[:v.PrivateLen]), "\x00")
}

// event is what owners do about events.
func (f *faults) event(n *node, v *Event) {
	tr := f.tracks[trackKey{n.name, n.restarts, v.ID}]
	if v.Kind == EventRequestReceived || v.Kind == EventServiceRequest {
		f.requested(f.add(n, v.ID, textOf(v)), v)
		return
	}
	switch {
	case tr == nil:
		f.t.Errorf("%s: %v of a connection that there is not", n.name, v.Kind)
		return
	case tr.released:
		f.t.Errorf("%s: %v after release", n.name, v.Kind)
	case tr.ended && v.Kind != EventTimewaitExit, tr.decided:
		f.t.Errorf("%s: %v after the end", n.name, v.Kind)
	}
	switch v.Kind {
	case EventReplyReceived:
		f.replied(tr, v)
	case EventEstablished:
		f.seen["established"]++
		f.established(tr)
	case EventTimewaitExit:
		f.seen["TIMEWAIT exit"]++
		if !tr.timewait {
			f.t.Errorf("%s: TIMEWAIT ends and was not", n.name)
		}
		tr.timewait = false
	default:
		f.ended(tr, v)
	}
}

func (f *faults) requested(tr *track, v *Event) {
	f.later(tr, time.Second, func() { tr.node.e.Taken(tr.id) })
	if f.r.IntN(4) == 0 {
		f.later(tr, time.Second, func() { tr.node.e.Delay(f.w.now, tr.id, 20) })
	}
	if v.Kind == EventServiceRequest {
		status := mad.SIDRStatus(f.r.IntN(2)) * mad.SIDRStatusRejected
		f.later(tr, 10*time.Second, func() {
			tr.decided = true
			f.must(tr.node.e.AnswerService(f.w.now, tr.id, &SIDRAnswer{
				Status: uint8(status), QPN: 5, QKey: 6, PrivateData: []byte(tr.token),
			}))
			f.later(tr, 10*time.Second, func() { f.release(tr) })
		})
		return
	}
	switch f.r.IntN(10) {
	case 0:
		f.later(tr, 10*time.Second, func() { f.reject(tr) })
	case 1:
		f.later(tr, 10*time.Second, func() { f.release(tr) })
	default:
		f.later(tr, 10*time.Second, func() {
			if tr.ended {
				return
			}
			f.must(tr.node.e.Accept(f.w.now, tr.id, &AcceptParams{
				QPN: f.qpn(tr.node), StartPSN: rdma.PSN(f.r.IntN(1 << 24)),
				PrivateData: []byte(tr.token),
			}))
			if f.r.IntN(10) == 0 {
				f.later(tr, 10*time.Second, func() { tr.node.e.Established(f.w.now, tr.id) })
			}
			if f.r.IntN(10) == 0 {
				f.later(tr, 10*time.Second, func() { f.release(tr) })
			}
		})
	}
}

func (f *faults) must(refusal *rdma.Refusal) {
	f.t.Helper()
	if refusal != nil {
		f.t.Error(refusal)
	}
}

func (f *faults) reject(tr *track) {
	if tr.ended {
		return
	}
	tr.decided = true
	f.must(tr.node.e.Reject(f.w.now, tr.id, &RejectParams{Reason: uint16(mad.ReasonConsumer)}))
	f.later(tr, 10*time.Second, func() { f.release(tr) })
}

func (f *faults) replied(tr *track, v *Event) {
	if got := textOf(v); got != tr.token {
		f.t.Errorf("%q got the reply to %q", tr.token, got)
	}
	switch f.r.IntN(12) {
	case 0:
		f.later(tr, 5*time.Second, func() { f.reject(tr) })
	case 1:
		f.later(tr, 5*time.Second, func() { f.release(tr) })
	default:
		f.later(tr, 5*time.Second, func() {
			if tr.ended {
				return
			}
			f.must(tr.node.e.Ready(f.w.now, tr.id))
			f.established(tr)
		})
	}
}

func (f *faults) established(tr *track) {
	if tr.open {
		f.t.Errorf("%q is established twice", tr.token)
	}
	tr.open = true
	f.later(tr, faultyTime, func() {
		if f.r.IntN(3) == 0 {
			f.release(tr)
		} else if !tr.ended {
			f.must(tr.node.e.Disconnect(f.w.now, tr.id, nil))
		}
	})
}

func (f *faults) ended(tr *track, v *Event) {
	if !v.Kind.IsTerminal() {
		f.t.Errorf("event %v", v.Kind)
	}
	what := v.Kind.String()
	switch v.Kind {
	case EventRejected:
		what += " " + mad.Reason(v.Reason).String()
	case EventDisconnected:
		what += " " + v.How.String()
		tr.timewait = true
	case EventServiceReply:
		what += " " + mad.SIDRStatus(v.Status).String()
		if got := textOf(v); got != tr.token && v.Status != 3 {
			f.t.Errorf("%q got the reply to %q", tr.token, got)
		}
	}
	f.seen[what]++
	tr.ended, tr.open = true, false
	if f.r.IntN(3) == 0 {
		f.later(tr, 5*time.Second, func() { f.release(tr) })
	}
}

func (f *faults) run() {
	f.w.run(clock.Time(faultyTime))
	f.calm = true
	f.w.run(f.w.now.Add(faultyTime))
	for _, tr := range f.all {
		if tr.open && tr.node.restarts == tr.life && !tr.released {
			f.must(tr.node.e.Disconnect(f.w.now, tr.id, nil))
			tr.node.drain()
		}
	}
	f.w.quiet()
	for _, tr := range f.all {
		switch {
		case tr.node.restarts != tr.life:
		case !tr.ended && !tr.decided:
			info, _ := tr.node.e.Query(tr.id)
			f.t.Errorf("%s: %q has no end, it is %v", tr.node.name, tr.token, info.State)
		case tr.timewait && !tr.released:
			f.t.Errorf("%s: %q has no end of TIMEWAIT", tr.node.name, tr.token)
		default:
			f.release(tr)
		}
	}
	f.w.quiet()
	for _, n := range f.w.nodes {
		checkEmpty(f.t, n)
	}
}
