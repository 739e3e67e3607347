package nic

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// askedFor is what the last REQ asked for, so that a refusal of it can say so.
type askedFor struct {
	id      mad.CommID
	from    rdma.GID
	service uint64
}

func attributeOf(message []byte) mad.Attribute {
	return mad.Attribute(binary.BigEndian.Uint16(message[16:]))
}

func (a *askedFor) note(p *ibt.Packet) {
	var m mad.REQ
	if attributeOf(p.Payload) == mad.AttributeREQ && m.Parse(p.Payload[mad.HeaderLen:]) == nil {
		*a = askedFor{id: m.LocalID, from: p.SGID, service: m.ServiceID}
	}
}

// noteRefusal keeps a REJ that the engine sends by itself: it names no connection of ours.
func (c *connections) noteRefusal(m *cm.Message) {
	var r mad.REJ
	isREJ := attributeOf(m.MAD[:]) == mad.AttributeREJ && r.Parse(m.MAD[mad.HeaderLen:]) == nil
	if !isREJ || r.LocalID != 0 || r.Answered != mad.AnsweredREQ {
		return
	}
	what := fmt.Sprintf("%v asked for a connection with %v", m.Path.DGID.Addr(), m.Path.SGID.Addr())
	if c.asked.id == r.RemoteID && c.asked.from == m.Path.DGID {
		space, port := splitService(c.asked.service)
		what += fmt.Sprintf(", port %d of %v", port, space)
	}
	c.noteTurnedAway(what, r.Reason)
}

// noteTurnedAway keeps a request that reached no program.
func (c *connections) noteTurnedAway(request string, reason mad.Reason) {
	c.nic.causes.add(&c.nic.causes.own, &CauseRecord{
		At: c.nic.now, Kind: ErrorTurnedAway, Chain: explain.Rejection(request, uint32(reason)),
	})
}

// requestOf tells what a REQ or SIDR_REQ asked for.
func requestOf(e *cm.Event) string {
	space, port := splitService(e.ServiceID)
	from := e.Path.DGID.Addr().String()
	if h, err := mad.ParseIPHeader(e.PrivateData[:e.PrivateLen]); err == nil {
		from = h.Source.String()
	}
	return fmt.Sprintf("%s asked for a connection with %v, port %d of %v", from, e.Path.SGID.Addr(),
		port, space)
}
