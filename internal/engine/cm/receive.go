package cm

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// HandleMAD takes a MAD that came to QP1. The path is the way back, see Path; source is the QP that
// it came from. MADs of other classes, and bytes that are none, are counted and dropped.
func (e *Engine) HandleMAD(now clock.Time, path *Path, source rdma.QPN, b []byte) {
	h, err := mad.ParseHeader(b)
	if err != nil || h.Class != mad.ClassCM {
		e.stats.Ignored++
		return
	}
	in := arrival{now: now, path: path, source: source, header: h, data: b[mad.HeaderLen:mad.Len]}
	if h.Method == mad.MethodGet && h.Attribute == mad.AttributeClassPortInfo {
		e.answerClassPortInfo(&in)
		return
	}
	handle, known := handlers[h.Attribute]
	// A REQ and a SIDR_REQ of another version are refused; of others nothing can be said.
	versioned := h.Attribute == mad.AttributeREQ || h.Attribute == mad.AttributeSIDRREQ
	if h.Method != mad.MethodSend || !known ||
		h.ClassVersion != mad.ClassVersionCM && !versioned {
		e.stats.Ignored++
		return
	}
	e.stats.Received.add(h.Attribute)
	handle(e, &in)
}

// handlers is what each message does. An APR answers a LAP, of which we send none.
var handlers = map[mad.Attribute]func(*Engine, *arrival){
	mad.AttributeREQ:     (*Engine).handleREQ,
	mad.AttributeMRA:     (*Engine).handleMRA,
	mad.AttributeREJ:     (*Engine).handleREJ,
	mad.AttributeREP:     (*Engine).handleREP,
	mad.AttributeRTU:     (*Engine).handleRTU,
	mad.AttributeDREQ:    (*Engine).handleDREQ,
	mad.AttributeDREP:    (*Engine).handleDREP,
	mad.AttributeSIDRREQ: (*Engine).handleSIDRREQ,
	mad.AttributeSIDRREP: (*Engine).handleSIDRREP,
	mad.AttributeLAP:     (*Engine).handleLAP,
}

// fromPeer reports that a message comes from the address that the connection is with, and counts
// one that does not: communication IDs are hard to guess, but a stranger may have seen them.
func (e *Engine) fromPeer(in *arrival, c *conn) bool {
	if in.path.DGID == c.path.DGID {
		return true
	}
	e.stats.Ignored++
	return false
}
