package conformance

import (
	"bytes"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// Tags is an end whose receives come from a queue that matches tags.
type Tags interface {
	AddTag(b verbs.TagBuffer, op verbs.TagOp) (verbs.TagHandle, error)
	DeleteTag(h verbs.TagHandle, op verbs.TagOp) error
	SyncTags(op verbs.TagOp) error
}

// tagCase sends from a to buffers of b.
type tagCase struct {
	a, b     End
	tags     Tags
	from, to Region
	fin      Region
	next     uint64
}

const tagBytes = 200 << 10

// runTags matches messages of every protocol and many sizes in both kinds of memory, then loses
// step and finds it again.
func runTags(t *testing.T, f Fabric) {
	require(t, f, FeatureTags)
	for _, kind := range []Kind{KindProcess, KindMapped} {
		t.Run(string(kind), func(t *testing.T) {
			if kind == KindMapped {
				require(t, f, FeatureMappedMemory)
			}
			a, b := f.Connect(t, Link{Type: verbs.QPTypeRC, B: EndConfig{UseTags: true}})
			c := tagCase{a: a, b: b, tags: b.(Tags)}
			c.from = a.Region(t, RegionConfig{
				Size: tagBytes, Kind: kind, Access: verbs.AccessLocalWrite | verbs.AccessRemoteRead,
			})
			c.to = b.Region(t, RegionConfig{
				Size: tagBytes, Kind: kind, Access: verbs.AccessLocalWrite,
			})
			c.fin = a.Region(t, RegionConfig{Size: 64, Kind: kind, Access: verbs.AccessLocalWrite})
			mtu := f.MTU()
			for _, n := range []int{0, 1, mtu - 17, mtu - 16, mtu - 15, 3 * mtu, 150000} {
				c.eager(t, n)
				c.rendezvous(t, n)
			}
			c.unexpected(t)
		})
	}
}

// add posts a buffer for the next message and returns its tag.
func (c *tagCase) add(t *testing.T, n int, op verbs.TagOp) uint64 {
	t.Helper()
	c.next++
	b := verbs.TagBuffer{ID: c.next, Tag: c.next, Mask: 0xffff}
	if n > 1 { // in two pieces
		b.SGE = []verbs.SGE{c.to.Piece(0, n/2), c.to.Piece(n/2, n-n/2)}
	} else if n > 0 {
		b.SGE = []verbs.SGE{c.to.Piece(0, n)}
	}
	if _, err := c.tags.AddTag(b, op); err != nil {
		t.Fatal(err)
	}
	return c.next
}

// send sends a message that begins with head, and n bytes of the region behind them.
func (c *tagCase) send(t *testing.T, head []byte, n int) {
	t.Helper()
	data := c.from.Load()
	copy(data, head)
	c.from.Store(data)
	wr := verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGE: []verbs.SGE{c.from.Piece(0, len(head)+n)},
	}
	if _, err := c.a.Send(wr); err != nil {
		t.Fatal(err)
	}
	if wc := next(t, c.a); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
}

// wants takes a completion at the receiver.
func (c *tagCase) wants(t *testing.T, id uint64, flags verbs.WCFlags) verbs.WC {
	t.Helper()
	wc := next(t, c.b)
	if wc.Err() != nil || wc.ID != id || wc.Opcode != verbs.WCOpTagRecv || wc.Flags&^flags != 0 ||
		wc.Flags == 0 && flags != 0 {
		t.Fatalf("%+v, want %d with flags %#x", wc, id, flags)
	}
	return wc
}

// arrived checks a message of n bytes that is behind the first of the sender's region.
func (c *tagCase) arrived(t *testing.T, what string, first, n int) {
	t.Helper()
	if !bytes.Equal(c.to.Load()[:n], c.from.Load()[first:first+n]) {
		t.Errorf("%s of %d bytes: the data are not what was sent", what, n)
	}
}

const wholeTag = verbs.WCTagMatch | verbs.WCTagDataValid

func (c *tagCase) eager(t *testing.T, n int) {
	t.Helper()
	c.from.Store(pattern(tagBytes, byte(n)))
	c.to.Store(make([]byte, tagBytes))
	tag := c.add(t, n, verbs.TagOp{})
	h := verbs.TagHeader{Opcode: verbs.TagEager, Tag: tag, Context: 99}
	c.send(t, h.Append(nil), n)
	wc := c.wants(t, tag, wholeTag)
	if wc.Flags&verbs.WCTagMatch == 0 || wc.Tag != tag || wc.TagContext != 99 {
		t.Errorf("first completion %+v", wc)
	}
	if wc.Flags != wholeTag { // more than one packet
		wc = c.wants(t, tag, verbs.WCTagDataValid)
	}
	if int(wc.ByteLen) != n {
		t.Errorf("%d bytes of %d", wc.ByteLen, n)
	}
	c.arrived(t, "eager message", verbs.TagHeaderLen, n)
}

func (c *tagCase) rendezvous(t *testing.T, n int) {
	t.Helper()
	const headers = verbs.TagHeaderLen + verbs.RendezvousLen
	c.from.Store(pattern(tagBytes, byte(n+1)))
	c.to.Store(make([]byte, tagBytes))
	c.fin.Store(make([]byte, 64))
	fin := verbs.RecvWR{ID: 500, SGE: []verbs.SGE{c.fin.Piece(0, 64)}}
	if _, err := c.a.Recv(fin); err != nil {
		t.Fatal(err)
	}
	tag := c.add(t, n, verbs.TagOp{})
	h := verbs.TagHeader{Opcode: verbs.TagRendezvous, Tag: tag}
	r := verbs.Rendezvous{VA: c.from.Addr() + 64, RKey: c.from.RKey(), Length: uint32(n)}
	request := r.Append(h.Append(nil))
	data := c.from.Load()
	copy(data, request)
	c.from.Store(data)
	wr := verbs.SendWR{Opcode: verbs.WRSend, SGE: []verbs.SGE{c.from.Piece(0, headers)}}
	if _, err := c.a.Send(wr); err != nil {
		t.Fatal(err)
	}
	c.wants(t, tag, verbs.WCTagMatch)
	if wc := c.wants(t, tag, verbs.WCTagDataValid); int(wc.ByteLen) != n {
		t.Errorf("%d bytes of %d", wc.ByteLen, n)
	}
	c.arrived(t, "rendezvous", 64, n)
	if wc := next(t, c.a); wc.Err() != nil || wc.ID != 500 || wc.ByteLen != headers {
		t.Fatalf("FIN: %+v", wc)
	}
	request[0] = byte(verbs.TagFin)
	if got := c.fin.Load()[:headers]; !bytes.Equal(got, request) {
		t.Errorf("FIN %x, want %x", got, request)
	}
}

// unexpected sends what nobody waits for, and what waits too late.
func (c *tagCase) unexpected(t *testing.T) {
	t.Helper()
	for id := range uint64(2) {
		wr := verbs.RecvWR{ID: 600 + id, SGE: []verbs.SGE{c.to.Piece(int(id)*64, 64)}}
		if _, err := c.b.Recv(wr); err != nil {
			t.Fatal(err)
		}
	}
	early := verbs.TagHeader{Opcode: verbs.TagEager, Tag: c.next + 1}
	c.send(t, early.Append(nil), 8)
	tag := c.add(t, 64, verbs.TagOp{}) // the program does not know of the message yet
	c.send(t, early.Append(nil), 8)
	for id := range uint64(2) {
		if wc := c.wants(t, 600+id, 0); wc.ByteLen != verbs.TagHeaderLen+8 {
			t.Errorf("%+v", wc)
		}
	}
	op := verbs.TagOp{ID: 700, Flags: verbs.TagSignaled | verbs.TagCounted, Unexpected: 2}
	if err := c.tags.SyncTags(op); err != nil {
		t.Fatal(err)
	}
	if wc := next(t, c.b); wc.Err() != nil || wc.Opcode != verbs.WCOpTagSync || wc.Flags != 0 {
		t.Errorf("%+v", wc)
	}
	c.send(t, early.Append(nil), 8)
	c.wants(t, tag, wholeTag)
	h, err := c.tags.AddTag(verbs.TagBuffer{ID: 1}, verbs.TagOp{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCTagErr} {
		op := verbs.TagOp{ID: uint64(800 + i), Flags: verbs.TagSignaled}
		if err := c.tags.DeleteTag(h, op); err != nil {
			t.Fatal(err)
		}
		if wc := next(t, c.b); wc.Status != want || wc.ID != op.ID {
			t.Errorf("%d: %+v", i, wc)
		}
	}
}
