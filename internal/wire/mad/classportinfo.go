package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// ClassPortInfoLen is the length of the attribute in bytes (IBTA 13.4.8.1).
const ClassPortInfoLen = 72

// Capabilities of a communication manager (IBTA 16.7.3.1).
const (
	CapabilityRC uint16 = 1 << 9
	CapabilityUC uint16 = 1 << 12
	CapabilityUD uint16 = 1 << 13 // service queries
)

// ClassPortInfo describes a management class at a port, and where its requests are to go instead
// (IBTA 13.4.8.1).
type ClassPortInfo struct {
	BaseVersion    uint8
	ClassVersion   uint8
	Capabilities   uint16
	Capabilities2  uint32 // 27 bits
	ResponseTime   uint8  // 4.096 µs × 2^n; 5 bits
	Redirect, Trap ManagerAddress
}

// ManagerAddress says where a manager is. A zero QPN means nowhere else.
type ManagerAddress struct {
	GID          rdma.GID
	TrafficClass uint8
	SL           uint8  // 4 bits
	FlowLabel    uint32 // 20 bits
	LID          rdma.LID
	PKey         rdma.PKey
	HopLimit     uint8 // a trap's only
	QPN          rdma.QPN
	QKey         rdma.QKey
}

func (a *ManagerAddress) decode(b []byte) {
	be := binary.BigEndian
	*a = ManagerAddress{
		GID: rdma.GID(b[:16]), TrafficClass: b[16], SL: b[17] >> 4,
		FlowLabel: be.Uint32(b[16:]) & 0xfffff, LID: rdma.LID(be.Uint16(b[20:])),
		PKey: rdma.PKey(be.Uint16(b[22:])), HopLimit: b[24],
		QPN: rdma.QPN(be.Uint32(b[24:])) & rdma.QPNMask, QKey: rdma.QKey(be.Uint32(b[28:])),
	}
}

func (a *ManagerAddress) encode(b []byte) {
	be := binary.BigEndian
	copy(b, a.GID[:])
	be.PutUint32(b[16:], uint32(a.TrafficClass)<<24|uint32(a.SL&15)<<20|a.FlowLabel&0xfffff)
	be.PutUint16(b[20:], uint16(a.LID))
	be.PutUint16(b[22:], uint16(a.PKey))
	be.PutUint32(b[24:], uint32(a.HopLimit)<<24|uint32(a.QPN&rdma.QPNMask))
	be.PutUint32(b[28:], uint32(a.QKey))
}

// Parse reads the attribute at the start of the data of a MAD.
func (m *ClassPortInfo) Parse(b []byte) error {
	if len(b) < ClassPortInfoLen {
		return ErrTruncated
	}
	be := binary.BigEndian
	word := be.Uint32(b[4:])
	m.BaseVersion, m.ClassVersion, m.Capabilities = b[0], b[1], be.Uint16(b[2:])
	m.Capabilities2, m.ResponseTime = word>>5, uint8(word&31)
	m.Redirect.decode(b[8:])
	m.Trap.decode(b[40:])
	return nil
}

// Append appends the ClassPortInfoLen bytes of the attribute to b.
func (m *ClassPortInfo) Append(b []byte) []byte {
	b, d := extend(b, ClassPortInfoLen)
	be := binary.BigEndian
	d[0], d[1] = m.BaseVersion, m.ClassVersion
	be.PutUint16(d[2:], m.Capabilities)
	be.PutUint32(d[4:], m.Capabilities2<<5|uint32(m.ResponseTime&31))
	m.Redirect.encode(d[8:])
	m.Trap.encode(d[40:])
	return b
}

func (m *ClassPortInfo) String() string {
	return fmt.Sprintf("ClassPortInfo{base=%d class=%d capabilities=0x%04x/0x%07x time=%d "+
		"redirect=%v}",
		m.BaseVersion, m.ClassVersion, m.Capabilities, m.Capabilities2, m.ResponseTime,
		m.Redirect.QPN)
}
