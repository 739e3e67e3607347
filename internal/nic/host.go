package nic

import (
	"encoding/binary"

	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Memory implements ibt.Host.
func (q *qp) Memory() *mem.Table { return q.nic.memory }

// Raise implements ibt.Host.
func (q *qp) Raise(_ *ibt.QP, e rdma.EventType) { q.nic.raise(q.context, e, q.handle) }

// Note implements ibt.Host: it keeps the evidence for `rnic ps` and the log.
func (q *qp) Note(_ *ibt.QP, c ibt.Cause) {
	q.errors++
	q.lastCause = c
	q.nic.causes.add(q, c)
}

// Count implements ibt.Host.
func (q *qp) Count(c ibt.Counter, n uint64) { q.nic.counters.Engine[c] += n }

// Sizes that the header of a received packet implies but the packet does not carry.
const (
	ipv4HeaderBytes = 20
	udpHeaderBytes  = 8
	icrcBytes       = 4
	protocolUDP     = 17
)

// NetworkHeader implements ibt.Host: on RoCE v2 the IP header that the packet came with. The IPv4
// header sits in the last twenty bytes with a right checksum, which is how ibv_init_ah_from_wc
// tells the two apart.
func (q *qp) NetworkHeader(p *ibt.Packet, dst *[ibt.GRHBytes]byte) {
	clear(dst[:])
	transport := p.Headers.Len() + len(p.Payload) + int(p.Headers.BTH.PadCount) + icrcBytes
	length := udpHeaderBytes + transport
	if p.DGID.Addr().Is4() {
		ipv4Header(p, dst[ibt.GRHBytes-ipv4HeaderBytes:], length+ipv4HeaderBytes)
		return
	}
	binary.BigEndian.PutUint32(dst[0:], 6<<28|uint32(p.TrafficClass)<<20|p.FlowLabel&0xfffff)
	binary.BigEndian.PutUint16(dst[4:], uint16(length))
	dst[6] = protocolUDP
	dst[7] = p.HopLimit
	copy(dst[8:], p.SGID[:])
	copy(dst[24:], p.DGID[:])
}

func ipv4Header(p *ibt.Packet, h []byte, length int) {
	h[0] = 0x45
	h[1] = p.TrafficClass
	binary.BigEndian.PutUint16(h[2:], uint16(length))
	binary.BigEndian.PutUint16(h[6:], 0x4000) // don't fragment
	h[8] = p.HopLimit
	h[9] = protocolUDP
	copy(h[12:], p.SGID[12:])
	copy(h[16:], p.DGID[12:])
	sum := uint32(0)
	for i := 0; i < ipv4HeaderBytes; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
}
