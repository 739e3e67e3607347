package nic

import (
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// Memory implements ibt.Host.
func (q *qp) Memory() *mem.Table { return q.nic.memory }

// Raise implements ibt.Host.
func (q *qp) Raise(_ *ibt.QP, e rdma.EventType) {
	q.nic.raise(q.context, e, q.handle)
	for i := range q.others {
		q.nic.raise(q.others[i].context, e, q.others[i].handle)
	}
	if e == rdma.EventCommEst {
		q.nic.cm.noteTraffic(q.qpn)
	}
}

// Count implements ibt.Host.
func (q *qp) Count(c work.Counter, n uint64) {
	q.device.counters[c] += n
	q.counters[c] += n
}

// NetworkHeader implements ibt.Host: on RoCE v2 the IP header that the packet came with.
func (q *qp) NetworkHeader(p *ibt.Packet, dst *[ibt.GRHBytes]byte) {
	path := roce.Path{
		Src: p.SGID.Addr(), Dst: p.DGID.Addr(), FlowLabel: p.FlowLabel, SrcPort: p.Flow,
		TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, DF: true,
	}
	transport := p.Headers.Len() + len(p.Payload) + int(p.Headers.BTH.PadCount) + roce.ICRCLen
	(*roce.GRHArea)(dst).Fill(&path, transport)
}

// What a datagram came with, as the service level of its completion tells it on RoCE, which has no
// such levels.
const (
	levelIPv6 = 8 | 1 // UDP, and IPv6
	levelIPv4 = 8 | 2
)

// ServiceLevel implements ibt.Host. RoCE v2 wants completions to tell whether a datagram came with
// IPv4 or IPv6 (annex A17.4.5.1), for which verbs have no field. NVIDIA's adapters tell it here,
// and UCX 1.13 drops datagrams of IPv4 that do not.
func (q *qp) ServiceLevel(p *ibt.Packet) uint8 {
	switch {
	case q.device.port.InfiniBand:
		return p.SL
	case p.DGID.Addr().Is4():
		return levelIPv4
	}
	return levelIPv6
}
