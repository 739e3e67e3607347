package iwarp

import (
	"testing"

	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// fpdusOf sends n bytes from a to b and returns the FPDUs that a sent.
func fpdusOf(w *world, n int) [][]byte {
	w.t.Helper()
	var all []byte
	w.trace = func(from *node, b []byte) {
		if from == w.a {
			all = append(all, b...)
		}
	}
	w.a.post(w.now, remote(wqeOf(rdma.WRWrite, 1), w.b, 0), w.a.at(0, n))
	w.settle()
	wantStatus(w.t, w.a.sends.take(), rdma.WCSuccess)
	var out [][]byte
	for len(all) > 0 {
		ulpdu, _ := iwarp.ParseULPDULen(all)
		k := iwarp.FPDULen(ulpdu)
		out, all = append(out, all[:k]), all[k:]
	}
	return out
}

func TestConn_KeepLocal_LargeFPDUsWithoutCRC(t *testing.T) {
	c := worldConfig{local: true}
	c.a.conn = ConnConfig{CRC: true, FPDU: FPDUMSS}
	c.b.conn = ConnConfig{FPDU: FPDUMSS}
	w := connected(t, c)
	fpdus := fpdusOf(w, 64<<10)
	if len(fpdus) != 2 {
		t.Errorf("%d FPDUs", len(fpdus))
	}
	for i, b := range fpdus {
		if crc, _ := iwarp.ParseCRC(b[len(b)-iwarp.CRCLen:]); crc != 0 {
			t.Errorf("FPDU %d has a CRC", i)
		}
	}
	for _, n := range []*node{w.a, w.b} {
		if s := n.c.Stats(); !s.CRC || s.FPDUMax < 60_000 {
			t.Errorf("%s: %+v", n.name, s)
		}
	}
}

func TestConn_KeepLocal_WithMarkers_IsAsOnAWire(t *testing.T) {
	c := worldConfig{local: true}
	c.a.conn, c.b.conn = ConnConfig{CRC: true}, ConnConfig{Markers: true}
	w := connected(t, c)
	if !w.a.c.tx.hasCRC || !w.b.c.tx.hasCRC || !w.b.c.rx.hasMarkers || !w.a.c.tx.hasMarkers {
		t.Error("no CRC, or no markers")
	}
}

func TestConn_KeepLocal_AfterSetup_ChangesNothing(t *testing.T) {
	var c worldConfig
	c.a.conn = ConnConfig{CRC: true}
	w := connected(t, c)
	w.a.c.KeepLocal()
	w.b.c.KeepLocal()
	for i, b := range fpdusOf(w, 5000) {
		body := b[:len(b)-iwarp.CRCLen]
		if crc, _ := iwarp.ParseCRC(b[len(body):]); crc != iwarp.UpdateCRC(0, body) {
			t.Errorf("FPDU %d: CRC %#x", i, crc)
		}
	}
}

// TestConn_Fill_OutlivesThePeersCalls gives the pieces of one connection to another that shares its
// buffers, before HandleSent: as between two queue pairs of one NIC.
func TestConn_Fill_OutlivesThePeersCalls(t *testing.T) {
	pool := NewBuffers()
	c := worldConfig{local: true}
	c.a.conn = ConnConfig{Buffers: pool, CRC: true}
	c.b.conn = ConnConfig{Buffers: pool, Markers: true}
	w := connected(t, c)
	pattern(w.a.mem, 1)
	var v work.Vector
	for i := range 40 {
		n := 1 + i*1777
		w.b.receive(uint64(i), w.b.at(0, n))
		w.a.post(w.now, wqeOf(rdma.WRSend, uint64(i)), w.a.at(i, n))
		w.b.post(w.now, remote(wqeOf(rdma.WRWrite, 1), w.a, 500_000), w.b.at(500_000, 3000))
		for w.a.c.HasWork() && w.a.c.Fill(w.now, &v) {
			for _, b := range v.Pieces {
				w.b.c.HandleStream(w.now, b)
			}
			w.a.c.HandleSent(w.now, v.Bytes)
		}
		wantStatus(t, w.b.recvs.take(), rdma.WCSuccess)
		for j := range n {
			if w.b.mem[j] != w.a.mem[i+j] {
				t.Fatalf("message of %d bytes differs at %d", n, j)
			}
		}
		w.settle()
	}
}
