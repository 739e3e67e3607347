package ibt

import (
	"encoding/binary"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// endless is process memory of any size whose bytes are a function of their address. What is
// written must be what lies at the same offset of the source.
type endless struct {
	t       *testing.T
	base    uint64
	written uint64
}

// value is the 8 bytes at an aligned offset.
func (e *endless) value(off uint64) uint64 { return off * 0x9e3779b97f4a7c15 }

func (e *endless) Read(addr uint64, dst []byte) bool {
	off := addr - e.base
	for i := 0; i+8 <= len(dst); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], e.value(off+uint64(i)))
	}
	return true
}

func (e *endless) IsGone() bool { return false }

func (e *endless) Write(addr uint64, src []byte) bool {
	off := addr - e.base
	if off != e.written {
		e.t.Fatalf("written at %d, expected at %d", off, e.written)
	}
	for _, i := range []int{0, len(src) / 2 &^ 7, len(src) - 8} {
		if got := binary.LittleEndian.Uint64(src[i:]); got != e.value(off+uint64(i)) {
			e.t.Fatalf("wrong bytes at %d", off+uint64(i))
		}
	}
	e.written += uint64(len(src))
	return true
}

// TestTransfer_LongestMessage moves 2^31 bytes in 2^23 packets: half of all PSNs in one message.
func TestTransfer_LongestMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 2 GiB in packets of 256 bytes")
	}
	const length = 1 << 31
	for op, mtu := range map[rdma.WROpcode]rdma.MTU{
		rdma.WRWrite: rdma.MTU256, rdma.WRRead: rdma.MTU1024,
	} {
		w := newWorld(t, worldConfig{edit: func(_ string, a *Attr) { a.PathMTU = mtu }})
		spaces := map[*node]*endless{}
		keys := map[*node]rdma.Key{}
		for _, n := range []*node{w.a, w.b} {
			spaces[n] = &endless{t: t, base: 1 << 32}
			r, refusal := n.table.Register(mem.Config{
				PD: testPD, Access: rdma.AccessLocalWrite | rdma.AccessRemoteAny, Addr: 1 << 32,
				IOVA: 1 << 32, Length: length, Space: spaces[n],
				Segments: []mem.Segment{{Addr: 1 << 32, Length: length}},
			})
			if refusal != nil {
				t.Fatal(refusal)
			}
			keys[n] = r.Key
		}
		wr := abi.SendWQE{
			Opcode: uint8(op), Flags: signaled, RemoteAddr: 1 << 32, RKey: uint32(keys[w.b]),
		}
		w.a.post(0, wr, abi.SGE{Addr: 1 << 32, Length: length, LKey: uint32(keys[w.a])})
		var p Packet
		w.exchange(&p)
		wantStatus(t, w.a.sends.take(), rdma.WCSuccess)
		target := w.b
		if op == rdma.WRRead {
			target = w.a
		}
		if spaces[target].written != length {
			t.Fatalf("%v: %d bytes arrived", op, spaces[target].written)
		}
	}
}
