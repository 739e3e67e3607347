package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// LAPPrivateLen is the length of a LAP's private data in bytes (IBTA 12.8.1).
const LAPPrivateLen = 168

// LAP asks to load an alternate path (IBTA 12.8.1).
type LAP struct {
	LocalID, RemoteID CommID
	RemoteQPN         rdma.QPN
	ResponseTimeout   uint8 // 4.096 µs × 2^n; 5 bits
	Alternate         PathRecord
	PrivateData       [LAPPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *LAP) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	be := binary.BigEndian
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	m.RemoteQPN, m.ResponseTimeout = getQPN(b[12:]), b[15]>>3
	m.Alternate = PathRecord{
		LocalLID: rdma.LID(be.Uint16(b[20:])), RemoteLID: rdma.LID(be.Uint16(b[22:])),
		LocalGID: rdma.GID(b[24:40]), RemoteGID: rdma.GID(b[40:56]),
		FlowLabel: be.Uint32(b[56:]) >> 12, TrafficClass: b[59],
		HopLimit: b[60], PacketRate: b[61] & 0x3f,
		SL: b[62] >> 4, SubnetLocal: b[62]&8 != 0, AckTimeout: b[63] >> 3,
	}
	copy(m.PrivateData[:], b[64:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *LAP) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	be, p := binary.BigEndian, &m.Alternate
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	put24(d[12:], uint32(m.RemoteQPN), m.ResponseTimeout<<3)
	be.PutUint16(d[20:], uint16(p.LocalLID))
	be.PutUint16(d[22:], uint16(p.RemoteLID))
	copy(d[24:], p.LocalGID[:])
	copy(d[40:], p.RemoteGID[:])
	be.PutUint32(d[56:], p.FlowLabel<<12|uint32(p.TrafficClass))
	d[60], d[61] = p.HopLimit, p.PacketRate&0x3f
	d[62] = p.SL<<4 | bit(p.SubnetLocal, 8)
	d[63] = p.AckTimeout << 3
	copy(d[64:], m.PrivateData[:])
	return b
}

func (m *LAP) String() string {
	return fmt.Sprintf("LAP{id=0x%08x remote=0x%08x qpn=%v %v → %v}", uint32(m.LocalID),
		uint32(m.RemoteID), m.RemoteQPN, m.Alternate.LocalGID, m.Alternate.RemoteGID)
}
