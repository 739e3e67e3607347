package sim

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// The stranger is a host that hears everything and says what it has heard again, or something like
// it, from an address of its own: whatever it knows, it has no part in connections of others.
var strangerGID = rdma.GIDFromAddr(netip.AddrFrom4([4]byte{192, 0, 2, 99}))

// strangerMemory bounds what it remembers.
const strangerMemory = 64

// eavesdrop remembers a message.
func (b *board) eavesdrop(p *ib.Headers, payload []byte) {
	if b.plan.stranger == 0 {
		return
	}
	if len(b.heard) >= strangerMemory {
		b.heard = slices.Delete(b.heard, 0, 1)
	}
	b.heard = append(b.heard, ibt.Packet{Headers: *p, Payload: slices.Clone(payload)})
}

// harass lets it speak from time to time.
func (w *World) harass() {
	gap := w.board.plan.stranger
	w.at(w.now.Add(w.delay(gap/2, 2*gap)), func() {
		if w.isCalm {
			return
		}
		w.meddle(w.hosts[w.between(0, len(w.hosts)-1)])
		w.harass()
	})
}

// meddle sends a host one message.
func (w *World) meddle(to *host) {
	if to.isDown || len(w.board.heard) == 0 {
		return
	}
	p := w.board.heard[w.between(0, len(w.board.heard)-1)]
	p.Payload = slices.Clone(p.Payload)
	w.forge(p.Payload)
	p.Address = ibt.Address{
		SGID: strangerGID, DGID: to.gids[0], HopLimit: 1, Port: 1, Flow: uint16(w.random.Uint32()),
	}
	w.mark("call.stranger")
	w.trace.note(w.now, "%s: hears a stranger", to.name)
	to.nic.HandlePacket(w.now, &p)
	to.turnSoon()
}

// forge makes another message out of one. A request is aimed at what nobody serves: that it could
// be made by anybody is no secret.
func (w *World) forge(b []byte) {
	const attribute = 16
	answers := []mad.Attribute{
		mad.AttributeMRA, mad.AttributeREJ, mad.AttributeREP, mad.AttributeRTU, mad.AttributeDREQ,
		mad.AttributeDREP, mad.AttributeSIDRREP, mad.AttributeLAP, mad.AttributeAPR,
	}
	data := b[mad.HeaderLen:]
	switch w.between(0, 3) {
	case 0:
	case 1: // the same IDs in another message, from either side
		a := answers[w.between(0, len(answers)-1)]
		binary.BigEndian.PutUint16(b[attribute:], uint16(a))
		if w.chance(0.5) {
			first := [4]byte(data[:4])
			copy(data[:4], data[4:8])
			copy(data[4:8], first[:])
		}
	case 2: // noise in the message
		for range w.between(1, 40) {
			data[w.between(0, len(data)-1)] = byte(w.random.Uint32())
		}
	case 3: // noise anywhere
		for range w.between(1, 40) {
			b[w.between(0, len(b)-1)] = byte(w.random.Uint32())
		}
	}
	const service = mad.HeaderLen + 8
	switch mad.Attribute(binary.BigEndian.Uint16(b[attribute:])) {
	case mad.AttributeREQ, mad.AttributeSIDRREQ:
		binary.BigEndian.PutUint64(b[service:], 0xbad)
	default:
	}
}
