package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// operation is an operation that moves bytes.
type operation struct {
	opcode verbs.WROpcode
	onUC   bool
	// receives says that the other side gets a completion, of opcode atPeer.
	receives bool
	hasImm   bool
	pulls    bool // the data comes from the other side
	local    verbs.WCOpcode
	atPeer   verbs.WCOpcode
}

var operations = []operation{
	{opcode: verbs.WRSend, onUC: true, receives: true, local: verbs.WCOpSend, atPeer: verbs.WCOpRecv},
	{
		opcode: verbs.WRSendWithImm, onUC: true, receives: true, hasImm: true,
		local: verbs.WCOpSend, atPeer: verbs.WCOpRecv,
	},
	{opcode: verbs.WRWrite, onUC: true, local: verbs.WCOpWrite},
	{
		opcode: verbs.WRWriteWithImm, onUC: true, receives: true, hasImm: true,
		local: verbs.WCOpWrite, atPeer: verbs.WCOpRecvWriteImm,
	},
	{opcode: verbs.WRRead, pulls: true, local: verbs.WCOpRead},
}

// sizes are around every border of segmentation (case T01).
func sizes(mtu int) []int {
	out := []int{0, 1, 2, 3, 4, 5}
	for k := 1; k <= 3; k++ {
		out = append(out, k*mtu-1, k*mtu, k*mtu+1)
	}
	return append(out, 17*mtu+13)
}

// split cuts n bytes of a region into parts of uneven length, an empty one among them.
func split(r Region, off, n, parts int) []verbs.SGE {
	if parts == 1 {
		return []verbs.SGE{r.Piece(off, n)}
	}
	first := n / 3
	return []verbs.SGE{
		r.Piece(off, first), r.Piece(off+first, 0), r.Piece(off+first, n-first),
	}
}

// pattern is memory whose every byte tells where it belongs.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) ^ byte(i>>8) ^ seed
	}
	return b
}

const (
	margin   = 64 // bytes around the data that nobody may touch
	offsetA  = 16
	offsetB  = 24
	immValue = 0x01020304
)

// runOperations moves messages of every size by every operation between every kind of memory.
func runOperations(t *testing.T, f Fabric, service verbs.QPType) {
	kinds := []Kind{KindProcess}
	if f.Lacks(FeatureMappedMemory) == "" {
		kinds = append(kinds, KindMapped)
	}
	for _, op := range operations {
		if service == verbs.QPTypeUC && !op.onUC {
			continue
		}
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("%v/%s", op.opcode, kind), func(t *testing.T) {
				a, b := f.Connect(t, Link{Type: service})
				room := 17*f.MTU() + 13 + margin
				c := RegionConfig{Size: room, Access: verbs.AccessAll, Kind: kind}
				m := mover{fabric: f, op: op, service: service, a: a, b: b}
				m.ra, m.rb = a.Region(t, c), b.Region(t, c)
				for i, size := range sizes(f.MTU()) {
					for _, parts := range []int{1, 3} {
						m.id = uint64(i*10 + parts)
						m.move(t, size, parts)
					}
				}
			})
		}
	}
}

// mover moves messages from a to b, or for READ from b to a.
type mover struct {
	fabric  Fabric
	op      operation
	service verbs.QPType
	a, b    End
	ra, rb  Region
	id      uint64
}

func (m *mover) move(t *testing.T, size, parts int) {
	t.Helper()
	where := fmt.Sprintf("%v of %d bytes in %d parts", m.op.opcode, size, parts)
	beforeA, beforeB := pattern(len(m.ra.Load()), 0x11), pattern(len(m.rb.Load()), 0xee)
	m.ra.Store(beforeA)
	m.rb.Store(beforeB)
	wantA, wantB := slices.Clone(beforeA), slices.Clone(beforeB)
	if m.op.pulls {
		copy(wantA[offsetA:], beforeB[offsetB:offsetB+size])
	} else {
		copy(wantB[offsetB:], beforeA[offsetA:offsetA+size])
	}
	if m.op.receives {
		// A WRITE with immediate data takes a receive, but not its memory.
		recv := verbs.RecvWR{ID: m.id + 1000, SGE: split(m.rb, offsetB, size, parts)}
		if _, err := m.b.Recv(recv); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
	}
	wr := verbs.SendWR{
		ID: m.id, Opcode: m.op.opcode, Flags: verbs.SendSignaled, Imm: immValue,
		SGE:        split(m.ra, offsetA, size, 4-parts),
		RemoteAddr: m.rb.Addr() + offsetB, RKey: m.rb.RKey(),
	}
	if _, err := m.a.Send(wr); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	m.checkLocal(t, where, size)
	if m.op.receives {
		m.checkPeer(t, where, size)
	}
	if m.service == verbs.QPTypeUC || !isAcked(m.fabric) {
		eventually(t, where, func() bool { return bytes.Equal(m.rb.Load(), wantB) })
	}
	compare(t, where+", requester", m.ra.Load(), wantA)
	compare(t, where+", responder", m.rb.Load(), wantB)
	for _, e := range []End{m.a, m.b} {
		if wc, ok := e.Poll(t); ok {
			t.Fatalf("%s: one completion too many: %+v", where, wc)
		}
	}
}

func (m *mover) checkLocal(t *testing.T, where string, size int) {
	t.Helper()
	wc := next(t, m.a)
	if err := wc.Err(); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if wc.ID != m.id || wc.Opcode != m.op.local || wc.QPN != m.a.QPN() {
		t.Fatalf("%s: completion %+v", where, wc)
	}
	if m.op.pulls && int(wc.ByteLen) != size {
		t.Fatalf("%s: byte_len %d", where, wc.ByteLen)
	}
}

func (m *mover) checkPeer(t *testing.T, where string, size int) {
	t.Helper()
	wc := next(t, m.b)
	if err := wc.Err(); err != nil {
		t.Fatalf("%s: receive: %v", where, err)
	}
	if wc.ID != m.id+1000 || wc.Opcode != m.op.atPeer || wc.QPN != m.b.QPN() ||
		int(wc.ByteLen) != size {
		t.Fatalf("%s: receive completion %+v", where, wc)
	}
	if gotImm := wc.Flags&verbs.WCWithImm != 0; gotImm != m.op.hasImm ||
		gotImm && wc.Imm != immValue {
		t.Fatalf("%s: receive flags %#x, immediate %#x", where, wc.Flags, wc.Imm)
	}
}

// compare finds the first byte that differs.
func compare(t *testing.T, where string, got, want []byte) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d of %d is %#x, not %#x", where, i, len(want), got[i], want[i])
		}
	}
}

// runLarge moves one message of many thousand packets, written and read back.
func runLarge(t *testing.T, f Fabric) {
	const size = 5<<20 + 7
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
	ra := a.Region(t, RegionConfig{Size: size, Access: verbs.AccessAll})
	rb := b.Region(t, RegionConfig{Size: size, Access: verbs.AccessAll})
	back := a.Region(t, RegionConfig{Size: size, Access: verbs.AccessLocalWrite})
	want := pattern(size, 0x5a)
	ra.Store(want)
	_, err := a.Send(
		verbs.SendWR{
			ID: 1, Opcode: verbs.WRWrite, SGE: []verbs.SGE{ra.Piece(0, size)},
			RemoteAddr: rb.Addr(), RKey: rb.RKey(),
		},
		verbs.SendWR{
			ID: 2, Opcode: verbs.WRRead, SGE: []verbs.SGE{back.Piece(0, size)},
			RemoteAddr: rb.Addr(), RKey: rb.RKey(), Flags: verbs.SendSignaled,
		})
	if err != nil {
		t.Fatal(err)
	}
	if wc := next(t, a); wc.Err() != nil || wc.ID != 2 || wc.ByteLen != size {
		t.Fatalf("completion %+v: %v", wc, wc.Err())
	}
	compare(t, "written", rb.Load(), want)
	compare(t, "read back", back.Load(), want)
}
