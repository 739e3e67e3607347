package iwarp

import (
	"fmt"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/racetest"
)

// direct moves bytes between two nodes without keeping them.
type direct struct {
	w   *world
	buf []byte
}

// pump runs both ends until neither has anything to send.
func (d *direct) pump() {
	for d.flow(d.w.a, d.w.b) || d.flow(d.w.b, d.w.a) {
	}
}

func (d *direct) flow(from, to *node) bool {
	if !from.c.HasWork() || !from.c.Fill(d.w.now, &d.w.v) {
		return false
	}
	d.buf = d.buf[:0]
	for _, p := range d.w.v.Pieces {
		d.buf = append(d.buf, p...)
	}
	from.c.HandleSent(d.w.now, len(d.buf))
	to.c.HandleStream(d.w.now, d.buf)
	return true
}

// steady is a pair that has warmed up, with completions that nobody keeps.
func steady(tb testing.TB, c worldConfig) *direct {
	tb.Helper()
	w := connected(tb, c)
	for _, n := range []*node{w.a, w.b} {
		n.sends.discard, n.recvs.discard = true, true
	}
	return &direct{w: w, buf: make([]byte, 0, 1<<20)}
}

// message posts a work request at a, and a receive at b if it takes one, and lets it happen.
func (d *direct) message(x abi.SendWQE, receives bool, n int) {
	w := d.w
	if receives {
		w.b.receive(1, w.b.at(0, n))
	}
	w.a.post(w.now, x, w.a.at(0, n))
	d.pump()
}

func TestMessages_AllocateNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, x := range weather {
		var c worldConfig
		x.edit(&c)
		c.split = nil
		d := steady(t, c)
		w := d.w
		for _, y := range []struct {
			op       rdma.WROpcode
			receives bool
			n        int
		}{
			{rdma.WRSend, true, 64},
			{rdma.WRSend, true, 100_000},
			{rdma.WRSendWithImm, true, 5000},
			{rdma.WRWrite, false, 0},
			{rdma.WRWrite, false, 100_000},
			{rdma.WRRead, false, 100_000},
			{rdma.WRFetchAdd, false, 8},
		} {
			q := remote(wqeOf(y.op, 1), w.b, 0)
			for range 300 {
				d.message(q, y.receives, y.n)
			}
			if n := testing.AllocsPerRun(100, func() { d.message(q, y.receives, y.n) }); n != 0 {
				t.Errorf("%s: %v of %d bytes: %v allocations", x.name, y.op, y.n, n)
			}
		}
		if w.a.sends.seen == 0 || w.a.q.State() != rdma.QPStateRTS {
			t.Fatalf("%s: state %v", x.name, w.a.q.State())
		}
	}
}

func TestConn_WithNothingUnderWay_HoldsNoBuffers(t *testing.T) {
	pool := NewBuffers()
	c := worldConfig{
		a: nodeConfig{conn: ConnConfig{Buffers: pool, CRC: true}},
		b: nodeConfig{conn: ConnConfig{Buffers: pool}},
	}
	w := connected(t, c)
	w.b.receive(1, w.b.at(0, 500_000))
	w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 500_000))
	w.split = func(int) int { return 10_007 }
	w.settle()
	wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
	for _, n := range []*node{w.a, w.b} {
		if n.c.tx.filling != nil || n.c.tx.pieces.Len() != 0 || n.c.rx.whole != nil {
			t.Errorf("%s holds buffers", n.name)
		}
	}
	made := len(pool.free)
	w.a.post(w.now, wqeOf(rdma.WRSend, 1), w.a.at(0, 500_000)) // there is no receive
	w.settle()
	w.a.end()
	if len(pool.free) < made {
		t.Errorf("%d buffers are lost", made-len(pool.free))
	}
}

// receiveInPlace receives as much of b as the node wants where it wants it.
func (n *node) receiveInPlace(now clock.Time, b []byte) int {
	count := 0
	for _, s := range n.c.ReceiveSpace() {
		k := copy(s, b)
		b, count = b[k:], count+k
	}
	if count > 0 {
		n.c.HandleReceived(now, count)
	}
	return count
}

// A stream of long FPDUs is received without a copy on the way, in about one call for each, however
// it is cut; with CRC they are put together where it is computed.
func TestReceiveSpace_TakesLongFPDUsInPlace(t *testing.T) {
	for _, crc := range []bool{false, true} {
		for _, op := range []rdma.WROpcode{rdma.WRSend, rdma.WRWrite, rdma.WRRead} {
			for _, cut := range []int{20_000, 65_536, 1 << 20} {
				t.Run(fmt.Sprintf("crc=%v/%v/%d", crc, op, cut), func(t *testing.T) {
					testReceiveSpace(t, ConnConfig{FPDU: FPDULarge, CRC: crc}, op, cut)
				})
			}
		}
	}
}

func testReceiveSpace(t *testing.T, c ConnConfig, op rdma.WROpcode, cut int) {
	const n, messages = 300_000, 3
	w := connected(t, worldConfig{a: nodeConfig{conn: c}, b: nodeConfig{conn: c}})
	pattern(w.a.mem[:n], 1)
	pattern(w.b.mem[:n], 2)
	for i := range uint64(messages) {
		w.b.receive(1, w.b.at(400_000, 70_000), w.b.at(470_000, n-70_000))
		if op == rdma.WRRead {
			w.a.post(w.now, remote(wqeOf(op, i), w.b, 0), w.a.at(400_000, n))
		} else {
			w.a.post(w.now, remote(wqeOf(op, i), w.b, 400_000), w.a.at(0, n))
		}
	}
	inPlace, calls := 0, 0
	for range 1000 {
		w.transmit(0, w.a)
		w.transmit(1, w.b)
		for i, to := range []*node{w.b, w.a} {
			for air := w.air[i][:min(len(w.air[i]), cut)]; len(air) > 0; calls++ {
				k := to.receiveInPlace(w.now, air)
				inPlace += k
				if k == 0 { // as the shell does, no more than it has room for at once
					k = min(len(air), 1000)
					to.c.HandleStream(w.now, air[:k])
				}
				air, w.air[i] = air[k:], w.air[i][k:]
			}
		}
	}
	wantStatus(t, w.a.sends.take(), rdma.WCSuccess, rdma.WCSuccess, rdma.WCSuccess)
	fpdus := int(w.a.c.Stats().FPDUsReceived + w.b.c.Stats().FPDUsReceived)
	if inPlace < messages*n*97/100 || calls > 2*fpdus+messages*n/cut+20 {
		t.Errorf("%d of %d bytes in place, %d calls for %d FPDUs", inPlace, messages*n, calls, fpdus)
	}
	from, to := w.a.mem[:n], w.b.mem[400_000:][:n]
	if op == rdma.WRRead {
		from, to = w.b.mem[:n], w.a.mem[400_000:][:n]
	}
	if string(from) != string(to) {
		t.Error("the bytes differ")
	}
}

func BenchmarkMessage(b *testing.B) {
	for _, c := range []struct {
		name string
		conn ConnConfig
	}{
		{"mss", ConnConfig{FPDU: FPDUMSS}},
		{"large", ConnConfig{FPDU: FPDULarge}},
		{"large,crc", ConnConfig{FPDU: FPDULarge, CRC: true}},
		{"mss,crc", ConnConfig{FPDU: FPDUMSS, CRC: true}},
	} {
		for _, n := range []int{64, 65536} {
			for _, op := range []rdma.WROpcode{rdma.WRSend, rdma.WRWrite, rdma.WRRead} {
				b.Run(fmt.Sprintf("%s/%v/%d", c.name, op, n), func(b *testing.B) {
					d := steady(b, worldConfig{
						a: nodeConfig{conn: c.conn}, b: nodeConfig{conn: c.conn},
					})
					x := remote(wqeOf(op, 1), d.w.b, 0)
					b.SetBytes(int64(n))
					b.ReportAllocs()
					for b.Loop() {
						d.message(x, op == rdma.WRSend, n)
					}
				})
			}
		}
	}
}

// TestVector_IsBounded looks at how much one call hands out.
func TestVector_IsBounded(t *testing.T) {
	w := connected(t, worldConfig{})
	for i := range 200 {
		w.a.write(remote(wqeOf(rdma.WRWrite, uint64(i)), w.b, 0), nil, []abi.SGE{w.a.at(0, 5000)})
	}
	w.a.ring(w.now)
	var v work.Vector
	if !w.a.c.Fill(w.now, &v) || len(v.Pieces) > work.VectorPieces ||
		v.Bytes > work.VectorBytes+chunkBytes {
		t.Errorf("%d pieces, %d bytes", len(v.Pieces), v.Bytes)
	}
	if w.a.c.tx.ahead() > aheadBytes+chunkBytes || w.a.c.tx.pieces.Len() > piecesAhead+2*testSGEs+3 {
		t.Errorf("%d bytes ahead, %d pieces", w.a.c.tx.ahead(), w.a.c.tx.pieces.Len())
	}
	w.run(time.Second)
}
