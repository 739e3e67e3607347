package ibt

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// exchange lets the nodes speak in turn, each until it has nothing to say, and returns what was
// said and in how many pieces.
func exchange(w *world, runMax uint32) (said []string, polls int) {
	for isOver := false; !isOver; {
		isOver = true
		for _, n := range []*node{w.a, w.b} {
			to := w.a
			if n == w.a {
				to = w.b
			}
			var packets []Packet
			for p := (Packet{RunMax: runMax}); n.q.PollTransmit(w.now, &p); polls++ {
				packets = append(packets, apart(w.t, &p)...)
			}
			for i := range packets {
				p := &packets[i]
				said = append(said, fmt.Sprintf("%s %s %d %08x", n.name, p.Headers.String(),
					len(p.Payload), crc32.ChecksumIEEE(p.Payload)))
				to.q.HandlePacket(w.now, p)
				isOver = false
			}
		}
	}
	return said, polls
}

// Packets that are polled as one are those that would have been polled one by one.
func TestRun_Packets_AreThoseOfSinglePolls(t *testing.T) {
	const size = 300_000
	var want []string
	var single int
	for _, runMax := range []uint32{0, 1, 2, 7, 62, 1 << 20} {
		w := newWorld(t, worldConfig{bytes: 4 * size})
		pattern(w.a.mem, 1)
		pattern(w.b.mem, 2)
		w.b.receive(1, w.b.at(0, size))
		for i, op := range []rdma.WROpcode{rdma.WRWrite, rdma.WRSend, rdma.WRRead, rdma.WRWrite} {
			length := []int{size, size - 1, size, 2048}[i]
			w.a.post(w.now, abi.SendWQE{
				Opcode: uint8(op), Flags: signaled, RemoteAddr: testBase + 2*size,
				RKey: uint32(w.b.region.Key),
			}, w.a.at(0, length))
		}
		got, polls := exchange(w, runMax)
		for _, e := range w.a.sends.take() {
			if e.Status != 0 {
				t.Fatalf("runs of %d: %+v", runMax, e)
			}
		}
		if runMax == 0 {
			want, single = got, polls
			continue
		}
		if len(got) != len(want) {
			t.Fatalf("runs of %d: %d packets, not %d", runMax, len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("runs of %d: packet %d is %s, not %s", runMax, i, got[i], want[i])
			}
		}
		if runMax >= 62 && polls > single/4 {
			t.Errorf("runs of %d: %d polls for %d packets", runMax, polls, len(got))
		}
	}
}

// Memory that is not in one piece, or not mapped, goes packet by packet.
func TestRun_MemoryInPieces_IsPolledSingly(t *testing.T) {
	const size = 30_000
	w := newWorld(t, worldConfig{bytes: 4 * size})
	pattern(w.a.mem, 1)
	w.a.post(w.now, abi.SendWQE{
		Opcode: uint8(rdma.WRWrite), Flags: signaled, RemoteAddr: testBase + 2*size,
		RKey: uint32(w.b.region.Key),
	}, w.a.at(0, 2500), w.a.at(2500, size-2500))
	exchange(w, 64)
	if e := w.a.sends.take(); len(e) != 1 || e[0].Status != 0 {
		t.Fatalf("%+v", e)
	}
	for i := range size {
		if w.b.mem[2*size+i] != w.a.mem[i] {
			t.Fatalf("byte %d differs", i)
		}
	}
}
