package iwarp

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// FuzzConn_HandleStream gives a node any bytes, in pieces of any size. The first byte chooses what
// it is: initiator or responder, CRC, markers, whether MPA is already through, and what it does to
// be kind to its peer.
func FuzzConn_HandleStream(f *testing.F) {
	f.Add(byte(0), byte(3), request(nil))
	r := newRaw(f, false, nodeConfig{bytes: 1 << 20})
	for i := range offences {
		f.Add(byte(8+i%8+i%3<<4), byte(i), offences[i].say(r))
	}
	f.Fuzz(func(t *testing.T, flags, size byte, b []byte) {
		c := nodeConfig{
			bytes: 64 << 10, conn: ConnConfig{CRC: flags&2 != 0, Markers: flags&4 != 0},
			params: Params{IRD: 4, ORD: 2},
		}
		if flags&16 != 0 {
			c.conn.Shyness = time.Millisecond
		}
		if flags&32 != 0 {
			c.conn.Patience = time.Millisecond
		}
		var r *raw
		switch isInitiator := flags&1 != 0; {
		case flags&8 == 0:
			r = newRaw(t, isInitiator, c)
		case isInitiator:
			r = initiatorNode(t, c)
		default:
			r = responderNode(t, c)
		}
		outside := r.n.register(testPD+1, rdma.AccessLocalWrite, nil)
		r.n.receive(1, r.n.at(0, 3000))
		r.n.receive(2, r.n.at(3000, 100))
		r.n.post(r.now, remote(wqeOf(rdma.WRRead, 1), r.n, 0), r.n.at(0, 300))
		r.n.post(r.now, wqeOf(rdma.WRSend, 2), r.n.at(0, 3000))
		r.drain()
		for x := range slices.Chunk(b, int(size)+1) {
			// Half of it goes where the engine wants it.
			x = x[r.n.receiveInPlace(r.now, x):]
			r.say(x)
			if flags&64 != 0 {
				r.wait(time.Millisecond)
			}
		}
		r.n.c.HandleEnd(r.now, 0)
		r.drain()
		checkEnd(t, r.n)
		r.n.table.Deregister(outside)
	})
}

// checkEnd checks what holds of a node whose connection is over, however it came to its end.
func checkEnd(t testing.TB, n *node) {
	t.Helper()
	for i := 0; i < 100 && !n.c.IsClosed(); i++ {
		now := n.c.PollTimeout()
		n.c.HandleTimeout(now)
		n.poll(now)
	}
	if !n.c.IsClosed() || n.c.HasWork() || n.q.Conn() != nil {
		t.Fatalf("%s does not end: %v", n.name, n.kinds())
	}
	if k := n.kinds(); slices.Index(k, EventClosed) != len(k)-1 {
		t.Fatalf("%s: events %v", n.name, k)
	}
	if n.q.State() != rdma.QPStateError {
		return // MPA was never through
	}
	if n.q.HasWork() || n.sq.Unreleased() != 0 || n.rq.Unreleased() != 0 {
		t.Fatalf("%s: %d sends and %d receives are not flushed",
			n.name, n.sq.Unreleased(), n.rq.Unreleased())
	}
}

// TestStream_CutAnywhere_MeansTheSame sends the same messages in pieces of any size and compares
// all that is seen of them with what one piece gives.
func TestStream_CutAnywhere_MeansTheSame(t *testing.T) {
	var names []string
	edits := map[string]func(*worldConfig){}
	for _, x := range weather {
		if x.name != "byte by byte" && x.name != "seven bytes" {
			names, edits[x.name] = append(names, x.name), x.edit
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		cutAnywhere(t, rt, edits[rapid.SampledFrom(names).Draw(rt, "weather")])
	})
}

// deed is a work request of a script.
type deed struct {
	fromB bool
	op    rdma.WROpcode
	n, at int
	flags uint8
}

var deedOps = []rdma.WROpcode{
	rdma.WRSend, rdma.WRSendWithImm, rdma.WRWrite, rdma.WRWriteWithImm, rdma.WRRead,
	rdma.WRFetchAdd, rdma.WRCompareSwap,
}

func drawDeeds(rt *rapid.T) []deed {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) deed {
		d := deed{
			fromB: rapid.Bool().Draw(rt, "fromB"), op: rapid.SampledFrom(deedOps).Draw(rt, "op"),
			n:     rapid.SampledFrom([]int{0, 1, 8, 64, 1441, 1442, 5000, 70_000}).Draw(rt, "n"),
			at:    8 * rapid.IntRange(0, 1000).Draw(rt, "at"),
			flags: rapid.Uint8Range(0, 7).Draw(rt, "flags"),
		}
		if d.op == rdma.WRFetchAdd || d.op == rdma.WRCompareSwap {
			d.n = 8
		}
		return d
	}), 1, 12).Draw(rt, "deeds")
}

func cutAnywhere(t *testing.T, rt *rapid.T, edit func(*worldConfig)) {
	deeds := drawDeeds(rt)
	// Small pieces find most; a long one between them keeps it short.
	sizes := rapid.SliceOfN(rapid.IntRange(1, 4000), 1, 20).Draw(rt, "sizes")
	sizes = append(sizes, 20_000)
	play := func(split func(int) int) *world {
		var c worldConfig
		edit(&c)
		c.a.bytes, c.b.bytes, c.split = 400_000, 400_000, split
		w := connected(t, c)
		for _, d := range deeds {
			perform(w, &d)
		}
		w.settle()
		return w
	}
	whole := play(nil)
	i := 0
	cut := play(func(int) int { i++; return sizes[i%len(sizes)] })
	for _, pair := range [][2]*node{{whole.a, cut.a}, {whole.b, cut.b}} {
		x, y := pair[0], pair[1]
		if !bytes.Equal(x.mem, y.mem) {
			rt.Fatalf("%s: memory differs", x.name)
		}
		if !sameCompletions(x.sends.entries, y.sends.entries) ||
			!sameCompletions(x.recvs.entries, y.recvs.entries) {
			rt.Fatalf("%s: completions differ:\n%+v\n%+v", x.name, x.recvs.entries, y.recvs.entries)
		}
		if x.q.State() != rdma.QPStateRTS || y.q.State() != rdma.QPStateRTS {
			rt.Fatalf("%s: states %v, %v", x.name, x.q.State(), y.q.State())
		}
	}
}

// perform does a deed. Both nodes write only where the other does not read, so that the outcome
// does not depend on what overtakes what.
func perform(w *world, d *deed) {
	from, to := w.a, w.b
	if d.fromB {
		from, to = w.b, w.a
	}
	const source, sink, target, receives = 0, 100_000, 200_000, 300_000
	pattern(from.mem[source:source+80_000], from.name[0])
	off := target
	if d.op == rdma.WRRead {
		off = source
	}
	to.receive(1, to.at(receives+d.at, 30_000), to.at(receives+d.at+30_000, 45_000))
	x := remote(wqeOf(d.op, uint64(d.n)), to, off+d.at)
	x.Flags = d.flags | signaled
	x.ImmOrRKey, x.CompareAdd, x.Swap = uint32(d.at), 3, 4
	local := source + d.at
	if !operationOf(uint8(d.op)).isMoving() {
		local = sink + d.at
	}
	from.post(w.now, x, from.at(local, d.n/3), from.at(local+d.n/3, d.n-d.n/3))
}

func sameCompletions(x, y []abi.CQE) bool {
	return slices.EqualFunc(x, y, func(a, b abi.CQE) bool {
		a.Timestamp, b.Timestamp = 0, 0
		return a == b
	})
}

// TestMarks_OfAnEngine_AreWhereTheStandardPutsThem takes the stream of one apart.
func TestMarks_OfAnEngine_AreWhereTheStandardPutsThem(t *testing.T) {
	r := newRaw(t, false, nodeConfig{})
	r.say(request(func(f *iwarp.Frame) { f.Markers = true }))
	r.frame()
	r.wait(1 << 40)
	r.n.post(r.now, remote(wqeOf(rdma.WRWrite, 1), r.n, 0), r.n.at(0, 100_000))
	r.drain()
	b := r.out
	for at := 0; at < len(b); at += iwarp.MarkerInterval {
		m, err := iwarp.ParseMarker(b[at:])
		if err != nil {
			t.Fatal(err)
		}
		start := at - int(m)
		if m == 0 {
			start = at + iwarp.MarkerLen
		}
		n, _ := iwarp.ParseULPDULen(b[start:])
		if n < iwarp.TaggedLen || n > r.n.c.mulpdu || b[start+2]&0x80 == 0 {
			t.Fatalf("marker at %d points to %d, where %x is", at, start, b[start:start+4])
		}
		if end := start + iwarp.FPDULen(n); end-start > r.n.c.cfg.MSS {
			t.Fatalf("an FPDU of %d bytes in segments of %d", end-start, r.n.c.cfg.MSS)
		}
	}
}
