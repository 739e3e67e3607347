package sim

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// commKey names a connection by what a host calls it.
type commKey struct {
	host int
	id   mad.CommID
}

// overhear follows what communication managers say to each other, as a third party.
func (b *board) overhear(from, to *host, h *ib.Headers, payload []byte, isArrived bool) {
	if h.BTH.DestQPN != rdma.QPNGSI || h.BTH.Opcode != ib.UDSendOnly {
		return
	}
	m, err := mad.ParseHeader(payload)
	if err != nil || m.Class != mad.ClassCM {
		b.world.court.Failf("%s sends QP1 what is no MAD of a communication manager", from.name)
		return
	}
	text := understand(m.Attribute, payload[mad.HeaderLen:mad.Len])
	if text == nil {
		b.world.court.Failf("%s sends a MAD with attribute %v", from.name, m.Attribute)
		return
	}
	if isArrived {
		b.world.trace.note(b.world.now, "%s: hears %v", to.name, text)
		b.heardBy(to, text)
		return
	}
	b.world.trace.note(b.world.now, "%s: says %v", from.name, text)
	b.eavesdrop(h, payload)
	b.said(from, text)
}

// body is the content of a message.
type body interface {
	fmt.Stringer
	Parse(b []byte) error
}

// understand reads a message of a communication manager.
func understand(what mad.Attribute, data []byte) body {
	text := map[mad.Attribute]body{
		mad.AttributeREQ: &mad.REQ{}, mad.AttributeMRA: &mad.MRA{}, mad.AttributeREJ: &mad.REJ{},
		mad.AttributeREP: &mad.REP{}, mad.AttributeRTU: &mad.RTU{}, mad.AttributeDREQ: &mad.DREQ{},
		mad.AttributeDREP: &mad.DREP{}, mad.AttributeSIDRREQ: &mad.SIDRREQ{},
		mad.AttributeSIDRREP: &mad.SIDRREP{},
	}[what]
	if text == nil || text.Parse(data) != nil {
		return nil
	}
	return text
}

// said learns what connections are called.
func (b *board) said(from *host, text body) {
	switch m := text.(type) {
	case *mad.REQ:
		k := b.calls[binary.BigEndian.Uint64(m.PrivateData[mad.IPHeaderLen:])]
		if k == nil {
			b.world.court.Failf("%s sends a REQ that nobody asked for", from.name)
			return
		}
		b.ends[commKey{from.index, m.LocalID}] = k.from
	case *mad.REP:
		b.nameAnswer(from, m)
	default:
	}
}

func (b *board) nameAnswer(from *host, m *mad.REP) {
	for _, c := range from.callers {
		p := c.plugs[uint32(m.LocalQPN)]
		if p == nil || p.call == nil {
			continue
		}
		for _, e := range p.call.to {
			if e.plug == p {
				b.ends[commKey{from.index, m.LocalID}] = e
			}
		}
	}
}

// heardBy notes what gives a connection more time: a peer that asks for it, or that refuses the
// path MTU and is asked again.
func (b *board) heardBy(to *host, text body) {
	var id mad.CommID
	var wait time.Duration
	switch m := text.(type) {
	case *mad.MRA:
		id, wait = m.RemoteID, 4096*time.Nanosecond<<m.ServiceTimeout
		b.world.mark("call.delayed")
	case *mad.REJ:
		if m.Reason != mad.ReasonInvalidMTU {
			return
		}
		id = m.RemoteID
		b.world.mark("call.smaller_mtu")
	default:
		return
	}
	if e := b.ends[commKey{to.index, id}]; e != nil {
		e.fate.Patience = max(e.fate.Patience, b.world.now.Add(wait+callTime))
	}
}
