package nic

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// Bounds of what is remembered of errors. What goes well leaves nothing here.
const (
	causesKept   = 64 // of all programs, for the log
	historyKept  = 32 // of one program, so that no other pushes them out
	programsKept = 16 // that have ended
	programsTime = 10 * time.Minute
)

// ErrorKind says what failed.
type ErrorKind string

// Kinds of errors.
const (
	ErrorRequest    ErrorKind = "work request"    // it completed with an error
	ErrorPeer       ErrorKind = "peer's request"  // it was refused here
	ErrorQueue      ErrorKind = "queue"           // overrun or damaged
	ErrorVerb       ErrorKind = "verb"            // refused with an errno
	ErrorPost       ErrorKind = "post"            // refused by the program's library
	ErrorConnection ErrorKind = "connection"      // a connection event reports a failure
	ErrorTurnedAway ErrorKind = "request refused" // of a peer who found no listener
)

// CauseRecord is one error with whom it hit. Chain tells it in sentences, each explaining the one
// before.
type CauseRecord struct {
	Number uint64 // counts from 1
	At     clock.Time
	// Count is how often the same has happened, First when that began: programs that probe what
	// there is are refused the same again and again.
	Count    uint64
	First    clock.Time
	Kind     ErrorKind
	Program  string
	PID, UID uint32
	QPN      rdma.QPN
	Errno    syscall.Errno
	Chain    []string
	// Cause is the evidence, where a queue pair was hit; else nil.
	Cause *abi.Cause
}

// briefLinks is how much of a chain a line of a listing has room for.
const briefLinks = 2

// Text tells an error in one line.
func (r *CauseRecord) Text() string { return r.who() + strings.Join(brief(r.Chain), ": ") }

// Why is what Text leaves out.
func (r *CauseRecord) Why() string {
	return strings.Join(r.Chain[len(brief(r.Chain)):], "; ")
}

func brief(chain []string) []string { return chain[:min(briefLinks, len(chain))] }

func (r *CauseRecord) who() string {
	program := ""
	if r.Program != "" {
		program = fmt.Sprintf("%s[%d]", r.Program, r.PID)
	}
	switch {
	case r.QPN != 0:
		return fmt.Sprintf("QP %v of %s: ", r.QPN, program)
	case program != "":
		return program + ": "
	}
	return ""
}

// history is the newest errors of one program, oldest first; those that are alike once.
type history struct {
	items []*CauseRecord
}

func (h *history) add(r *CauseRecord) {
	r.Count, r.First = 1, r.At
	at := slices.IndexFunc(h.items, r.isLike)
	switch {
	case at >= 0:
		r.Count, r.First = h.items[at].Count+1, h.items[at].First
	case len(h.items) == historyKept:
		at = 0
	default:
		h.items = append(h.items, r)
		return
	}
	copy(h.items[at:], h.items[at+1:])
	h.items[len(h.items)-1] = r
}

// isLike reports that two errors are told in the same words. Each with evidence is one of its own.
func (r *CauseRecord) isLike(o *CauseRecord) bool {
	return r.Cause == nil && o.Cause == nil && r.Kind == o.Kind && r.QPN == o.QPN &&
		r.Errno == o.Errno && slices.Equal(r.Chain, o.Chain)
}

// pastHistory is that of a program that has ended.
type pastHistory struct {
	items []*CauseRecord
	ended clock.Time
}

// causeLog keeps the newest errors, for `rnic ps --errors` and for the shell's log.
type causeLog struct {
	recent [causesKept]*CauseRecord
	total  uint64
	// written counts what was left in headers of queue pairs.
	written uint64
	// own has the errors of no program, past those of programs that have ended, oldest first.
	own  history
	past []pastHistory
}

func (l *causeLog) add(h *history, r *CauseRecord) {
	l.total++
	r.Number = l.total
	l.recent[l.total%causesKept] = r
	h.add(r)
}

// retire keeps the errors of a program that ends for a while.
func (l *causeLog) retire(h *history, now clock.Time) {
	if len(h.items) == 0 {
		return
	}
	if len(l.past) == programsKept {
		l.past = slices.Delete(l.past, 0, 1)
	}
	l.past = append(l.past, pastHistory{items: h.items, ended: now})
	h.items = nil
}

// expire forgets programs that have ended long ago.
func (l *causeLog) expire(now clock.Time) {
	l.past = slices.DeleteFunc(l.past, func(p pastHistory) bool {
		return now.Sub(p.ended) > programsTime
	})
}

// Causes returns the errors with numbers above since, oldest first, as far as they are kept.
func (n *NIC) Causes(since uint64) []CauseRecord {
	l := &n.causes
	if l.total > causesKept {
		since = max(since, l.total-causesKept)
	}
	var out []CauseRecord
	for i := since + 1; i <= l.total; i++ {
		out = append(out, *l.recent[i%causesKept])
	}
	return out
}

// noteError enters an error of a program.
func (c *Context) noteError(r *CauseRecord) {
	r.At, r.Program, r.PID, r.UID = c.nic.now, c.cfg.Name, c.cfg.PID, c.cfg.UID
	c.nic.causes.add(&c.errors, r)
}

// noteError enters an error of a program.
func (s *CMSession) noteError(r *CauseRecord) {
	r.At, r.Program, r.PID, r.UID = s.nic.now, s.cfg.Name, s.cfg.PID, s.cfg.UID
	s.nic.causes.add(&s.errors, r)
}

// NoteRefusal keeps a verb that was refused. handle is that of the object that the verb is about.
func (c *Context) NoteRefusal(now clock.Time, op abi.Op, handle uint32, refusal *rdma.Refusal) {
	c.nic.now = now
	r := &CauseRecord{Kind: ErrorVerb, Errno: refusal.Errno, Chain: explain.Refusal(op, refusal)}
	if q := c.qps[handle]; q != nil && (op == abi.OpModifyQP || op == abi.OpDestroyQP) {
		r.QPN = q.qpn
	}
	c.noteError(r)
}

// NoteRefusal keeps a call of connection management that was refused.
func (s *CMSession) NoteRefusal(now clock.Time, op abi.Op, refusal *rdma.Refusal) {
	s.nic.now = now
	s.noteError(&CauseRecord{
		Kind: ErrorVerb, Errno: refusal.Errno, Chain: explain.Refusal(op, refusal),
	})
}

// noteFailure keeps an event that tells a program of a failure.
func (i *identifier) noteFailure(e *cmEvent) {
	chain := explain.ConnectionFailure(uint32(e.kind), e.status, i.ends())
	if chain == nil {
		return
	}
	r := &CauseRecord{Kind: ErrorConnection, QPN: i.qpn, Chain: chain}
	if e.status < 0 {
		r.Errno = syscall.Errno(-e.status)
	}
	i.session.noteError(r)
}

// ends names an identifier's two ends.
func (i *identifier) ends() string {
	local, remote := i.src.String(), i.dst.String()
	switch {
	case remote == "":
		return fmt.Sprintf("%v identifier on %s", i.space, local)
	case local == "":
		return fmt.Sprintf("%v connection to %s", i.space, remote)
	}
	return fmt.Sprintf("%v connection %s → %s", i.space, local, remote)
}

// causeOf is all that is known of an engine's evidence.
func (q *qp) causeOf(e *work.Cause) *abi.Cause {
	c := &abi.Cause{
		WRID: e.WRID, Addr: e.Addr, Length: e.Length, Timestamp: uint64(q.nic.now),
		Status: uint32(e.Status), Vendor: uint32(e.Vendor), QPN: uint32(q.qpn),
		PSN: uint32(e.PSN), Key: uint32(e.Key), Asked: uint32(e.Asked),
		Retries: e.Retries, RNRTries: e.RNRTries, Timeouts: e.Timeouts,
		Opcode: e.Opcode, State: uint8(q.state()), QPType: uint8(q.qpType),
		Syndrome: e.Syndrome, Fault: uint8(e.Fault), Terminate: e.Terminate,
	}
	for _, f := range []struct {
		isSet bool
		flag  uint8
	}{
		{e.IsResponder, abi.CauseOfPeer},
		{e.TookReceive, abi.CauseTookReceive},
		{e.HasRoom, abi.CauseHasRoom},
		{e.HasTerminate, abi.CauseHasTerminate},
		{e.IsTold, abi.CauseIsTold},
	} {
		if f.isSet {
			c.Flags |= f.flag
		}
	}
	if q.ibt != nil {
		q.addPath(c)
	} else {
		q.addStream(c)
	}
	switch {
	case e.HasRoom:
		c.RegionLength = e.Room
	case e.Vendor == abi.VendorAddressHandle && q.nic.ahs[c.Key] != nil:
		c.Fault = uint8(mem.FaultPD)
	case e.Region != 0:
		q.nic.describeKey(c, e.Region)
	case e.Fault != mem.FaultNone:
		q.nic.describeKey(c, e.Key)
	}
	return c
}

// addPath adds what a queue pair of packets knows of itself and its peer.
func (q *qp) addPath(c *abi.Cause) {
	t, stats := q.ibt.Attr(), q.ibt.Stats()
	c.QPAccess = uint32(t.Access)
	c.Naks, c.LastNak, c.LastNakPSN = uint32(stats.Naks), stats.LastNak, uint32(stats.LastNakPSN)
	c.Timeout, c.RetryCnt, c.RNRRetry = t.Timeout, t.RetryCnt, t.RNRRetry
	c.MaxRdAtomic = t.MaxDestRdAtomic
	if !t.AV.DGID.IsZero() {
		c.Flags |= abi.CauseHasPath
		c.Local, c.Peer, c.PeerQPN = t.AV.SGID, t.AV.DGID, uint32(t.DestQPN)
	}
}

// addStream adds what a queue pair of iWARP knows of itself and its peer.
func (q *qp) addStream(c *abi.Cause) {
	t := q.iwarp.Attr()
	c.QPAccess, c.MaxRdAtomic = uint32(t.Access), t.MaxDestRdAtomic
	if s := q.stream; s != nil {
		c.Flags |= abi.CauseHasPath | abi.CauseOfStream
		c.Local, c.Peer = rdma.GIDFromAddr(s.local.Addr()), rdma.GIDFromAddr(s.remote.Addr())
		c.PeerQPN = uint32(s.remote.Port())
	}
}

// describeKey adds what a refused key stands for.
func (n *NIC) describeKey(c *abi.Cause, key rdma.Key) {
	if r := n.memory.Find(key); r != nil {
		c.RegionAddr, c.RegionLength, c.Granted = r.Base, r.Length, uint32(r.Access)
		c.Flags |= abi.CauseHasRegion
	}
	if w := n.memory.FindWindow(key); w != nil && w.IsBound() {
		c.RegionAddr, c.RegionLength, c.Granted = w.Base, w.Length, uint32(w.Access)
		c.Window = uint8(w.Type)
		c.Flags |= abi.CauseHasRegion
	}
}

// Note implements ibt.Host: it keeps the evidence for people and for the program.
func (q *qp) Note(_ *ibt.QP, e work.Cause) {
	c := q.causeOf(&e)
	hasEnded := e.Vendor == abi.VendorPeerEnded || e.Vendor == abi.VendorStreamLost
	if hasEnded && e.Status == rdma.WCSuccess {
		q.leave(c) // a connection's end is no failure, and one that is has an event that says so
		return
	}
	q.errors++
	q.lastCause = *c
	q.leave(c)
	r := &CauseRecord{
		Kind: ErrorRequest, QPN: q.qpn, Chain: explain.Chain(c), Cause: c,
	}
	switch {
	case e.HasTerminate && e.IsTold && e.Status == rdma.WCSuccess:
		r.Kind = ErrorConnection
	case e.HasTerminate && e.IsTold:
	case e.IsResponder, e.HasTerminate:
		r.Kind = ErrorPeer
	case e.Status == rdma.WCSuccess:
		r.Kind = ErrorQueue
	}
	r.Chain = append(r.Chain, q.peersSide(c)...)
	q.context.noteError(r)
}

// peersSide is what the other queue pair saw, where it is of this NIC too and refused the request.
func (q *qp) peersSide(c *abi.Cause) []string {
	peer := q.nic.qps[rdma.QPN(c.PeerQPN)]
	isRefused := abi.Vendor(c.Vendor&0xff) == abi.VendorNak &&
		c.Flags&(abi.CauseOfPeer|abi.CauseOfStream) == 0
	if !isRefused || peer == nil || !q.nic.IsLocal(rdma.GID(c.Peer)) {
		return nil
	}
	seen := &peer.lastCause
	if seen.Flags&abi.CauseOfPeer == 0 || seen.PeerQPN != c.QPN {
		return nil
	}
	who := fmt.Sprintf("at the peer, %s[%d]: ", peer.context.cfg.Name, peer.context.cfg.PID)
	var out []string
	for _, text := range explain.Chain(seen) {
		out = append(out, who+text)
	}
	return out
}

// leave writes evidence into the header of the queue pair's memory, where the program's library
// finds it beside the completion.
func (q *qp) leave(c *abi.Cause) {
	l := &q.nic.causes
	l.written++
	c.Number = l.written
	words := abi.PutCause(c)
	q.clearCause()
	m := q.shared.Bytes()
	for i := abi.CauseNumberWords; i < len(words); i++ {
		ring.Word(m, abi.OffQPCause+4*i).Store(words[i])
	}
	for i := range abi.CauseNumberWords {
		ring.Word(m, abi.OffQPCause+4*i).Store(words[i])
	}
}

// clearCause takes the evidence away.
func (q *qp) clearCause() {
	for i := range abi.CauseNumberWords {
		ring.Word(q.shared.Bytes(), abi.OffQPCause+4*i).Store(0)
	}
}

// noteModified leaves word that the program itself ended or reset the queue pair, so that flushed
// requests say so.
func (q *qp) noteModified(to rdma.QPState) {
	switch {
	case to == sReset:
		q.clearCause()
		q.showHeld()
	case to == sError && q.state() != sError:
		q.leave(q.causeOf(&work.Cause{Vendor: abi.VendorModified}))
	}
}

// noteRefusedPosts keeps what the program's library says in the memory of a queue that it refused
// to post since the last look; seen is how much was noted. What it says is the program's word: it
// is cut to what can be printed.
func (c *Context) noteRefusedPosts(memory []byte, seen *uint32, qpn rdma.QPN) {
	var p abi.PostRefusal
	b := make([]byte, abi.PostRefusalBytes)
	copy(b, memory[abi.OffQPRefusal:])
	abi.DecodePostRefusal(b, &p)
	if p.Count == *seen {
		return
	}
	count := p.Count - *seen
	*seen = p.Count
	c.noteError(&CauseRecord{
		Kind: ErrorPost, QPN: qpn, Errno: syscall.Errno(p.Error),
		Chain: explain.PostRefusal(p.Opcode, p.Error, p.WRID, count, printable(text(p.Text[:]))),
	})
}

func (q *qp) noteRefusedPosts() {
	q.context.noteRefusedPosts(q.shared.Bytes(), &q.postsRefused, q.qpn)
}

func (s *srq) noteRefusedPosts() {
	s.context.noteRefusedPosts(s.shared.Bytes(), &s.postsRefused, 0)
}

// printable keeps what cannot harm a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
