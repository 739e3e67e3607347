package mad

import "fmt"

// Lengths in an APR in bytes (IBTA 12.8.2).
const (
	APRInfoLen    = 72
	APRPrivateLen = 148
)

// APRStatus is the outcome of a LAP (IBTA 12.8.2.1).
type APRStatus uint8

// Outcomes that we tell apart.
const (
	APRStatusOK            APRStatus = 0
	APRStatusInvalidCommID APRStatus = 1
	APRStatusUnsupported   APRStatus = 2
)

func (s APRStatus) String() string {
	switch s {
	case APRStatusOK:
		return "ok"
	case APRStatusInvalidCommID:
		return "invalid communication ID"
	case APRStatusUnsupported:
		return "alternate paths not supported"
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// APR answers a LAP (IBTA 12.8.2).
type APR struct {
	LocalID, RemoteID CommID
	InfoLen           uint8 // bytes of Info that count
	Status            APRStatus
	Info              [APRInfoLen]byte
	PrivateData       [APRPrivateLen]byte
}

// Parse reads a message from the data of a MAD. An InfoLen beyond the field is cut.
func (m *APR) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	m.InfoLen, m.Status = min(b[8], APRInfoLen), APRStatus(b[9])
	copy(m.Info[:], b[12:])
	copy(m.PrivateData[:], b[12+APRInfoLen:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *APR) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	d[8], d[9] = min(m.InfoLen, APRInfoLen), uint8(m.Status)
	copy(d[12:], m.Info[:])
	copy(d[12+APRInfoLen:], m.PrivateData[:])
	return b
}

func (m *APR) String() string {
	return fmt.Sprintf("APR{id=0x%08x remote=0x%08x status=%d (%v)}",
		uint32(m.LocalID), uint32(m.RemoteID), uint8(m.Status), m.Status)
}
