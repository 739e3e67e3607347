package iwarp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
	"github.com/softrnic/softrnic/test/transcripttest"
)

// TestTranscripts runs the scripts in testdata and compares what happens, FPDU by FPDU, with what
// they say:
//
//	> connect rtr=write ird=4 ord=4 rev=2 crc markers=ab fpdu=large refuse    the first command
//	> recv b id=1 len=100               post a receive
//	> post a write id=1 len=3000 fence  post work
//	> hold a, > release a               keep what a sends on the way
//	> disconnect a, > end a             in order, and by a reset
//	> state a ERR                       a verb
//	> revoke a                          deregister its memory
//	> run 10ms                          let time pass
func TestTranscripts(t *testing.T) { transcripttest.Run(t, newPlayer) }

// player runs one script.
type player struct {
	t    *testing.T
	w    *world
	out  *strings.Builder
	rest map[*node][]byte // of what each has sent: less than a frame
	open map[*node]bool   // its MPA frame was seen
}

func newPlayer(t *testing.T, out *strings.Builder) transcripttest.Player {
	p := &player{t: t, out: out, rest: map[*node][]byte{}, open: map[*node]bool{}}
	return p.command
}

func (p *player) node(name string) *node {
	if name == "b" {
		return p.w.b
	}
	return p.w.a
}

func (p *player) command(args transcripttest.Words) {
	p.t.Helper()
	switch args[0] {
	case "connect":
		p.connect(args)
	case "recv":
		n := p.node(args[1])
		n.receive(uint64(args.Number("id", 0)), n.at(1<<19, args.Number("len", 0)))
	case "post":
		p.post(args)
	case "hold", "release":
		p.w.hold[strings.Index("ab", args[1])] = args[0] == "hold"
	case "disconnect":
		p.node(args[1]).c.Disconnect(p.w.now)
	case "end":
		p.node(args[1]).c.HandleEnd(p.w.now, 104)
	case "state":
		for s := rdma.QPStateReset; s.IsValid(); s++ {
			if s.String() == args[2] {
				p.node(args[1]).q.Modify(p.w.now, &Attr{}, 0, s)
			}
		}
	case "revoke":
		n := p.node(args[1])
		n.table.Deregister(n.region)
	case "run":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			p.t.Fatal(err)
		}
		p.w.run(d)
		p.report()
	default:
		p.t.Fatalf("unknown command %v", args)
	}
}

func (p *player) connect(args transcripttest.Words) {
	all := " " + strings.Join(args, " ") + " "
	conn := func(name string) ConnConfig {
		return ConnConfig{
			CRC:      strings.Contains(all, " crc "),
			Markers:  strings.Contains(args.Text("markers"), name),
			Revision: uint8(args.Number("rev", 2)),
			FPDU:     map[string]FPDUPolicy{"": FPDUMSS, "large": FPDULarge}[args.Text("fpdu")],
		}
	}
	params := Params{
		IRD: uint16(args.Number("ird", 4)), ORD: uint16(args.Number("ord", 4)),
		PrivateData: []byte(args.Text("private")),
		RTR: map[string]RTR{
			"write": RTRWrite, "read": RTRRead, "send": RTRSend, "any": RTRAny,
		}[args.Text("rtr")],
	}
	answer := params
	answer.RTR, answer.PrivateData = RTRAny, nil
	p.w = newWorld(p.t, worldConfig{
		a: nodeConfig{conn: conn("a"), params: params}, b: nodeConfig{conn: conn("b"), params: answer},
	})
	p.w.b.refuses = strings.Contains(all, " refuse ")
	p.w.trace = p.trace
	p.w.a.c.Request(0, p.w.a.q, &p.w.a.params)
}

func (p *player) post(args transcripttest.Words) {
	n := p.node(args[1])
	other := p.w.b
	if n == p.w.b {
		other = p.w.a
	}
	x := remote(wqeOf(0, uint64(args.Number("id", 0))), other, args.Number("at", 0))
	x.ImmOrRKey, x.CompareAdd = 0x01020304, 1
	if args[len(args)-1] == "fence" {
		x.Flags |= uint8(rdma.SendFence)
	}
	found := false
	for op := range operations {
		name := rdma.WROpcode(op).String()
		if operations[op].kind != kindNone && strings.EqualFold(name, args[2]) {
			x.Opcode, found = uint8(op), true
		}
	}
	if !found {
		p.t.Fatalf("unknown operation %s", args[2])
	}
	n.post(p.w.now, x, n.at(0, args.Number("len", 0)))
}

// trace prints what a node sends as soon as it is whole.
func (p *player) trace(n *node, b []byte) {
	b = append(p.rest[n], b...)
	for len(b) > 0 {
		k := 0
		if p.open[n] {
			k = p.traceFPDU(n, b)
		} else {
			k = p.traceFrame(n, b)
		}
		if k == 0 {
			break
		}
		b = b[k:]
	}
	p.rest[n] = b
}

func (p *player) say(n *node, format string, args ...any) {
	fmt.Fprintf(p.out, "%8.3fms %s: %s\n", float64(p.w.now)/1e6, n.name, fmt.Sprintf(format, args...))
}

func (p *player) traceFrame(n *node, b []byte) int {
	parse := iwarp.ParseReply
	if n == p.w.a {
		parse = iwarp.ParseRequest
	}
	f, k, err := parse(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if k > 0 {
		p.open[n] = true
		p.say(n, "%v", f)
	}
	return k
}

func (p *player) traceFPDU(n *node, b []byte) int {
	// The transmitter's marks have moved on; a receiver of its own knows where they are.
	if n.c.tx.hasMarkers {
		p.say(n, "%d bytes with markers", len(b))
		return len(b)
	}
	size, ok := iwarp.ParseULPDULen(b)
	if !ok || iwarp.FPDULen(size) > len(b) {
		return 0
	}
	var h iwarp.Header
	payload, err := h.Parse(b[iwarp.ULPDULenLen:][:size])
	if err != nil {
		p.t.Fatal(err)
	}
	crc := ""
	if n.c.tx.hasCRC && iwarp.IsCRCGood(b[:iwarp.FPDULen(size)]) {
		crc = " crc"
	}
	p.say(n, "%v len=%d%s%s", h, len(payload), content(h.Opcode, payload), crc)
	return iwarp.FPDULen(size)
}

// content prints what a message that has a layout says.
func content(op iwarp.Opcode, b []byte) string {
	var x fmt.Stringer
	switch op.Info().Kind {
	case iwarp.KindReadRequest:
		x, _ = iwarp.ParseReadRequest(b)
	case iwarp.KindAtomicRequest:
		x, _ = iwarp.ParseAtomicRequest(b)
	case iwarp.KindAtomicResponse:
		x, _ = iwarp.ParseAtomicResponse(b)
	case iwarp.KindImmediate:
		x, _ = iwarp.ParseImmediate(b)
	case iwarp.KindTerminate:
		var t iwarp.Terminate
		_ = t.Parse(b)
		x = t
	default:
		return ""
	}
	return " " + x.String()
}

// report prints what has happened since the last report.
func (p *player) report() {
	for _, n := range []*node{p.w.a, p.w.b} {
		for _, e := range n.sends.take() {
			fmt.Fprintf(p.out, "%s completes send %d: %v\n", n.name, e.WRID, rdma.WCStatus(e.Status))
		}
		for _, e := range n.recvs.take() {
			fmt.Fprintf(p.out, "%s completes receive %d: %v, %d bytes\n",
				n.name, e.WRID, rdma.WCStatus(e.Status), e.ByteLen)
		}
		for _, e := range n.raised {
			fmt.Fprintf(p.out, "%s event: %v\n", n.name, e)
		}
		for i, e := range n.events {
			fmt.Fprintf(p.out, "%s connection: %v", n.name, e.Kind)
			switch e.Kind {
			case EventClosed:
				fmt.Fprintf(p.out, ", %v, state %v", e.End.How, n.q.State())
			case EventReply, EventEstablished, EventRequest:
				fmt.Fprintf(p.out, " ird=%d ord=%d private=%q", e.IRD, e.ORD, n.private[i])
			case EventRejected, EventNone:
			}
			fmt.Fprintln(p.out)
		}
		n.raised, n.events, n.private = nil, nil, nil
	}
}
