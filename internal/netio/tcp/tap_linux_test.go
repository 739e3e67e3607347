package tcp

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"
)

// recorder is a tap that writes down what it is shown.
type recorder struct {
	on    bool
	lines []string
	sent  []byte
	got   []byte
	flow  Flow
}

func (r *recorder) IsOn() bool { return r.on }

func (r *recorder) note(f *Flow, what string) {
	r.flow = *f
	r.lines = append(r.lines, fmt.Sprintf("%d %s", f.ID, what))
}

func (r *recorder) StreamOpened(f *Flow) { r.note(f, "opened") }

func (r *recorder) StreamEnded(f *Flow, how End) { r.note(f, fmt.Sprintf("ended %d", how)) }

func (r *recorder) StreamFailed(f *Flow, isRefused bool) {
	r.note(f, fmt.Sprintf("failed %v", isRefused))
}

func (r *recorder) StreamSent(f *Flow, pieces [][]byte, n int) {
	r.note(f, fmt.Sprintf("sent at %d", f.Sent))
	r.sent = append(r.sent, bytes.Join(pieces, nil)[:n]...)
}

func (r *recorder) StreamReceived(f *Flow, pieces [][]byte, n int) {
	r.note(f, fmt.Sprintf("received at %d", f.Received))
	r.got = append(r.got, bytes.Join(pieces, nil)[:n]...)
}

func TestPort_Tap_IsShownAllThatPasses(t *testing.T) {
	r := &recorder{on: true}
	h := newHost(t, Config{Tap: r, Linger: 30 * time.Millisecond})
	c, id, s := dialled(t, h)
	s.space = make([]byte, 300)
	there, back := pattern(1000, 1), pattern(12_000, 2)
	if _, err := c.Write(there); err != nil {
		t.Fatal(err)
	}
	until(t, "received", func() bool { return s.received == len(there) }, h)
	s.out = bytes.Clone(back)
	until(t, "sent", func() bool { return len(s.out) == 0 }, h)
	f := r.flow
	if !bytes.Equal(r.got, there) || !bytes.Equal(r.sent, back) || f.Twin || f.Active ||
		f.Local != s.accepted.Local || f.Remote != s.accepted.Remote {
		t.Errorf("%d and %d bytes of %+v", len(r.got), len(r.sent), f)
	}
	h.port.Close(id)
	until(t, "given up", func() bool { return h.port.Census().Lingering == 0 }, h)
	want := []string{
		"1001 opened", "1001 received at 0", "1001 received at 300", "1001 sent at 0",
		"1001 ended 0", fmt.Sprintf("1001 ended %d", Forgotten),
	}
	if !slices.Equal(r.lines, want) {
		t.Errorf("%q, want %q", r.lines, want)
	}
	if f := r.flow; f.Sent != 12_000 || f.Received != 1000 ||
		!bytes.Equal(f.FirstSent[:], back[:FirstBytes]) ||
		!bytes.Equal(f.FirstReceived[:], there[:FirstBytes]) {
		t.Errorf("%+v", f)
	}
}

func TestPort_Tap_BothEndsHere_KnowEachOther(t *testing.T) {
	r := &recorder{}
	h := newHost(t, Config{Tap: r})
	at := h.listen(lo4)
	c := h.connect(7, at)
	until(t, "connected", func() bool { return c.connected != nil && h.lastID != 1000 }, h)
	if len(r.lines) != 0 {
		t.Errorf("shown to a tap that does not listen: %q", r.lines)
	}
	r.on = true
	c.out = []byte("hello")
	id, s := h.latest()
	until(t, "received", func() bool { return string(s.in) == "hello" }, h)
	if f := r.flow; f.ID != id || !f.Twin || f.TwinID != 7 {
		t.Errorf("%+v", f)
	}
	h.port.Abort(7)
	until(t, "reset", func() bool { return s.ended }, h)
	want := []string{
		"7 sent at 0", fmt.Sprintf("%d received at 0", id), fmt.Sprintf("7 ended %d", ResetSent),
		fmt.Sprintf("%d ended %d", id, ResetReceived),
	}
	if !slices.Equal(r.lines, want) || len(h.port.ends) != 0 {
		t.Errorf("%q, want %q", r.lines, want)
	}
}

func TestPort_Tap_RefusedConnection_IsShown(t *testing.T) {
	r := &recorder{on: true}
	h := newHost(t, Config{Tap: r})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	_ = l.Close()
	s := h.connect(3, at)
	until(t, "the outcome", func() bool { return s.connected != nil }, h)
	if !slices.Equal(r.lines, []string{"3 failed true"}) || r.flow.Remote != at ||
		!r.flow.Local.IsValid() {
		t.Errorf("%q of %+v", r.lines, r.flow)
	}
}
