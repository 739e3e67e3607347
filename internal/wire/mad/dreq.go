package mad

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// DREQPrivateLen is the length of a DREQ's private data in bytes (IBTA 12.6.11).
const DREQPrivateLen = 220

// DREQ ends a connection (IBTA 12.6.11).
type DREQ struct {
	LocalID, RemoteID CommID
	RemoteQPN         rdma.QPN // the receiver's
	PrivateData       [DREQPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *DREQ) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	m.RemoteQPN = getQPN(b[8:])
	copy(m.PrivateData[:], b[12:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *DREQ) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	put24(d[8:], uint32(m.RemoteQPN), 0)
	copy(d[12:], m.PrivateData[:])
	return b
}

func (m *DREQ) String() string {
	return fmt.Sprintf("DREQ{id=0x%08x remote=0x%08x qpn=%v}",
		uint32(m.LocalID), uint32(m.RemoteID), m.RemoteQPN)
}
