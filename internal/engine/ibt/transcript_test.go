package ibt

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/transcripttest"
)

// TestTranscripts runs the scripts in testdata and compares what happens, packet by packet, with
// what they say:
//
//	> qp mtu=1024 timeout=14 retry=7 rnr=7 rd=4      both ends; the first command
//	> recv b id=1 len=100                            post a receive
//	> post a write id=1 len=3000 flags=fence         post work
//	> lose a 2                                       the 2nd packet from a, counted from now
//	> double a 1, > delay a 1                        likewise
//	> state a ERR                                    a verb
//	> run 10ms                                       let time pass
func TestTranscripts(t *testing.T) { transcripttest.Run(t, newPlayer) }

// player runs one script.
type player struct {
	t     *testing.T
	w     *world
	out   *strings.Builder
	fates map[string]map[int]fate // by node: number of the packet from now
	count map[string]int
}

func newPlayer(t *testing.T, out *strings.Builder) transcripttest.Player {
	p := &player{t: t, out: out, fates: map[string]map[int]fate{}, count: map[string]int{}}
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
	case "qp":
		p.start(args)
	case "recv":
		n := p.node(args[1])
		n.receive(uint64(args.Number("id", 0)), n.at(half, args.Number("len", 0)))
	case "post":
		p.post(args)
	case "lose", "double", "delay":
		k, err := strconv.Atoi(args[2])
		if err != nil {
			p.t.Fatal(err)
		}
		if p.fates[args[1]] == nil {
			p.fates[args[1]] = map[int]fate{}
		}
		f := map[string]fate{"lose": lose, "double": double, "delay": delay}[args[0]]
		p.fates[args[1]][p.count[args[1]]+k] = f
	case "state":
		for s := rdma.QPStateReset; s.IsValid(); s++ {
			if s.String() == args[2] {
				p.node(args[1]).modify(p.w.now, s)
			}
		}
		p.report()
	case "run":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			p.t.Fatal(err)
		}
		end := p.w.now.Add(d)
		p.w.run(d)
		p.w.now = end
		p.report()
	default:
		p.t.Fatalf("unknown command %v", args)
	}
}

func (p *player) start(args transcripttest.Words) {
	p.w = newWorld(p.t, worldConfig{edit: func(_ string, a *Attr) {
		a.PathMTU = rdma.MTUFromBytes(args.Number("mtu", 1024))
		a.Timeout = uint8(args.Number("timeout", 14))
		a.RetryCnt = uint8(args.Number("retry", 7))
		a.RNRRetry = uint8(args.Number("rnr", 7))
		a.MaxRdAtomic = uint8(args.Number("rd", 4))
		a.MaxDestRdAtomic = a.MaxRdAtomic
	}})
	p.w.trace = true
	p.w.judge = func(from *node, _ *Packet) fate {
		p.count[from.name]++
		return p.fates[from.name][p.count[from.name]]
	}
}

func (p *player) post(args transcripttest.Words) {
	n := p.node(args[1])
	other := p.w.b
	if n == p.w.b {
		other = p.w.a
	}
	x := abi.SendWQE{
		WRID: uint64(args.Number("id", 0)), Flags: signaled, ImmOrRKey: 0x01020304, CompareAdd: 1,
		RemoteAddr: testBase + uint64(args.Number("at", 0)), RKey: uint32(other.region.Key),
	}
	if strings.Contains(strings.Join(args, " "), "fence") {
		x.Flags |= uint8(rdma.SendFence)
	}
	found := false
	for op := range operations {
		if operations[op].kind != kindNone && strings.EqualFold(rdma.WROpcode(op).String(), args[2]) {
			x.Opcode, found = uint8(op), true
		}
	}
	if !found {
		p.t.Fatalf("unknown operation %s", args[2])
	}
	n.post(p.w.now, x, n.at(0, args.Number("len", 0)))
}

// report prints what has happened since the last report.
func (p *player) report() {
	for _, l := range p.w.log {
		fmt.Fprintln(p.out, l)
	}
	p.w.log = nil
	for _, n := range []*node{p.w.a, p.w.b} {
		for _, e := range n.sends.take() {
			fmt.Fprintf(p.out, "%s completes send %d: %v\n", n.name, e.WRID, rdma.WCStatus(e.Status))
		}
		for _, e := range n.recvs.take() {
			fmt.Fprintf(p.out, "%s completes receive %d: %v, %d bytes\n",
				n.name, e.WRID, rdma.WCStatus(e.Status), e.ByteLen)
		}
		for _, e := range n.events {
			fmt.Fprintf(p.out, "%s event: %v\n", n.name, e)
		}
		n.events = nil
	}
}
