package iwarp

import (
	"bytes"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// weather is ways in which the same messages travel.
var weather = []struct {
	name string
	edit func(c *worldConfig)
}{
	{"plain", func(*worldConfig) {}},
	{"crc", func(c *worldConfig) { c.a.conn.CRC = true }},
	{"markers", func(c *worldConfig) { c.a.conn.Markers, c.b.conn.Markers = true, true }},
	{"markers one way, crc", func(c *worldConfig) { c.b.conn.Markers, c.b.conn.CRC = true, true }},
	{"large", func(c *worldConfig) { c.a.conn.FPDU, c.b.conn.FPDU = FPDULarge, FPDULarge }},
	{"mss", func(c *worldConfig) { c.a.conn.FPDU, c.b.conn.FPDU = FPDUMSS, FPDUMSS }},
	{"large, crc, markers", func(c *worldConfig) {
		c.a.conn = ConnConfig{FPDU: FPDULarge, CRC: true, Markers: true}
		c.b.conn = c.a.conn
	}},
	{"revision 1", func(c *worldConfig) { c.a.conn.Revision, c.b.conn.Revision = 1, 1 }},
	{"revision 1 at the responder", func(c *worldConfig) { c.b.conn.Revision = 1 }},
	{"byte by byte", func(c *worldConfig) { c.split = func(int) int { return 1 } }},
	{"seven bytes", func(c *worldConfig) { c.split = func(int) int { return 7 } }},
	{"odd, crc, markers", func(c *worldConfig) {
		c.a.conn.CRC, c.a.conn.Markers, c.b.conn.Markers = true, true, true
		c.split = func(n int) int { return n%1999 + 1 }
	}},
	{"local, crc", func(c *worldConfig) { c.local, c.a.conn.CRC = true, true }},
	{"local, crc, markers one way", func(c *worldConfig) {
		c.local, c.a.conn.CRC, c.b.conn.Markers = true, true, true
	}},
	{"local, process memory", func(c *worldConfig) {
		c.local, c.a.space, c.b.space = true, &space{}, &space{}
	}},
	{"process memory", func(c *worldConfig) { c.a.space, c.b.space = &space{}, &space{} }},
	{"process memory, large", func(c *worldConfig) {
		c.a.space, c.b.space = &space{}, &space{}
		c.a.conn.FPDU = FPDULarge
	}},
}

var sizes = []int{0, 1, 3, 4, 511, 512, 1441, 1442, 1443, 2048, 2049, 5000, 65535, 65536, 200_001}

// TestTransfer_EverySizeInEveryWeather moves messages of each kind and compares every byte.
func TestTransfer_EverySizeInEveryWeather(t *testing.T) {
	for _, x := range weather {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range sizes {
				var c worldConfig
				x.edit(&c)
				if n > 6000 && c.split != nil && c.split(1<<20) < 100 {
					continue
				}
				c.a.all, c.b.all = true, true
				w := connected(t, c)
				transferAll(t, w, n)
			}
		})
	}
}

// transferAll does a SEND, a WRITE and a READ of n bytes in both directions at once.
func transferAll(t *testing.T, w *world, n int) {
	t.Helper()
	const send, write, read, recv, target = 0, 250_000, 500_000, 750_000, 250_000
	for i, x := range []*node{w.a, w.b} {
		pattern(x.mem, byte(3+i))
		x.receive(9, x.at(recv, n/2), x.at(recv+n/2, n-n/2))
	}
	want := [2][]byte{bytes.Clone(w.a.mem), bytes.Clone(w.b.mem)}
	for _, x := range []*node{w.a, w.b} {
		peer := w.b
		if x == w.b {
			peer = w.a
		}
		key := uint32(peer.region.Key)
		x.post(w.now, abi.SendWQE{WRID: 1, Opcode: uint8(rdma.WRSend)},
			x.at(send, n/3), x.at(send+n/3, n-n/3))
		x.post(w.now, abi.SendWQE{
			WRID: 2, Opcode: uint8(rdma.WRWrite), RKey: key, RemoteAddr: testBase + target,
		}, x.at(write, n))
		x.post(w.now, abi.SendWQE{
			WRID: 3, Opcode: uint8(rdma.WRRead), RKey: key, RemoteAddr: testBase + send,
		}, x.at(read, n/4), x.at(read+n/4, n-n/4))
	}
	w.settle()
	for i, x := range []*node{w.a, w.b} {
		own, other := want[i], want[1-i]
		// The WRITE of the peer reads from where this one's lands; both are the sources of WRITEs.
		got := x.sends.take()
		wantStatus(t, got, rdma.WCSuccess, rdma.WCSuccess, rdma.WCSuccess)
		for k := range got {
			if got[k].WRID != uint64(k+1) || got[k].ByteLen != uint32(n) {
				t.Fatalf("completion %d: %+v", k, got[k])
			}
		}
		r := x.recvs.take()
		wantStatus(t, r, rdma.WCSuccess)
		if r[0].ByteLen != uint32(n) || r[0].WRID != 9 {
			t.Fatalf("receive: %+v", r[0])
		}
		copy(own[recv:], other[send:send+n])
		copy(own[read:], other[send:send+n])
		if !bytes.Equal(x.mem[recv:recv+n], own[recv:recv+n]) {
			t.Fatalf("%s: SEND of %d bytes differs", x.name, n)
		}
		if !bytes.Equal(x.mem[read:read+n], own[read:read+n]) {
			t.Fatalf("%s: READ of %d bytes differs", x.name, n)
		}
		if !bytes.Equal(x.mem[recv+n:], own[recv+n:]) || !bytes.Equal(x.mem[:target], own[:target]) {
			t.Fatalf("%s: bytes changed that no message was for", x.name)
		}
	}
}

func TestWrite_EverySize_IsPlaced(t *testing.T) {
	for _, n := range sizes {
		for _, split := range []func(int) int{nil, func(n int) int { return n/2 + 1 }} {
			w := connected(t, worldConfig{split: split})
			pattern(w.a.mem, 1)
			w.a.post(w.now, abi.SendWQE{
				WRID: 5, Opcode: uint8(rdma.WRWrite), Flags: signaled,
				RKey: uint32(w.b.region.Key), RemoteAddr: testBase + 300_000,
			}, w.a.at(100, n))
			w.settle()
			wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
			want := make([]byte, len(w.b.mem))
			copy(want[300_000:], w.a.mem[100:100+n])
			if !bytes.Equal(w.b.mem, want) {
				t.Fatalf("WRITE of %d bytes differs", n)
			}
		}
	}
}
