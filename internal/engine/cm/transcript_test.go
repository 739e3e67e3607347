package cm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/transcripttest"
)

// TestTranscripts runs the scripts in testdata and compares what happens, message by message, with
// what they say:
//
//	> listen b service=7 backlog=2                       and unlisten b
//	> connect a to=b service=7 qpn=5 psn=6 retries=3     a1, a2 … name the connections of a
//	> accept b1 qpn=8 psn=9 private=text
//	> ready a1, > reject b1 reason=28, > delay b1 timeout=22, > established b1, > taken b1
//	> disconnect a1, > release a1
//	> query a to=b service=7, > answer b1 status=0 qpn=8 qkey=9
//	> lose a 2                                           the 2nd message from a, counted from now
//	> double a 1, > stray a 1                            stray: once more a second later
//	> restart a
//	> run 10s, > quiet                                   until nothing happens any more
//	> empty                                              neither node remembers anything
func TestTranscripts(t *testing.T) { transcripttest.Run(t, newPlayer) }

// player runs one script.
type player struct {
	t     *testing.T
	w     *world
	out   *strings.Builder
	fates map[string]map[int]fate // by node: number of the message from now
	count map[string]int
}

func newPlayer(t *testing.T, out *strings.Builder) transcripttest.Player {
	p := &player{
		t: t, w: newWorld(t), out: out, count: map[string]int{},
		fates: map[string]map[int]fate{"a": {}, "b": {}},
	}
	p.w.log = func(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }
	p.w.judge = func(from *node, _ *Message) fate {
		p.count[from.name]++
		return p.fates[from.name][p.count[from.name]]
	}
	return p.do
}

func (p *player) do(args transcripttest.Words) {
	p.t.Helper()
	w := p.w
	switch args[0] {
	case "run":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			p.t.Fatal(err)
		}
		w.run(w.now.Add(d))
		return
	case "quiet":
		w.quiet()
		return
	case "empty":
		checkEmpty(p.t, w.nodes["a"])
		checkEmpty(p.t, w.nodes["b"])
		return
	}
	n := w.nodes[args[1][:1]]
	if n == nil {
		p.t.Fatalf("no node in %q", args)
	}
	refusal := p.doNode(n, args)
	if refusal != nil {
		fmt.Fprintf(p.out, "refused: %v\n", refusal)
	}
	n.drain()
	checkEngine(p.t, n.e)
}

func (p *player) doNode(n *node, args transcripttest.Words) *rdma.Refusal {
	switch service := uint64(args.Number("service", 7)); args[0] {
	case "lose", "double", "stray":
		number, _ := strconv.Atoi(args[2])
		p.fates[n.name][p.count[n.name]+number] = map[string]fate{
			"lose": {lost: true}, "double": {double: true}, "stray": {stray: time.Second},
		}[args[0]]
	case "restart":
		n.restart()
	case "listen":
		return n.e.Listen(service, exact, args.Number("backlog", 0), 1)
	case "unlisten":
		n.e.Unlisten(1)
	case "connect":
		_, refusal := n.e.Connect(p.w.now, &ConnectParams{
			Path: n.path(p.w.nodes[args.Text("to")]), ServiceID: service, PKey: rdma.PKeyDefault,
			LocalQPN: rdma.QPN(args.Number("qpn", 0)), StartPSN: rdma.PSN(args.Number("psn", 0)),
			QPType: rdma.QPType(args.Number("type", int(rdma.QPTypeRC))), PathMTU: rdma.MTU1024,
			RetryCount: 7, RNRRetry: 7, MaxCMRetries: uint8(args.Number("retries", 15)),
			PrivateData: []byte(args.Text("private")),
		})
		return refusal
	case "query":
		_, refusal := n.e.QueryService(p.w.now, &SIDRParams{
			Path: n.path(p.w.nodes[args.Text("to")]), ServiceID: service, PKey: rdma.PKeyDefault,
			MaxCMRetries: uint8(args.Number("retries", 15)), PrivateData: []byte(args.Text("private")),
		})
		return refusal
	default:
		return p.doConn(n, args)
	}
	return nil
}

func (p *player) doConn(n *node, args transcripttest.Words) *rdma.Refusal {
	var id ID
	for found, name := range p.w.names {
		if name == args[1] {
			id = found
		}
	}
	if id == 0 {
		p.t.Fatalf("no connection in %q", args)
	}
	now, private := p.w.now, []byte(args.Text("private"))
	qpn := rdma.QPN(args.Number("qpn", 0))
	switch args[0] {
	case "accept":
		return n.e.Accept(now, id, &AcceptParams{
			QPN: qpn, StartPSN: rdma.PSN(args.Number("psn", 0)), RNRRetry: 7, PrivateData: private,
		})
	case "ready":
		return n.e.Ready(now, id)
	case "reject":
		reason := uint16(args.Number("reason", 28))
		return n.e.Reject(now, id, &RejectParams{Reason: reason, PrivateData: private})
	case "delay":
		return n.e.Delay(now, id, uint8(args.Number("timeout", 20)))
	case "established":
		n.e.Established(now, id)
	case "taken":
		n.e.Taken(id)
	case "disconnect":
		return n.e.Disconnect(now, id, private)
	case "release":
		n.e.Release(now, id)
	case "answer":
		return n.e.AnswerService(now, id, &SIDRAnswer{
			Status: uint8(args.Number("status", 0)), QPN: qpn,
			QKey: rdma.QKey(args.Number("qkey", 0)), PrivateData: private,
		})
	default:
		p.t.Fatalf("no such command: %q", args)
	}
	return nil
}
