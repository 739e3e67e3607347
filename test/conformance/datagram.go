package conformance

import (
	"fmt"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// runDatagrams sends datagrams of every size that fits, with and without immediate data. A
// datagram may be lost on a network; one host or a wire in memory loses none.
func runDatagrams(t *testing.T, f Fabric) {
	for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm} {
		t.Run(op.String(), func(t *testing.T) {
			a, b := f.Connect(t, Link{Type: verbs.QPTypeUD})
			room := verbs.GRHBytes + f.MTU() + margin
			ra := a.Region(t, RegionConfig{Size: room, Access: verbs.AccessAll})
			rb := b.Region(t, RegionConfig{Size: room, Access: verbs.AccessAll})
			for id, size := range []int{0, 1, 3, f.MTU() - 1, f.MTU()} {
				d := datagram{op: op, size: size, id: uint64(id), a: a, b: b, ra: ra, rb: rb}
				d.exchange(t)
			}
		})
	}
}

type datagram struct {
	op     verbs.WROpcode
	size   int
	id     uint64
	a, b   End
	ra, rb Region
}

func (d *datagram) exchange(t *testing.T) {
	t.Helper()
	where := fmt.Sprintf("datagram of %d bytes", d.size)
	data, before := pattern(len(d.ra.Load()), 1), pattern(len(d.rb.Load()), 2)
	d.ra.Store(data)
	d.rb.Store(before)
	recv := verbs.RecvWR{ID: d.id + 100, SGE: split(d.rb, 0, verbs.GRHBytes+d.size, 3)}
	if _, err := d.b.Recv(recv); err != nil {
		t.Fatal(err)
	}
	wr := verbs.SendWR{
		ID: d.id, Opcode: d.op, Flags: verbs.SendSignaled, Imm: immValue,
		SGE: split(d.ra, offsetA, d.size, 3),
	}
	d.a.Aim(&wr)
	if _, err := d.a.Send(wr); err != nil {
		t.Fatal(err)
	}
	if wc := next(t, d.a); wc.Err() != nil || wc.ID != d.id || wc.Opcode != verbs.WCOpSend {
		t.Fatalf("%s: %+v: %v", where, wc, wc.Err())
	}
	wc := next(t, d.b)
	hasImm := d.op == verbs.WRSendWithImm
	if wc.Err() != nil || wc.ID != d.id+100 || wc.Opcode != verbs.WCOpRecv ||
		int(wc.ByteLen) != verbs.GRHBytes+d.size || wc.SrcQPN != d.a.QPN() ||
		wc.QPN != d.b.QPN() || wc.Flags&verbs.WCGRH == 0 ||
		hasImm != (wc.Flags&verbs.WCWithImm != 0) || hasImm && wc.Imm != immValue {
		t.Fatalf("%s: received %+v: %v", where, wc, wc.Err())
	}
	got := d.rb.Load()
	payload := got[verbs.GRHBytes:]
	compare(t, where, payload[:d.size], data[offsetA:offsetA+d.size])
	compare(t, where+", beyond", payload[d.size:], before[verbs.GRHBytes+d.size:])
	if version := got[0] >> 4; version != 6 && got[20] != 0x45 {
		t.Errorf("%s: the GRH area begins with % x", where, got[:verbs.GRHBytes])
	}
}

// runWrongQKey sends with a Q_Key that the receiver does not have: the datagram vanishes, and the
// receive stays for the next one.
func runWrongQKey(t *testing.T, f Fabric) {
	a, b := f.Connect(t, Link{Type: verbs.QPTypeUD})
	rb := b.Region(t, RegionConfig{Size: 128, Access: verbs.AccessLocalWrite})
	recv := verbs.RecvWR{ID: 1, SGE: []verbs.SGE{rb.Piece(0, 128)}}
	if _, err := b.Recv(recv); err != nil {
		t.Fatal(err)
	}
	for i, spoil := range []verbs.QKey{0x55, 0} {
		wr := verbs.SendWR{
			ID: uint64(i), Opcode: verbs.WRSend, Inline: []byte{byte(i)}, Flags: verbs.SendSignaled,
		}
		a.Aim(&wr)
		wr.RemoteQKey ^= spoil
		if _, err := a.Send(wr); err != nil {
			t.Fatal(err)
		}
		if wc := next(t, a); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
	}
	if wc := next(t, b); wc.Err() != nil || wc.ID != 1 || rb.Load()[verbs.GRHBytes] != 1 {
		t.Fatalf("%+v holds %d", wc, rb.Load()[verbs.GRHBytes])
	}
	quiet(t, b)
}

// runTooLong sends a datagram that exceeds the path MTU.
func runTooLong(t *testing.T, f Fabric) {
	a, _ := f.Connect(t, Link{Type: verbs.QPTypeUD})
	size := 4096 + 1 // no path MTU is larger
	ra := a.Region(t, RegionConfig{Size: size, Access: verbs.AccessLocalWrite})
	wr := verbs.SendWR{
		ID: 1, Opcode: verbs.WRSend, SGE: []verbs.SGE{ra.Piece(0, size)}, Flags: verbs.SendSignaled,
	}
	a.Aim(&wr)
	if _, err := a.Send(wr); err != nil {
		t.Fatal(err)
	}
	if wc := next(t, a); wc.Status != verbs.WCLocLenErr || wc.ID != 1 {
		t.Fatalf("%+v: %v", wc, wc.Err())
	}
}
