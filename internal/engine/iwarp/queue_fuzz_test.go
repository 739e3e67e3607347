package iwarp

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// FuzzQP_Queues lets an application write anything into the queues that it shares with the NIC,
// indices included, while a connection works on them. Whatever it is, nothing panics, no byte
// outside its regions changes at either end, and the connection comes to an end.
func FuzzQP_Queues(f *testing.F) {
	wqe := make([]byte, abi.SendWQEBytes)
	for op := range byte(16) {
		abi.EncodeSendWQE(wqe, &abi.SendWQE{Opcode: op, Flags: 2, NumSGE: 1, RemoteAddr: testBase})
		f.Add(slices.Concat([]byte{1}, wqe), op)
	}
	f.Add([]byte{200, 1, 2, 3}, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, edit byte) {
		w := connected(t, worldConfig{
			a: nodeConfig{bytes: 64 << 10, conn: ConnConfig{CRC: edit&1 != 0}},
			b: nodeConfig{bytes: 64 << 10, conn: ConnConfig{Markers: edit&2 != 0}},
		})
		for _, n := range []*node{w.a, w.b} {
			pattern(n.mem, 1)
		}
		w.b.receive(1, w.b.at(0, 100))
		q := scribbled(w.a)
		for len(b) > 0 && w.a.q.State() == rdma.QPStateRTS {
			b = q.scribble(b, uint32(w.a.region.Key), uint32(w.b.region.Key), edit)
			w.a.q.HandleDoorbell(w.now)
			w.run(1)
		}
		w.a.c.Disconnect(w.now)
		w.settle()
		for _, n := range []*node{w.a, w.b} {
			if !n.c.IsClosed() || n.q.Conn() != nil || n.q.HasWork() {
				t.Fatalf("%s does not end: %v", n.name, n.kinds())
			}
		}
	})
}

// scribbler writes into the send queue of a node as a program could that has no library.
type scribbler struct {
	slots []byte
	prod  func(uint32)
	next  uint32
	geo   ring.Geometry
}

// scribbled gives a node a send queue that a scribbler writes to.
func scribbled(n *node) *scribbler {
	geo := ring.Geometry{Entries: 8, Stride: abi.SQStride(testSGEs, inlineMx)}
	m := make([]byte, 256+geo.Bytes())
	prod, cons := ring.Word(m, 0), ring.Word(m, 128)
	n.q.send.queue = work.NewSendQueue(ring.NewConsumer(m[256:], geo, prod, cons))
	return &scribbler{slots: m[256:], prod: prod.Store, geo: geo}
}

// scribble writes one entry out of b, and an index, and returns the rest of b. Every second time
// the keys are good ones.
func (s *scribbler) scribble(b []byte, lkey, rkey uint32, edit byte) []byte {
	step := b[0]
	b = b[1:]
	slot := s.slots[s.next%s.geo.Entries*s.geo.Stride:][:s.geo.Stride]
	n := copy(slot, b)
	if edit&4 == 0 && n > abi.SendWQEBytes/2 {
		binary.NativeEndian.PutUint32(slot[24:], rkey)
		binary.NativeEndian.PutUint32(slot[abi.SendWQEBytes+12:], lkey)
		binary.NativeEndian.PutUint64(slot[abi.SendWQEBytes:], testBase)
	}
	s.next += uint32(max(1, step/50))
	s.prod(s.next)
	return b[n:]
}
