package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// REPPrivateLen is the length of a REP's private data in bytes (IBTA 12.6.9).
const REPPrivateLen = 196

// REP accepts a connection (IBTA 12.6.9).
type REP struct {
	LocalID, RemoteID  CommID
	VendorID           uint32 // of the options in the header's modifier; 24 bits, 0 is none
	LocalQKey          rdma.QKey
	LocalQPN           rdma.QPN
	LocalEECN          uint32 // with XRC, the number of the receiving QP (annex A14.5.2)
	StartPSN           rdma.PSN
	ResponderResources uint8
	InitiatorDepth     uint8
	AckDelay           uint8 // 4.096 µs × 2^n; 5 bits
	Failover           uint8 // 2 bits; 0 is accepted
	FlowControl        bool
	RNRRetry           uint8 // 3 bits
	SRQ                bool
	LocalGUID          rdma.GUID
	PrivateData        [REPPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *REP) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	be := binary.BigEndian
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	m.LocalQKey = rdma.QKey(be.Uint32(b[8:]))
	m.VendorID = uint32(b[15])<<16 | uint32(b[19])<<8 | uint32(b[23])
	m.LocalQPN, m.LocalEECN = getQPN(b[12:]), get24(b[16:])
	m.StartPSN = rdma.PSN(get24(b[20:]))
	m.ResponderResources, m.InitiatorDepth = b[24], b[25]
	m.AckDelay, m.Failover, m.FlowControl = b[26]>>3, b[26]>>1&3, b[26]&1 != 0
	m.RNRRetry, m.SRQ = b[27]>>5, b[27]&0x10 != 0
	m.LocalGUID = rdma.GUID(be.Uint64(b[28:]))
	copy(m.PrivateData[:], b[36:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *REP) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	be := binary.BigEndian
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	be.PutUint32(d[8:], uint32(m.LocalQKey))
	put24(d[12:], uint32(m.LocalQPN), uint8(m.VendorID>>16))
	put24(d[16:], m.LocalEECN, uint8(m.VendorID>>8))
	put24(d[20:], uint32(m.StartPSN), uint8(m.VendorID))
	d[24], d[25] = m.ResponderResources, m.InitiatorDepth
	d[26] = m.AckDelay<<3 | m.Failover&3<<1 | bit(m.FlowControl, 1)
	d[27] = m.RNRRetry<<5 | bit(m.SRQ, 0x10)
	be.PutUint64(d[28:], uint64(m.LocalGUID))
	copy(d[36:], m.PrivateData[:])
	return b
}

func (m *REP) String() string {
	return fmt.Sprintf("REP{id=0x%08x remote=0x%08x guid=%v qpn=%v eecn=0x%06x psn=%v resources=%d "+
		"depth=%d delay=%d rnr=%d srq=%t flow=%t}",
		uint32(m.LocalID), uint32(m.RemoteID), m.LocalGUID, m.LocalQPN, m.LocalEECN, m.StartPSN,
		m.ResponderResources, m.InitiatorDepth, m.AckDelay, m.RNRRetry, m.SRQ, m.FlowControl)
}
