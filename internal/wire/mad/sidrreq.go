package mad

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// SIDRREQPrivateLen is the length of a SIDR_REQ's private data in bytes (IBTA 12.11.1).
const SIDRREQPrivateLen = 216

// SIDRREQ asks which datagram queue pair serves a service (IBTA 12.11.1).
type SIDRREQ struct {
	RequestID   CommID
	PKey        rdma.PKey
	ServiceID   uint64
	PrivateData [SIDRREQPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *SIDRREQ) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	be := binary.BigEndian
	m.RequestID = getID(b)
	m.PKey = rdma.PKey(be.Uint16(b[4:]))
	m.ServiceID = be.Uint64(b[8:])
	copy(m.PrivateData[:], b[16:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *SIDRREQ) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	be := binary.BigEndian
	putID(d, m.RequestID)
	be.PutUint16(d[4:], uint16(m.PKey))
	be.PutUint64(d[8:], m.ServiceID)
	copy(d[16:], m.PrivateData[:])
	return b
}

func (m *SIDRREQ) String() string {
	return fmt.Sprintf("SIDR_REQ{id=0x%08x service=0x%016x pkey=0x%04x}",
		uint32(m.RequestID), m.ServiceID, uint16(m.PKey))
}
