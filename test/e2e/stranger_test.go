package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// stranger speaks TCP to a listener of iWARP, whatever a test wants it to say.
type stranger struct {
	net.Conn
	in        []byte // what it has heard and not yet taken
	isLenient bool   // it does without CRCs
}

// callIn opens a TCP connection from a machine.
func (m *machine) callIn(t *testing.T, address string) *stranger {
	t.Helper()
	var c net.Conn
	var err error
	dial := func() { c, err = net.DialTimeout("tcp", address, patience) }
	if m.ns != nil {
		m.ns.Do(dial)
	} else {
		dial()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &stranger{Conn: c}
}

func (s *stranger) say(t *testing.T, b []byte) {
	t.Helper()
	if _, err := s.Write(b); err != nil {
		t.Fatal(err)
	}
}

// need reads until there are n bytes, or the stream ends.
func (s *stranger) need(n int) error {
	for len(s.in) < n {
		b := make([]byte, 4096)
		got, err := s.Read(b)
		s.in = append(s.in, b[:got]...)
		if err != nil {
			return err
		}
	}
	return nil
}

// mpaRequest is what a plain initiator asks for, who wants no markers.
func mpaRequest(crc bool) []byte {
	f := iwarp.Frame{
		Revision: iwarp.Revision2, Enhanced: true, CRC: crc, Setup: iwarp.Setup{IRD: 2, ORD: 2},
	}
	return f.Append(nil)
}

// connect asks for a connection and gets it.
func (s *stranger) connect(t *testing.T) {
	t.Helper()
	s.say(t, mpaRequest(!s.isLenient))
	s.reply(t)
}

// reply takes the answer to a request, which has to be yes.
func (s *stranger) reply(t *testing.T) iwarp.Frame {
	t.Helper()
	for {
		f, n, err := iwarp.ParseReply(s.in)
		if err != nil || f.Reject {
			t.Fatalf("the reply to an MPA request: %v %v", f, err)
		}
		if n > 0 {
			s.in = s.in[n:]
			return f
		}
		if err := s.need(len(s.in) + 1); err != nil {
			t.Fatalf("no reply to an MPA request but %q: %v", s.in, err)
		}
	}
}

// hears reads to the end of the stream, and returns the code of the Terminate that it hears, if it
// hears one.
func (s *stranger) hears(t *testing.T) (code iwarp.Code, isTold bool) {
	t.Helper()
	for {
		h, content, err := s.message(t)
		if err != nil {
			wantEnd(t, err)
			return code, isTold
		}
		var term iwarp.Terminate
		if h.Opcode == iwarp.OpcodeTerminate {
			if err := term.Parse(content); err != nil {
				t.Errorf("Terminate %x: %v", content, err)
			}
			code, isTold = term.Code, true
		}
	}
}

// message takes the next FPDU, or says how the stream ends.
func (s *stranger) message(t *testing.T) (h iwarp.Header, content []byte, end error) {
	t.Helper()
	if err := s.need(iwarp.ULPDULenLen); err != nil {
		return h, nil, err
	}
	n, _ := iwarp.ParseULPDULen(s.in)
	if err := s.need(iwarp.FPDULen(n)); err != nil {
		t.Fatalf("an FPDU is cut: %x: %v", s.in, err)
	}
	fpdu := s.in[:iwarp.FPDULen(n)]
	if !s.isLenient && !iwarp.IsCRCGood(fpdu) {
		t.Errorf("an FPDU with a wrong CRC: %x", fpdu)
	}
	content, err := h.Parse(fpdu[iwarp.ULPDULenLen:][:n])
	if err != nil {
		t.Fatalf("%x: %v", fpdu, err)
	}
	s.in = s.in[len(fpdu):]
	return h, content, nil
}

// wantEnd wants the stream to have ended, however.
func wantEnd(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) &&
		!errors.Is(err, syscall.EPIPE) {
		t.Errorf("still connected: %v", err)
	}
}

// counts returns a counter of a machine's iWARP device.
func (m *machine) counts(t *testing.T, name string) int {
	t.Helper()
	text := m.start(t, rnic, "stat", "--json").succeed(t).stdout
	var stat struct {
		Devices []struct {
			Name     string         `json:"device"`
			Counters map[string]int `json:"hw_counters"`
		} `json:"devices"`
	}
	if err := json.Unmarshal([]byte(text), &stat); err != nil {
		t.Fatal(err)
	}
	for _, d := range stat.Devices {
		if n, isThere := d.Counters[name]; isThere && d.Name == "iwarp0" {
			return n
		}
	}
	t.Fatalf("iwarp0 has no counter %q:\n%s", name, text)
	return 0
}

// TestIWARP_Strangers_AreTurnedAway lets who does not speak MPA talk to a listener of an unmodified
// program. Each is shown the door, and counted; the program hears of none, and serves others.
func TestIWARP_Strangers_AreTurnedAway(t *testing.T) {
	p := oneHostOrSelf(t)
	p.onIWARP(t, "")
	port := strconv.Itoa(newPort())
	at := net.JoinHostPort(p.address, port)
	server := p.server.run(t, "rping", "-s", "-P", "-p", port, "-v")
	until(t, "rping listens", func() bool { return p.server.hasListener(t) })
	busy := p.client.run(t, "rping", "-c", "-a", p.address, "-p", port, "-v")
	until(t, "rping talks", func() bool { return busy.hasSaid("rdma-ping-3") })

	rows := map[string][]byte{
		"HTTP":              []byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
		"TLS":               {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"a reply":           (&iwarp.Frame{IsReply: true, Revision: 2}).Append(nil),
		"another revision":  append([]byte("MPA ID Req Frame"), 0, 9, 0, 0),
		"much private data": append([]byte("MPA ID Req Frame"), 0, 1, 0xff, 0xff),
		"zeros":             make([]byte, 1<<16),
	}
	before := p.server.counts(t, "tcp_no_mpa")
	for name, b := range rows {
		s := p.client.callIn(t, at)
		_, _ = s.Write(b) // who resets early is right, too
		if err := s.need(1); err == nil {
			t.Errorf("%s is answered with %q", name, s.in)
		} else {
			wantEnd(t, err)
		}
	}
	slow := p.client.callIn(t, at)
	began := time.Now()
	for _, b := range mpaRequest(true) {
		if _, err := slow.Write([]byte{b}); err != nil {
			wantEnd(t, err)
			break
		}
		time.Sleep(time.Second)
	}
	if spent := time.Since(began); spent > 15*time.Second {
		t.Errorf("who says a byte a second is endured for %v", spent)
	}
	if got := p.server.counts(t, "tcp_no_mpa") - before; got != len(rows)+1 {
		t.Errorf("%d strangers counted, of %d", got, len(rows)+1)
	}
	askByHTTP(t, p, at)

	if busy.hasEnded() || server.hasEnded() {
		t.Error("the connection that was there has ended")
	}
	busy.kill()
	again := p.client.run(t, "rping", "-c", "-a", p.address, "-p", port, "-C", "3", "-V")
	if out := again.end(t); out.status != 0 {
		t.Errorf("a client that comes later: status %d: %s", out.status, out.stderr)
	}
}

// TestIWARP_CrowdOfStrangers_ClientsAreServed opens more connections that say nothing than a NIC
// keeps. The oldest give way, and whoever has something to say is served at once.
func TestIWARP_CrowdOfStrangers_ClientsAreServed(t *testing.T) {
	p := oneHostOrSelf(t)
	p.onIWARP(t, "")
	port := strconv.Itoa(newPort())
	p.server.run(t, "rping", "-s", "-P", "-p", port)
	until(t, "rping listens", func() bool { return p.server.hasListener(t) })
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 4096 {
		t.Skipf("needs 4096 descriptors (ulimit -n), not %d: %v", limit.Cur, err)
	}
	var crowd []*stranger
	for range limits.MaxStreamsUnasked + 50 {
		crowd = append(crowd, p.client.callIn(t, net.JoinHostPort(p.address, port)))
	}
	began := time.Now()
	client := p.client.run(t, "rping", "-c", "-a", p.address, "-p", port, "-C", "5", "-V")
	if out := client.end(t); out.status != 0 {
		t.Errorf("status %d: %s", out.status, out.stderr)
	}
	if spent := time.Since(began); spent > limits.MPARequestTimeout/2 {
		t.Errorf("served after %v", spent)
	}
	wantEnd(t, crowd[0].need(1))
	if p.server.counts(t, "tcp_displaced") == 0 {
		t.Error("nobody gave way")
	}
}

// askByHTTP is a real client of HTTP at the wrong port. It has to hear an error, at once.
func askByHTTP(t *testing.T, p pair, at string) {
	t.Helper()
	requireProgram(t, "curl")
	out := p.client.start(t, "curl", "-sS", "--max-time", "9", "http://"+at+"/").end(t)
	const emptyReply, receiveFailed = 52, 56
	if out.status != emptyReply && out.status != receiveFailed {
		t.Errorf("curl: status %d, %q, %q", out.status, out.stdout, out.stderr)
	}
}

// victim is a program with an iWARP connection to a stranger, and one to a friend.
type victim struct {
	machine  *machine
	listener *rdmacm.Listener
	cfg      rdmacm.Config
	memory   *verbs.MR
	friends  [2]*rdmacm.Conn
	// isLenient is for a NIC that does without CRCs where its peer does.
	isLenient bool
}

// receiveSize is how long a message to a victim may be.
const receiveSize = 100

// newVictim starts a NIC process for a program, which is this one.
func newVictim(t *testing.T, options string) *victim {
	t.Helper()
	p := oneHostOrSelf(t)
	v := &victim{machine: newMachine(t, p.server.ns, p.server.uid)}
	socket := filepath.Join(v.machine.runtimeDir(), "victim.sock")
	v.machine.env = append(v.machine.env, "RNIC_SOCKET="+socket)
	v.machine.startNIC(t, "--device", "rnic0", "--device", "iwarp0=iwarp"+options)
	t.Setenv("RNIC_SOCKET", socket)
	session, err := rdmacm.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	v.cfg = rdmacm.Config{Session: session, Device: "iwarp0"}
	if v.cfg.PD, err = session.PDOn(t.Context(), "iwarp0"); err != nil {
		t.Fatal(err)
	}
	if v.memory, err = v.cfg.PD.AllocMemory(4096, verbs.AccessAll); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.memory.Close() })
	v.listener, err = rdmacm.Listen(t.Context(), "rdma", p.address+":0", v.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.listener.Close() })
	accepted := v.accept(t)
	if v.friends[0], err = rdmacm.Dial(nictest.Soon(t), "rdma", v.address(), v.cfg); err != nil {
		t.Fatal(err)
	}
	v.friends[1] = <-accepted
	t.Cleanup(func() { _ = v.friends[0].Close() })
	return v
}

func (v *victim) address() string { return v.listener.Addr().String() }

// accept takes the next connection, with one receive posted.
func (v *victim) accept(t *testing.T) <-chan *rdmacm.Conn {
	t.Helper()
	cfg := v.cfg
	cfg.Prepare = func(qp *verbs.QP) error {
		_, err := qp.PostRecv(verbs.RecvWR{ID: 1, SGE: v.memory.SGE(0, receiveSize)})
		return err
	}
	accepted := make(chan *rdmacm.Conn, 1)
	go func() {
		defer close(accepted)
		r, err := v.listener.Accept(nictest.Soon(t))
		if err != nil {
			t.Error(err)
			return
		}
		if c, err := r.Accept(nictest.Soon(t), cfg); err == nil {
			t.Cleanup(func() { _ = c.Close() })
			accepted <- c
		} else {
			t.Errorf("accept: %v", err)
		}
	}()
	return accepted
}

// talk has the friends move a message to and fro.
func (v *victim) talk(t *testing.T) {
	t.Helper()
	a := v.friends[0]
	for _, op := range []verbs.WROpcode{verbs.WRWrite, verbs.WRRead} {
		_, err := a.QP().PostSend(verbs.SendWR{
			Opcode: op, RemoteAddr: v.memory.Addr() + 3000, RKey: v.memory.RKey(),
			SGE: v.memory.SGE(2000, 1000), Flags: verbs.SendSignaled,
		})
		if err != nil {
			t.Fatal(err)
		}
		if wc := v.completion(t, a); wc.Status != verbs.WCSuccess {
			t.Fatalf("between others: %v: %v", op, wc.Status)
		}
	}
}

func (v *victim) completion(t *testing.T, c *rdmacm.Conn) verbs.WC {
	t.Helper()
	var wcs [1]verbs.WC
	until(t, "a completion", func() bool {
		n, err := c.SendCQ().Poll(wcs[:])
		return err != nil || n == 1
	})
	return wcs[0]
}

// crime is what a stranger does on a connection of its own, and what it has to hear of it.
type crime struct {
	name string
	say  func(v *victim) []byte
	code iwarp.Code
	// counter is one besides sent_terminate that tells of it.
	counter string
}

// fpdu frames an ULPDU, with a CRC.
func fpdu(ulpdu []byte) []byte {
	b := append(iwarp.AppendULPDULen(nil, len(ulpdu)), ulpdu...)
	b = iwarp.AppendPad(b, iwarp.PadLen(len(ulpdu)))
	return iwarp.AppendCRC(b, iwarp.UpdateCRC(0, b))
}

func segment(h iwarp.Header, n int) []byte { return append(h.Append(nil), make([]byte, n)...) }

// first is a Send of n bytes.
func first(n int) []byte {
	return segment(iwarp.Header{Opcode: iwarp.OpcodeSend, Last: true, MSN: 1}, n)
}

func writing(stag uint32, to uint64, n int) []byte {
	h := iwarp.Header{Opcode: iwarp.OpcodeWrite, Last: true, STag: verbs.Key(stag), TO: to}
	return fpdu(segment(h, n))
}

func reading(stag uint32, to uint64, n uint32) []byte {
	h := iwarp.Header{Opcode: iwarp.OpcodeReadRequest, Last: true, MSN: 1}
	r := iwarp.ReadRequest{SinkSTag: 5, SourceSTag: verbs.Key(stag), SourceTO: to, Length: n}
	return fpdu(r.Append(h.Append(nil)))
}

// bend changes a Send of ten bytes before it is framed.
func bend(edit func(b []byte)) func(*victim) []byte {
	return func(*victim) []byte {
		b := first(10)
		edit(b)
		return fpdu(b)
	}
}

//tidy:table
var crimes = []crime{
	{
		name: "wrong CRC", code: iwarp.CodeMPACRC, counter: "bad_fpdu",
		say: func(*victim) []byte { b := fpdu(first(10)); b[len(b)-9] ^= 1; return b },
	},
	{
		name: "garbage", code: iwarp.CodeMPACRC, counter: "bad_fpdu",
		say: func(*victim) []byte { return bytes.Repeat([]byte{0x17, 0xc3, 0x41}, 30_000) },
	},
	{
		name: "zeros", code: iwarp.CodeMPACRC, counter: "bad_fpdu",
		say: func(*victim) []byte { return make([]byte, 100) },
	},
	{
		name: "ULPDU without room for a header", code: iwarp.CodeDDPLocal,
		say: func(*victim) []byte { return fpdu(first(10)[:5]) },
	},
	{
		name: "DDP version", code: iwarp.CodeUntaggedVersion,
		say: bend(func(b []byte) { b[0] = b[0]&^3 | 3 }),
	},
	{
		name: "RDMAP version", code: iwarp.CodeRDMAPVersion,
		say: bend(func(b []byte) { b[1] &= 0x3f }),
	},
	{
		name: "unknown opcode", code: iwarp.CodeOpcode,
		say: bend(func(b []byte) { b[1] = b[1]&0xf0 | 0xf }),
	},
	{
		name: "unknown queue", code: iwarp.CodeUntaggedQN,
		say: bend(func(b []byte) { b[9] = 77 }),
	},
	{
		name: "wrong MSN", code: iwarp.CodeUntaggedMSN,
		say: bend(func(b []byte) { b[13] = 2 }),
	},
	{
		name: "wrong MO", code: iwarp.CodeUntaggedMO,
		say: bend(func(b []byte) { b[17] = 4 }),
	},
	{
		name: "message longer than the receive", code: iwarp.CodeUntaggedTooLong,
		say: func(*victim) []byte { return fpdu(first(receiveSize + 1)) },
	},
	{
		name: "oversized FPDU", code: iwarp.CodeUntaggedTooLong,
		say: func(*victim) []byte { return fpdu(first(60_000)) },
	},
	{
		name: "WRITE to no STag", code: iwarp.CodeTaggedSTag,
		say: func(v *victim) []byte {
			return writing(uint32(v.memory.RKey())^0xff00, v.memory.Addr(), 8)
		},
	},
	{
		name: "WRITE beyond the region", code: iwarp.CodeTaggedBounds,
		say: func(v *victim) []byte {
			return writing(uint32(v.memory.RKey()), v.memory.Addr()+4096-7, 8)
		},
	},
	{
		name: "READ of no STag", code: iwarp.CodeProtectionSTag,
		say: func(v *victim) []byte {
			return reading(uint32(v.memory.RKey())^0xff00, v.memory.Addr(), 8)
		},
	},
	{
		name: "READ beyond the region", code: iwarp.CodeProtectionBounds,
		say: func(v *victim) []byte { return reading(uint32(v.memory.RKey()), v.memory.Addr(), 4097) },
	},
	{
		name: "answer to no READ", code: iwarp.CodeOpcode,
		say: func(v *victim) []byte {
			h := iwarp.Header{
				Opcode: iwarp.OpcodeReadResponse, Last: true, STag: v.memory.RKey(), TO: v.memory.Addr(),
			}
			return fpdu(segment(h, 8))
		},
	},
}

// TestIWARP_BadStreams_AreTerminated connects a stranger to a program, over real sockets and a NIC
// process, and lets it break each rule: it hears the standard's answer, a counter tells of it, the
// program's queue pair is flushed, and nobody else notices.
func TestIWARP_BadStreams_AreTerminated(t *testing.T) {
	v := newVictim(t, "")
	for i := range crimes {
		t.Run(crimes[i].name, func(t *testing.T) { v.suffer(t, &crimes[i], crimes[i].say(v)) })
	}
	t.Run("end in the middle of an FPDU", func(t *testing.T) {
		s, conn := v.meet(t)
		s.say(t, fpdu(first(10))[:9])
		_ = s.Conn.(*net.TCPConn).CloseWrite()
		s.hears(t)
		v.checkEnded(t, conn)
	})
	t.Run("reset", func(t *testing.T) {
		s, conn := v.meet(t)
		s.say(t, fpdu(first(10))[:9])
		_ = s.Conn.(*net.TCPConn).SetLinger(0)
		_ = s.Close()
		v.checkEnded(t, conn)
	})
	t.Run("first word before the reply", func(t *testing.T) {
		s := v.machine.callIn(t, v.address())
		s.say(t, append(mpaRequest(true), fpdu(first(10))...))
		before := bytes.Clone(v.memory.Bytes())
		wantEnd(t, s.need(1))
		v.talk(t)
		if !bytes.Equal(before[:receiveSize], v.memory.Bytes()[:receiveSize]) {
			t.Error("it was placed")
		}
		// The program has, or has not, heard of that one before it ended.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if r, err := v.listener.Accept(ctx); err == nil {
			_ = r.Reject(nil)
		}
	})
}

// TestIWARP_SlowPeer_HoldsNobodyUp says a message byte by byte, and then stops in the middle of
// one. That is no offence: the message counts once it is whole, the program may end the connection
// at any time, and others do not wait meanwhile.
func TestIWARP_SlowPeer_HoldsNobodyUp(t *testing.T) {
	v := newVictim(t, "")
	s, conn := v.meet(t)
	for i, b := range fpdu(first(10)) {
		s.say(t, []byte{b})
		if i%8 == 0 {
			v.talk(t)
		}
	}
	if wc := v.completion(t, conn); wc.Status != verbs.WCSuccess || wc.ByteLen != 10 {
		t.Errorf("the message: %+v", wc)
	}
	_, err := conn.QP().PostRecv(verbs.RecvWR{ID: 1, SGE: v.memory.SGE(0, receiveSize)})
	if err != nil {
		t.Fatal(err)
	}
	h := iwarp.Header{Opcode: iwarp.OpcodeSend, Last: true, MSN: 2}
	s.say(t, fpdu(segment(h, 50))[:40])
	v.talk(t)
	if err := conn.Disconnect(nictest.Soon(t)); err != nil {
		t.Error(err)
	}
	if code, isTold := s.hears(t); isTold {
		t.Errorf("it hears a Terminate: %v", code)
	}
	v.checkEnded(t, conn)
	v.talk(t)
}

// TestIWARP_WrongMarkers_AreTerminated is for a NIC that has asked for markers.
func TestIWARP_WrongMarkers_AreTerminated(t *testing.T) {
	v := newVictim(t, ",markers=on,crc=off")
	v.isLenient = true
	for at, name := range map[int]string{2: "first marker", 514: "second marker"} {
		x := &crime{name: name, code: iwarp.CodeMPAMarker, counter: "bad_fpdu"}
		t.Run(name, func(t *testing.T) {
			var m iwarp.Marks
			m.StartFPDU()
			h := iwarp.Header{
				Opcode: iwarp.OpcodeWrite, Last: true, STag: v.memory.RKey(), TO: v.memory.Addr() + 1000,
			}
			b := m.Append(nil, fpdu(segment(h, 900)))
			b[at] ^= 4
			v.suffer(t, x, b)
		})
	}
	t.Run("none at all", func(t *testing.T) {
		x := &crime{code: iwarp.CodeMPAMarker, counter: "bad_fpdu"}
		v.suffer(t, x, fpdu(first(10)))
	})
}

// meet connects a stranger to the program.
func (v *victim) meet(t *testing.T) (*stranger, *rdmacm.Conn) {
	t.Helper()
	s := v.machine.callIn(t, v.address())
	s.isLenient = v.isLenient
	accepted := v.accept(t)
	s.connect(t)
	conn := <-accepted
	if conn == nil {
		t.FailNow()
	}
	return s, conn
}

func (v *victim) suffer(t *testing.T, x *crime, say []byte) {
	t.Helper()
	for i := range v.memory.Bytes() {
		v.memory.Bytes()[i] = byte(i)
	}
	before := bytes.Clone(v.memory.Bytes()[receiveSize:])
	counters := []string{"sent_terminate", x.counter}
	var counts [2]int
	for i, name := range counters {
		if name != "" {
			counts[i] = v.machine.counts(t, name)
		}
	}
	s, conn := v.meet(t)
	_, _ = s.Write(say) // the end may come before all of it is said
	if code, isTold := s.hears(t); !isTold || code != x.code {
		t.Errorf("it hears %v (%v), want %v", code, isTold, x.code)
	}
	v.checkEnded(t, conn)
	if !bytes.Equal(before, v.memory.Bytes()[receiveSize:]) {
		t.Error("memory has changed")
	}
	text := v.machine.start(t, rnic, "ps", "--errors").succeed(t).stdout
	text = strings.Join(strings.Fields(text), " ")
	if evidence := "Terminate: " + x.code.String(); !strings.Contains(text, evidence) {
		t.Errorf("rnic ps --errors does not tell of a %s:\n%s", evidence, text)
	}
	for i, name := range counters {
		if name != "" && v.machine.counts(t, name) != counts[i]+1 {
			t.Errorf("%s was %d and is %d", name, counts[i], v.machine.counts(t, name))
		}
	}
	v.talk(t)
}

// checkEnded wants the receive of a connection to have failed, once, and its queue pair in ERR.
func (v *victim) checkEnded(t *testing.T, conn *rdmacm.Conn) {
	t.Helper()
	wc := v.completion(t, conn)
	if allowed := []verbs.WCStatus{
		verbs.WCWRFlushErr, verbs.WCLocLenErr,
	}; wc.ID != 1 || !slices.Contains(allowed, wc.Status) {
		t.Errorf("the receive: %+v (%v)", wc, wc.Status)
	}
	until(t, "the queue pair is in ERR", func() bool {
		return conn.QP().State() == verbs.QPStateError
	})
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Error("the program is not told")
	}
}
