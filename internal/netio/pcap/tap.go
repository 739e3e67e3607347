package pcap

import (
	"slices"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// Taps is the captures that run on the ports of one thread, which alone uses it. While there is
// none, a packet costs one look at the length of a list.
type Taps struct {
	captures []*Capture
	head     []byte // scratch: the headers of one packet
}

// IsOn reports whether any capture runs.
func (t *Taps) IsOn() bool { return len(t.captures) != 0 }

// Len returns how many captures run.
func (t *Taps) Len() int { return len(t.captures) }

// Add lets a capture begin.
func (t *Taps) Add(c *Capture) { t.captures = append(t.captures, c) }

// Remove takes a capture away. One that is not there is gone already.
func (t *Taps) Remove(c *Capture) {
	t.captures = slices.DeleteFunc(t.captures, func(x *Capture) bool { return x == c })
}

// padding is the pad bytes of any packet.
var padding [4]byte

// Local offers a packet that no port carries: between queue pairs of one NIC. Its payload may be
// changed by the application meanwhile, as with any adapter.
func (t *Taps) Local(path *roce.Path, headers *ib.Headers, payload []byte) {
	t.head = headers.Append(t.head[:0])
	t.offer(&packet{
		path: path, head: t.head, rest: payload, pad: padding[:headers.BTH.PadCount&3],
	})
}

func (t *Taps) offer(p *packet) {
	length := p.len()
	if !p.sealed {
		length += roce.ICRCLen
	}
	if !canHold(p.path, length) {
		return
	}
	for i := 0; i < len(t.captures); {
		if c := t.captures[i]; c.offer(p) {
			i++
		} else {
			t.Remove(c)
		}
	}
}

// Tap is a port that captures can listen to while it works. It belongs directly on the port that
// owns the sockets.
type Tap struct {
	netio.Port // the port below
	taps       *Taps
	sendOnly   bool
	// Skip, when not nil, names packets that another tap shows.
	Skip func(path *roce.Path) bool
}

var _ netio.Port = (*Tap)(nil)

// NewTap decorates a port. sendOnly leaves out what is received, for a port that hears itself.
func NewTap(below netio.Port, taps *Taps, sendOnly bool) *Tap {
	return &Tap{Port: below, taps: taps, sendOnly: sendOnly}
}

// Send implements netio.Port.
func (t *Tap) Send(batch []netio.Datagram) (int, error) {
	sent, err := t.Port.Send(batch)
	if !t.taps.IsOn() {
		return sent, err
	}
	for i := range batch[:sent] {
		d := &batch[i]
		if t.Skip != nil && t.Skip(&d.Path) {
			continue
		}
		if n := len(d.Buf); cap(d.Buf)-n >= netio.TrailerBytes { // else refused: no packet
			t.taps.offer(&packet{
				path: &d.Path, head: d.Buf[:n+netio.TrailerBytes], way: Outbound, sealed: true,
			})
		}
	}
	return sent, err
}

// Receive implements netio.Port. The ICRC is made to fit the identification that the port
// assumed, as the package comment says.
func (t *Tap) Receive(batch []netio.Datagram) (int, error) {
	n, err := t.Port.Receive(batch)
	if !t.taps.IsOn() || t.sendOnly {
		return n, err
	}
	for i := range batch[:n] {
		d := &batch[i]
		t.taps.offer(&packet{path: &d.Path, head: d.Buf, way: Inbound})
	}
	return n, err
}
