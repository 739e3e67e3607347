package conformance

import (
	"bytes"
	"errors"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// windowRounds is how often a window is bound, used and revoked.
const windowRounds = 20

// windowCase is a window and the two ends: b owns it, a uses it.
type windowCase struct {
	fabric Fabric
	a, b   End
	ra, rb Region
	window Window
	typ    verbs.MWType
	mail   Region // where keys arrive at a, and invalidating messages at b
	post   Region
}

const (
	windowOff   = 512
	windowBytes = 5000
)

// runWindows lends parts of a region by windows. The key goes to the peer by a message posted right
// behind the bind, which the standard orders; each key is dead once it was revoked.
func runWindows(t *testing.T, f Fabric) {
	require(t, f, FeatureWindows)
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		t.Run(typ.String(), func(t *testing.T) {
			a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
			c := windowCase{fabric: f, a: a, b: b, typ: typ}
			c.ra = a.Region(t, RegionConfig{Size: windowBytes, Access: verbs.AccessLocalWrite})
			c.rb = b.Region(t, RegionConfig{
				Size: 8192, Access: verbs.AccessLocalWrite | verbs.AccessMWBind,
			})
			c.mail = a.Region(t, RegionConfig{Size: 8, Access: verbs.AccessLocalWrite})
			c.post = b.Region(t, RegionConfig{Size: 8, Access: verbs.AccessLocalWrite})
			c.window = b.(Windows).Window(t, typ)
			var dead verbs.Key
			for round := range windowRounds {
				dead = c.round(t, round)
			}
			c.write(t, dead, c.rb.Addr()+windowOff)
			wc := next(t, a)
			if isAcked(f) && !errors.Is(wc.Err(), verbs.ErrRemoteAccess) {
				t.Errorf("a write through a revoked window: %v", wc.Err())
			}
			eventually(t, "the queue pair that wrote through a revoked window is in ERR",
				func() bool { return a.State() == verbs.QPStateError })
		})
	}
}

// round lends the window, lets the peer write through it, and revokes it; it returns the dead key.
func (c *windowCase) round(t *testing.T, round int) verbs.Key {
	t.Helper()
	if _, err := c.a.Recv(verbs.RecvWR{ID: 1, SGE: []verbs.SGE{c.mail.Piece(0, 8)}}); err != nil {
		t.Fatal(err)
	}
	bind := c.window.Bind(c.rb, windowOff, windowBytes, verbs.AccessRemoteWrite)
	if _, err := c.b.Send(bind); err != nil {
		t.Fatal(err)
	}
	key := c.window.RKey()
	tell := verbs.SendWR{
		ID: 2, Opcode: verbs.WRSendWithImm, Imm: uint32(key), Flags: verbs.SendSignaled,
		SGE: []verbs.SGE{c.post.Piece(0, 8)},
	}
	if _, err := c.b.Send(tell); err != nil {
		t.Fatal(err)
	}
	told := next(t, c.a)
	if told.Err() != nil || verbs.Key(told.Imm) != key {
		t.Fatalf("completion %+v: %v", told, told.Err())
	}
	data := pattern(windowBytes, byte(round))
	c.ra.Store(data)
	c.write(t, verbs.Key(told.Imm), c.rb.Addr()+windowOff)
	if wc := next(t, c.a); wc.Err() != nil {
		t.Fatalf("a write through a window: %v", wc.Err())
	}
	for _, want := range []verbs.WCOpcode{verbs.WCOpBindMW, verbs.WCOpSend} {
		if wc := next(t, c.b); wc.Err() != nil || wc.Opcode != want {
			t.Fatalf("completion %+v: %v", wc, wc.Err())
		}
	}
	landed(t, c.fabric, "what is written through the window is there", func() bool {
		return bytes.Equal(c.rb.Load()[windowOff:windowOff+windowBytes], data)
	})
	compare(t, "through the window", c.rb.Load()[windowOff:windowOff+windowBytes], data)
	c.revoke(t, key, round)
	return key
}

func (c *windowCase) write(t *testing.T, key verbs.Key, addr uint64) {
	t.Helper()
	_, err := c.a.Send(verbs.SendWR{
		ID: 3, Opcode: verbs.WRWrite, Flags: verbs.SendSignaled,
		SGE: []verbs.SGE{c.ra.Piece(0, windowBytes)}, RemoteAddr: addr, RKey: key,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// revoke takes the key away in one of the ways that there are.
func (c *windowCase) revoke(t *testing.T, key verbs.Key, round int) {
	t.Helper()
	if c.typ == verbs.MWType2 && round%2 == 0 {
		c.letPeerRevoke(t, key)
		return
	}
	wr := c.window.Bind(nil, 0, 0, 0)
	want := verbs.WCOpBindMW
	if c.typ == verbs.MWType2 {
		wr = verbs.SendWR{
			Opcode: verbs.WRLocalInvalidate, Flags: verbs.SendSignaled, InvalidateKey: key,
		}
		want = verbs.WCOpLocalInvalidate
	}
	if _, err := c.b.Send(wr); err != nil {
		t.Fatal(err)
	}
	if wc := next(t, c.b); wc.Err() != nil || wc.Opcode != want {
		t.Fatalf("completion %+v: %v", wc, wc.Err())
	}
}

func (c *windowCase) letPeerRevoke(t *testing.T, key verbs.Key) {
	t.Helper()
	if _, err := c.b.Recv(verbs.RecvWR{ID: 4, SGE: []verbs.SGE{c.post.Piece(0, 8)}}); err != nil {
		t.Fatal(err)
	}
	_, err := c.a.Send(verbs.SendWR{
		Opcode: verbs.WRSendWithInv, Flags: verbs.SendSignaled, InvalidateKey: key,
		SGE: []verbs.SGE{c.mail.Piece(0, 8)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if wc := next(t, c.a); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
	wc := next(t, c.b)
	if wc.Err() != nil || wc.Flags&verbs.WCWithInv == 0 || wc.InvalidatedKey != key {
		t.Fatalf("completion %+v: %v", wc, wc.Err())
	}
}
