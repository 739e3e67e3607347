package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// CFabric is libibverbs.so.1, and librdmacm.so.1 where only that connects: a C program that holds
// the ends of one NIC and does as it is told.
type CFabric struct {
	mtu   int
	lacks map[Feature]string

	mu  sync.Mutex // guards the two; a command and its answer are one step
	in  io.WriteCloser
	out *bufio.Reader
	// srqs holds the shared receive queue of each test and side, plus one.
	srqs map[srqKey]int
}

type srqKey struct {
	t    *testing.T
	side int
}

// cLacks is what the C program does not do, and why.
var cLacks = map[Feature]string{
	FeatureMappedMemory: "in C the library decides that",
	FeatureWindows:      "their work requests name objects of package verbs",
	FeatureTags:         "its requests name objects of package verbs",
	FeatureFlushWR:      "ibv_post_send has no such operations",
}

// CConfig says which program to run, on what.
type CConfig struct {
	Program     string
	Environment []string // LD_LIBRARY_PATH and RNIC_SOCKET
	Device      string
	// Address is where ends connect by rdma_cm; without it they connect by hand.
	Address string
	Lacks   map[Feature]string
}

// NewCFabric starts the program, which ends with the test.
func NewCFabric(t *testing.T, c CConfig) *CFabric {
	t.Helper()
	f := &CFabric{lacks: map[Feature]string{}, srqs: map[srqKey]int{}}
	maps.Copy(f.lacks, cLacks)
	maps.Copy(f.lacks, c.Lacks)
	args := []string{c.Device}
	if c.Address != "" {
		args = append(args, c.Address)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, c.Program, args...)
	cmd.Env = append(os.Environ(), c.Environment...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("the C program: %v", err)
		}
		cancel()
	})
	f.in, f.out = in, bufio.NewReader(out)
	var mtu int
	var device string
	f.read(t, &mtu, &device)
	if device != c.Device {
		t.Fatalf("the C program is on %s, want %s", device, c.Device)
	}
	f.mtu = 128 << mtu
	return f
}

// Lacks implements Fabric.
func (f *CFabric) Lacks(feature Feature) string { return f.lacks[feature] }

// MTU implements Fabric.
func (f *CFabric) MTU() int { return f.mtu }

// read takes an answer apart. An answer "err" is returned, with how many requests were posted.
func (f *CFabric) read(t *testing.T, into ...any) (posted int, err error) {
	t.Helper()
	line, err := f.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the C program has ended: %v", err)
	}
	if text, isErr := strings.CutPrefix(line, "err "); isErr {
		var errno syscall.Errno
		if _, err := fmt.Sscan(text, &errno, &posted); err != nil {
			t.Fatalf("answer %q: %v", line, err)
		}
		return posted, errno
	}
	text, isOK := strings.CutPrefix(line, "ok")
	if !isOK {
		t.Fatalf("answer %q", line)
	}
	if _, err := fmt.Sscan(text, into...); len(into) > 0 && err != nil {
		t.Fatalf("answer %q: %v", line, err)
	}
	return 0, nil
}

// ask sends a command and takes the answer.
func (f *CFabric) ask(t *testing.T, command string, into ...any) (posted int, err error) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := io.WriteString(f.in, command+"\n"); err != nil {
		t.Fatalf("the C program has ended: %v", err)
	}
	return f.read(t, into...)
}

// must is ask for what cannot fail.
func (f *CFabric) must(t *testing.T, command string, into ...any) {
	t.Helper()
	if _, err := f.ask(t, command, into...); err != nil {
		word, _, _ := strings.Cut(command, " ")
		t.Fatalf("C: %s: %v", word, err)
	}
}

// wish says what one end is to be.
func (f *CFabric) wish(t *testing.T, side int, c EndConfig) string {
	t.Helper()
	a := verbs.ConnectConfig{
		Access: verbs.AccessAll, PathMTU: rdma.MTUFromBytes(f.mtu), MaxRdAtomic: 16,
		MaxDestRdAtomic: 16, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	if c.Adjust != nil {
		c.Adjust(&a)
	}
	psn, qkey, srq, all := verbs.PSN(77), c.QKey, 0, 0
	if c.PSN != nil {
		psn = *c.PSN
	}
	if qkey == 0 {
		qkey = verbs.DefaultQKey
	}
	if c.UseSRQ {
		srq = f.sharedQueue(t, side)
	}
	if c.SignalAll {
		all = 1
	}
	return fmt.Sprint(" ", srq, " ", c.MaxSendWR, " ", all, " ", uint32(psn), " ", uint32(qkey), " ",
		uint32(a.Access), " ", uint8(a.PathMTU), " ", a.MaxRdAtomic, " ", a.MaxDestRdAtomic, " ",
		a.MinRNRTimer, " ", a.Timeout, " ", a.RetryCnt, " ", a.RNRRetry)
}

func (f *CFabric) sharedQueue(t *testing.T, side int) int {
	t.Helper()
	key := srqKey{t, side}
	if f.srqs[key] == 0 {
		var srq int
		f.must(t, fmt.Sprint("srq ", side), &srq)
		f.srqs[key] = srq
	}
	return f.srqs[key]
}

// Connect implements Fabric.
func (f *CFabric) Connect(t *testing.T, l Link) (a, b End) {
	t.Helper()
	x, y := &cEnd{fabric: f, config: l.A, t: t}, &cEnd{fabric: f, config: l.B, t: t}
	var qpns [2]uint32
	f.must(t, fmt.Sprint("connect ", uint32(l.Type), f.wish(t, 0, l.A), f.wish(t, 1, l.B)),
		&x.at, &qpns[0], &qpns[1])
	y.at = x.at + 1
	x.qpn, y.qpn = verbs.QPN(qpns[0]), verbs.QPN(qpns[1])
	x.peer, y.peer = y, x
	for _, e := range []*cEnd{y, x} {
		t.Cleanup(func() { f.must(t, fmt.Sprint("close ", e.at)) })
	}
	return x, y
}

// questions are what the program can be asked for, as ask.c numbers them, and the type of the queue
// pair that is tried.
var questions = map[Feature]struct {
	number int
	qpType verbs.QPType
}{
	FeatureUC: {0, verbs.QPTypeUC}, FeatureUD: {1, verbs.QPTypeUD}, FeatureXRC: {2, 0},
	FeatureGroups: {3, verbs.QPTypeUD}, FeatureAH: {4, 0}, FeatureManual: {5, verbs.QPTypeRC},
}

// Ask implements Asker.
func (f *CFabric) Ask(t *testing.T, feature Feature) error {
	t.Helper()
	q, isKnown := questions[feature]
	if !isKnown {
		return errors.ErrUnsupported
	}
	if feature == FeatureGroups && f.Lacks(FeatureUD) != "" {
		q.qpType = verbs.QPTypeRC
	}
	_, err := f.ask(t, fmt.Sprint("ask ", q.number, " ", uint32(q.qpType)))
	return err
}

// cEnd implements End.
type cEnd struct {
	fabric *CFabric
	config EndConfig
	peer   *cEnd
	at     int
	qpn    verbs.QPN
	t      *testing.T
}

// QPN implements End.
func (e *cEnd) QPN() verbs.QPN { return e.qpn }

// Aim implements End. The program has the address handle.
func (e *cEnd) Aim(wr *verbs.SendWR) {
	wr.RemoteQPN, wr.RemoteQKey = e.peer.qpn, e.peer.config.QKey
	if wr.RemoteQKey == 0 {
		wr.RemoteQKey = verbs.DefaultQKey
	}
}

// Send implements End.
func (e *cEnd) Send(wrs ...verbs.SendWR) (int, error) {
	var b strings.Builder
	fmt.Fprint(&b, "send ", e.at, " ", len(wrs))
	for i := range wrs {
		w := &wrs[i]
		flags := w.Flags
		if w.Inline != nil {
			flags |= rdma.SendInline
		}
		fmt.Fprint(&b, " ", w.ID, " ", uint32(w.Opcode), " ", uint32(flags), " ", w.Imm, " ",
			uint32(w.InvalidateKey), " ", w.RemoteAddr, " ", uint32(w.RKey), " ", w.CompareAdd, " ",
			w.Swap, " ", uint32(w.RemoteQPN), " ", uint32(w.RemoteQKey))
		if w.Inline == nil {
			putPieces(&b, w.SGE)
			continue
		}
		fmt.Fprint(&b, " ", len(w.Inline))
		for _, c := range w.Inline {
			fmt.Fprint(&b, " ", c)
		}
	}
	return e.post(b.String(), len(wrs))
}

func putPieces(b *strings.Builder, list []verbs.SGE) {
	fmt.Fprint(b, " ", len(list))
	for _, s := range list {
		fmt.Fprint(b, " ", s.Addr, " ", s.Length, " ", uint32(s.LKey))
	}
}

// post sends a command that posts requests.
func (e *cEnd) post(command string, count int) (int, error) {
	posted, err := e.fabric.ask(e.t, command)
	switch {
	case err == nil:
		return count, nil
	case errors.Is(err, syscall.ENOMEM):
		return posted, verbs.ErrQueueFull
	}
	return posted, err
}

// Recv implements End.
func (e *cEnd) Recv(wrs ...verbs.RecvWR) (int, error) {
	for i, w := range wrs {
		var b strings.Builder
		fmt.Fprint(&b, "recv ", e.at, " ", w.ID)
		putPieces(&b, w.SGE)
		if _, err := e.post(b.String(), 1); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// Poll implements End.
func (e *cEnd) Poll(t *testing.T) (verbs.WC, bool) {
	t.Helper()
	e.fabric.mu.Lock()
	defer e.fabric.mu.Unlock()
	if _, err := fmt.Fprintln(e.fabric.in, "poll", e.at); err != nil {
		t.Fatal(err)
	}
	line, err := e.fabric.out.ReadString('\n')
	if err != nil || line == "ok 0\n" {
		return verbs.WC{}, false
	}
	var wc verbs.WC
	var status, opcode, qpn, src, flags, key, evidence uint32
	_, err = fmt.Sscanf(line, "ok 1 %d %d %d %d %d %d %d %d %d %d", &wc.ID, &status, &opcode,
		&wc.ByteLen, &qpn, &src, &flags, &wc.Imm, &key, &evidence)
	if err != nil {
		t.Fatalf("answer %q: %v", line, err)
	}
	wc.Status, wc.Opcode = verbs.WCStatus(status), verbs.WCOpcode(opcode)
	wc.Flags = verbs.WCFlags(flags)
	wc.QPN, wc.SrcQPN, wc.InvalidatedKey = verbs.QPN(qpn), verbs.QPN(src), verbs.Key(key)
	wc.Evidence = verbs.Evidence(evidence)
	return wc, true
}

// State implements End.
func (e *cEnd) State() verbs.QPState {
	var state uint32
	e.fabric.must(e.t, fmt.Sprint("state ", e.at), &state)
	return verbs.QPState(state)
}

// Fail implements End.
func (e *cEnd) Fail(t *testing.T) {
	t.Helper()
	e.fabric.must(t, fmt.Sprint("fail ", e.at))
}

// Event implements End.
func (e *cEnd) Event(t *testing.T) verbs.EventType {
	t.Helper()
	var event uint32
	e.fabric.must(t, fmt.Sprint("event ", e.at), &event)
	return verbs.EventType(event)
}

// Region implements End.
func (e *cEnd) Region(t *testing.T, c RegionConfig) Region {
	t.Helper()
	r, other := &cRegion{fabric: e.fabric, t: t, size: c.Size}, 0
	if c.OtherPD {
		other = 1
	}
	var lkey, rkey uint32
	e.fabric.must(t, fmt.Sprint("region ", e.at, " ", c.Size, " ", uint32(c.Access), " ", other),
		&r.at, &r.addr, &lkey, &rkey)
	r.lkey, r.rkey = verbs.Key(lkey), verbs.Key(rkey)
	t.Cleanup(func() {
		if !r.isClosed {
			r.Close(t)
		}
	})
	return r
}

// cRegion implements Region.
type cRegion struct {
	fabric     *CFabric
	t          *testing.T
	at, size   int
	addr       uint64
	lkey, rkey verbs.Key
	isClosed   bool
}

// Piece implements Region.
func (r *cRegion) Piece(off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.addr + uint64(off), Length: uint32(n), LKey: r.lkey}
}

// Addr implements Region.
func (r *cRegion) Addr() uint64 { return r.addr }

// LKey implements Region.
func (r *cRegion) LKey() verbs.Key { return r.lkey }

// RKey implements Region.
func (r *cRegion) RKey() verbs.Key { return r.rkey }

// Load implements Region.
func (r *cRegion) Load() []byte {
	f := r.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := fmt.Fprintln(f.in, "load", r.at); err != nil {
		r.t.Fatal(err)
	}
	var n int
	if _, err := f.read(r.t, &n); err != nil {
		r.t.Fatal(err)
	}
	out := make([]byte, n)
	if _, err := io.ReadFull(f.out, out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// Store implements Region.
func (r *cRegion) Store(b []byte) {
	f := r.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	command := append([]byte(fmt.Sprintf("store %d %d\n", r.at, len(b))), b...)
	if _, err := f.in.Write(command); err != nil {
		r.t.Fatal(err)
	}
	if _, err := f.read(r.t); err != nil {
		r.t.Fatal(err)
	}
}

// Close implements Region.
func (r *cRegion) Close(t *testing.T) {
	t.Helper()
	r.isClosed = true
	r.fabric.must(t, fmt.Sprint("dereg ", r.at))
}
