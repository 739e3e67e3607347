package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Lengths in a SIDR_REP in bytes (IBTA 12.11.2).
const (
	SIDRREPInfoLen    = 72
	SIDRREPPrivateLen = 136
)

// SIDRStatus is the outcome of a service query (IBTA 12.11.2.1).
type SIDRStatus uint8

// Outcomes.
const (
	SIDRStatusOK                 SIDRStatus = 0
	SIDRStatusUnsupportedService SIDRStatus = 1
	SIDRStatusRejected           SIDRStatus = 2
	SIDRStatusNoQP               SIDRStatus = 3
	SIDRStatusRedirected         SIDRStatus = 4
	SIDRStatusUnsupportedVersion SIDRStatus = 5
)

func (s SIDRStatus) String() string {
	names := [...]string{
		"ok", "service ID not supported", "rejected by the application", "no queue pair available",
		"redirected", "class version not supported",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("unknown status %d", uint8(s))
}

// SIDRREP answers a SIDR_REQ (IBTA 12.11.2).
type SIDRREP struct {
	RequestID   CommID
	Status      SIDRStatus
	InfoLen     uint8 // bytes of Info that count
	QPN         rdma.QPN
	ServiceID   uint64
	QKey        rdma.QKey
	Info        [SIDRREPInfoLen]byte // class port info of the manager that a redirection names
	PrivateData [SIDRREPPrivateLen]byte
}

// Parse reads a message from the data of a MAD. An InfoLen beyond the field is cut.
func (m *SIDRREP) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	be := binary.BigEndian
	m.RequestID = getID(b)
	m.Status, m.InfoLen = SIDRStatus(b[4]), min(b[5], SIDRREPInfoLen)
	m.QPN = getQPN(b[8:])
	m.ServiceID = be.Uint64(b[12:])
	m.QKey = rdma.QKey(be.Uint32(b[20:]))
	copy(m.Info[:], b[24:])
	copy(m.PrivateData[:], b[24+SIDRREPInfoLen:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *SIDRREP) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	be := binary.BigEndian
	putID(d, m.RequestID)
	d[4], d[5] = uint8(m.Status), min(m.InfoLen, SIDRREPInfoLen)
	put24(d[8:], uint32(m.QPN), 0)
	be.PutUint64(d[12:], m.ServiceID)
	be.PutUint32(d[20:], uint32(m.QKey))
	copy(d[24:], m.Info[:])
	copy(d[24+SIDRREPInfoLen:], m.PrivateData[:])
	return b
}

func (m *SIDRREP) String() string {
	return fmt.Sprintf("SIDR_REP{id=0x%08x status=%d (%v) service=0x%016x qpn=%v qkey=0x%08x}",
		uint32(m.RequestID), uint8(m.Status), m.Status, m.ServiceID, m.QPN, uint32(m.QKey))
}
