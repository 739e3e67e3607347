package iwarp

import (
	"slices"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// raw is one node whose peer is the test itself.
type raw struct {
	t   testing.TB
	n   *node
	now clock.Time
	out []byte // what the node has sent and message has not taken
	v   work.Vector
}

// heard is an FPDU that the node has sent.
type heard struct {
	header  iwarp.Header
	payload []byte
}

func newRaw(t testing.TB, initiator bool, c nodeConfig) *raw {
	t.Helper()
	if c.params.IRD == 0 && c.params.ORD == 0 {
		c.params.IRD, c.params.ORD = 4, 4
	}
	c.conn.Initiator = initiator
	r := &raw{t: t, n: newNode(t, "b", c)}
	if initiator {
		r.n.c.Request(0, r.n.q, &r.n.params)
	}
	r.drain()
	return r
}

// drain takes what the node has to say.
func (r *raw) drain() {
	r.n.poll(r.now)
	for r.n.c.HasWork() || r.n.q.HasWork() {
		r.n.q.Work(r.now)
		if !r.n.c.HasWork() || !r.n.c.Fill(r.now, &r.v) {
			break
		}
		for _, p := range r.v.Pieces {
			r.out = append(r.out, p...)
		}
		r.n.c.HandleSent(r.now, r.v.Bytes)
	}
	r.n.poll(r.now)
}

// say gives the node bytes.
func (r *raw) say(b []byte) {
	r.n.c.HandleStream(r.now, slices.Clone(b))
	r.drain()
}

// wait lets time pass.
func (r *raw) wait(d time.Duration) {
	r.now = r.now.Add(d)
	if r.n.c.PollTimeout() <= r.now {
		r.n.c.HandleTimeout(r.now)
	}
	r.drain()
}

// frame takes the MPA frame that the node has sent.
func (r *raw) frame() iwarp.Frame {
	r.t.Helper()
	parse := iwarp.ParseReply
	if r.n.c.cfg.Initiator {
		parse = iwarp.ParseRequest
	}
	f, n, err := parse(r.out)
	if err != nil || n == 0 {
		r.t.Fatalf("no MPA frame in %q: %v", r.out, err)
	}
	f.PrivateData = slices.Clone(f.PrivateData)
	r.out = r.out[n:]
	return f
}

// hear takes the FPDUs that the node has sent, without markers and with a CRC of any value.
func (r *raw) hear() []heard {
	r.t.Helper()
	var all []heard
	for len(r.out) > 0 {
		n, ok := iwarp.ParseULPDULen(r.out)
		if !ok || iwarp.FPDULen(n) > len(r.out) {
			r.t.Fatalf("cut FPDU: %x", r.out)
		}
		var x heard
		p, err := x.header.Parse(r.out[iwarp.ULPDULenLen:][:n])
		if err != nil {
			r.t.Fatal(err)
		}
		x.payload = slices.Clone(p)
		all = append(all, x)
		r.out = r.out[iwarp.FPDULen(n):]
	}
	return all
}

// fpdu makes an FPDU with CRC.
func fpdu(h iwarp.Header, payload []byte) []byte {
	return fpduOf(append(h.Append(nil), payload...))
}

// fpduOf makes an FPDU around any ULPDU.
func fpduOf(ulpdu []byte) []byte {
	b := iwarp.AppendULPDULen(nil, len(ulpdu))
	b = append(b, ulpdu...)
	b = iwarp.AppendPad(b, iwarp.PadLen(len(ulpdu)))
	return iwarp.AppendCRC(b, iwarp.UpdateCRC(0, b))
}

func frameBytes(f iwarp.Frame) []byte { return f.Append(nil) }

// request is what a plain initiator asks.
func request(edit func(*iwarp.Frame)) []byte {
	f := iwarp.Frame{Revision: 2, Enhanced: true, Setup: iwarp.Setup{IRD: 2, ORD: 3}}
	if edit != nil {
		edit(&f)
	}
	return frameBytes(f)
}

// responder is a node that a raw initiator has connected to.
func responderNode(t testing.TB, c nodeConfig) *raw {
	t.Helper()
	r := newRaw(t, false, c)
	r.say(request(nil))
	r.frame()
	if r.n.q.State() != rdma.QPStateRTS {
		t.Fatalf("not connected: %v", r.n.events)
	}
	r.n.events = nil
	return r
}

// initiatorNode is a node that has connected to a raw responder.
func initiatorNode(t testing.TB, c nodeConfig) *raw {
	t.Helper()
	r := newRaw(t, true, c)
	r.frame()
	r.say(frameBytes(iwarp.Frame{
		IsReply: true, Revision: 2, Enhanced: true, Setup: iwarp.Setup{IRD: 4, ORD: 4},
		LargeFPDU: true,
	}))
	if r.n.q.State() != rdma.QPStateRTS {
		t.Fatalf("not connected: %v", r.n.events)
	}
	r.n.events = nil
	return r
}

// wantTerminate checks that the node ended the connection with a code, and returns its Terminate.
func (r *raw) wantTerminate(code iwarp.Code) iwarp.Terminate {
	r.t.Helper()
	all := r.hear()
	if len(all) == 0 || all[len(all)-1].header.Opcode != iwarp.OpcodeTerminate {
		r.t.Fatalf("no Terminate: %v, events %v", all, r.n.events)
	}
	var x iwarp.Terminate
	last := all[len(all)-1]
	if err := x.Parse(last.payload); err != nil {
		r.t.Fatal(err)
	}
	if x.Code != code {
		r.t.Fatalf("Terminate %v, want %v", x.Code, code)
	}
	if last.header.MSN != 1 || last.header.MO != 0 || !last.header.Last {
		r.t.Fatalf("Terminate in %v", last.header)
	}
	if e := r.n.end(); e.How != HowTerminateSent || e.Code != code ||
		r.n.c.Closing() != CloseFIN || r.n.q.State() != rdma.QPStateError || r.n.q.Conn() != nil {
		r.t.Fatalf("ended %+v, closing %v, state %v", e, r.n.c.Closing(), r.n.q.State())
	}
	return x
}
