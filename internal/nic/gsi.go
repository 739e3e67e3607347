package nic

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// handleGSI takes a packet for the general services interface (IBTA 13.5.2): a management
// datagram, which is one packet of 256 bytes with the queue key of QP1.
func (c *connections) handleGSI(now clock.Time, p *ibt.Packet) {
	h, n := &p.Headers, c.nic
	switch {
	case !h.BTH.Opcode.Info().QPTypes.Has(rdma.QPTypeUD), len(p.Payload) != len(c.message.MAD):
		n.counters.BadMAD++
		return
	case !rdma.PKeyDefault.Matches(h.BTH.PKey):
		n.counters.BadMAD++
		n.countPacket(work.CountBadPKey)
		return
	case h.DETH.QKey != rdma.QKeyGSI:
		n.counters.BadMAD++
		n.countPacket(work.CountBadQKey)
		return
	}
	n.counters.RcvdMAD++
	c.asked.note(p)
	path := cm.Path{
		SGID: p.DGID, DGID: p.SGID, FlowLabel: p.FlowLabel, Flow: p.Flow,
		TrafficClass: p.TrafficClass, HopLimit: hopLimitDefault, SL: p.SL, Port: thePort,
	}
	c.engine.HandleMAD(now, &path, h.DETH.SrcQPN, p.Payload)
	c.stir()
	c.collect()
}

// pollTransmit makes the next packet of the general services interface.
func (c *connections) pollTransmit(now clock.Time, p *ibt.Packet) bool {
	if !c.isActive {
		return false
	}
	m := &c.message
	if !c.engine.PollTransmit(now, m) {
		c.isActive = false
		return false
	}
	a := &m.Path
	p.Address = ibt.Address{
		SGID: a.SGID, DGID: a.DGID, FlowLabel: a.FlowLabel, Flow: a.Flow | flowMin,
		TrafficClass: a.TrafficClass &^ ecnMask, HopLimit: a.HopLimit, SL: a.SL, Port: a.Port,
	}
	p.Headers = ib.Headers{
		BTH: ib.BTH{
			Opcode: ib.UDSendOnly, PSN: c.psn, DestQPN: m.DestQPN, PKey: rdma.PKeyDefault,
			MigReq: true,
		},
		DETH: ib.DETH{QKey: rdma.QKeyGSI, SrcQPN: rdma.QPNGSI},
	}
	p.Payload = m.MAD[:]
	c.psn = c.psn.Add(1)
	c.noteRefusal(m)
	c.nic.counters.SentMAD++
	return true
}

const (
	// flowMin is the lowest UDP source port that RoCE v2 uses (IBTA A17.9.1).
	flowMin = 0xc000
	// ecnMask are the bits of a traffic class that a congested router sets; an answer does not
	// carry them back.
	ecnMask = 3
)
