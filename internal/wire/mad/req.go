package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// REQPrivateLen is the length of a REQ's private data in bytes (IBTA 12.6.6).
const REQPrivateLen = 92

// REQ asks for a connection (IBTA 12.6.6). Timeouts are exponents: 4.096 µs × 2^n.
type REQ struct {
	LocalID               CommID
	VendorID              uint32 // of the options in the header's modifier; 24 bits, 0 is none
	ServiceID             uint64
	LocalGUID             rdma.GUID
	LocalQKey             rdma.QKey
	LocalQPN              rdma.QPN
	ResponderResources    uint8
	LocalEECN             uint32 // reliable datagrams
	InitiatorDepth        uint8
	RemoteEECN            uint32
	RemoteResponseTimeout uint8 // what the sender waits for an answer; 5 bits
	Transport             Transport
	FlowControl           bool
	StartPSN              rdma.PSN
	LocalResponseTimeout  uint8 // how long the sender itself may take; 5 bits
	RetryCount            uint8 // 3 bits
	PKey                  rdma.PKey
	PathMTU               rdma.MTU // 4 bits
	RDCExists             bool
	RNRRetry              uint8 // 3 bits
	MaxCMRetries          uint8 // 4 bits
	SRQ                   bool
	Primary, Alternate    PathRecord
	PrivateData           [REQPrivateLen]byte
}

// Transport is the service that the queue pairs are to give: the type, two bits, and where that
// is 3 the extended type, three bits (IBTA 12.7.19, annex A14.5.1).
type Transport uint8

// Transports. The extended type stands in bits 2 to 4.
const (
	TransportRC  Transport = 0
	TransportUC  Transport = 1
	TransportRD  Transport = 2
	TransportXRC Transport = 3 | 1<<2
)

func (t Transport) String() string {
	switch t {
	case TransportRC:
		return "RC"
	case TransportUC:
		return "UC"
	case TransportRD:
		return "RD"
	case TransportXRC:
		return "XRC"
	}
	return fmt.Sprintf("transport %d.%d", t&3, t>>2)
}

// pathLen is the length of a path in a REQ.
const pathLen = 44

// PathRecord is one of the paths in a REQ, from the sender's side (IBTA 12.7.10 to 12.7.22).
type PathRecord struct {
	LocalLID, RemoteLID rdma.LID // 0xffff on Ethernet
	LocalGID, RemoteGID rdma.GID
	FlowLabel           uint32 // 20 bits
	PacketRate          uint8  // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits
}

func (p *PathRecord) decode(b []byte) {
	be := binary.BigEndian
	word := be.Uint32(b[36:])
	*p = PathRecord{
		LocalLID: rdma.LID(be.Uint16(b)), RemoteLID: rdma.LID(be.Uint16(b[2:])),
		LocalGID: rdma.GID(b[4:20]), RemoteGID: rdma.GID(b[20:36]),
		FlowLabel: word >> 12, PacketRate: uint8(word & 0x3f),
		TrafficClass: b[40], HopLimit: b[41],
		SL: b[42] >> 4, SubnetLocal: b[42]&8 != 0, AckTimeout: b[43] >> 3,
	}
}

func (p *PathRecord) encode(b []byte) {
	be := binary.BigEndian
	be.PutUint16(b, uint16(p.LocalLID))
	be.PutUint16(b[2:], uint16(p.RemoteLID))
	copy(b[4:], p.LocalGID[:])
	copy(b[20:], p.RemoteGID[:])
	be.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.PacketRate&0x3f))
	b[40], b[41] = p.TrafficClass, p.HopLimit
	b[42] = p.SL<<4 | bit(p.SubnetLocal, 8)
	b[43] = p.AckTimeout << 3
}

// Parse reads a message from the data of a MAD.
func (m *REQ) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	be := binary.BigEndian
	m.LocalID, m.VendorID = getID(b), get24(b[5:])
	m.ServiceID = be.Uint64(b[8:])
	m.LocalGUID = rdma.GUID(be.Uint64(b[16:]))
	m.LocalQKey = rdma.QKey(be.Uint32(b[28:]))
	m.LocalQPN, m.ResponderResources = getQPN(b[32:]), b[35]
	m.LocalEECN, m.InitiatorDepth = get24(b[36:]), b[39]
	m.RemoteEECN = get24(b[40:])
	m.RemoteResponseTimeout = b[43] >> 3
	m.Transport = Transport(b[43] >> 1 & 3)
	m.FlowControl = b[43]&1 != 0
	m.StartPSN = rdma.PSN(get24(b[44:]))
	m.LocalResponseTimeout, m.RetryCount = b[47]>>3, b[47]&7
	m.PKey = rdma.PKey(be.Uint16(b[48:]))
	m.PathMTU = rdma.MTU(b[50] >> 4)
	m.RDCExists, m.RNRRetry = b[50]&8 != 0, b[50]&7
	m.MaxCMRetries, m.SRQ = b[51]>>4, b[51]&8 != 0
	m.Transport |= Transport(b[51] & 7 << 2)
	m.Primary.decode(b[52:])
	m.Alternate.decode(b[52+pathLen:])
	copy(m.PrivateData[:], b[140:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *REQ) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	be := binary.BigEndian
	putID(d, m.LocalID)
	put24(d[5:], m.VendorID, 0)
	be.PutUint64(d[8:], m.ServiceID)
	be.PutUint64(d[16:], uint64(m.LocalGUID))
	be.PutUint32(d[28:], uint32(m.LocalQKey))
	put24(d[32:], uint32(m.LocalQPN), m.ResponderResources)
	put24(d[36:], m.LocalEECN, m.InitiatorDepth)
	put24(d[40:], m.RemoteEECN,
		m.RemoteResponseTimeout<<3|uint8(m.Transport&3)<<1|bit(m.FlowControl, 1))
	put24(d[44:], uint32(m.StartPSN), m.LocalResponseTimeout<<3|m.RetryCount&7)
	be.PutUint16(d[48:], uint16(m.PKey))
	d[50] = uint8(m.PathMTU)<<4 | bit(m.RDCExists, 8) | m.RNRRetry&7
	d[51] = m.MaxCMRetries<<4 | bit(m.SRQ, 8) | uint8(m.Transport>>2&7)
	m.Primary.encode(d[52:])
	m.Alternate.encode(d[52+pathLen:])
	copy(d[140:], m.PrivateData[:])
	return b
}

func (m *REQ) String() string {
	return fmt.Sprintf("REQ{id=0x%08x service=0x%016x guid=%v qpn=%v psn=%v %v mtu=%v "+
		"resources=%d depth=%d retry=%d rnr=%d timeout=%d/%d×%d ack=%d srq=%t flow=%t pkey=0x%04x "+
		"%v → %v}",
		uint32(m.LocalID), m.ServiceID, m.LocalGUID, m.LocalQPN, m.StartPSN, m.Transport, m.PathMTU,
		m.ResponderResources, m.InitiatorDepth, m.RetryCount, m.RNRRetry, m.RemoteResponseTimeout,
		m.LocalResponseTimeout, m.MaxCMRetries, m.Primary.AckTimeout, m.SRQ, m.FlowControl,
		uint16(m.PKey), m.Primary.LocalGID, m.Primary.RemoteGID)
}
