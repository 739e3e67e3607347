package mad

import "fmt"

// DREPPrivateLen is the length of a DREP's private data in bytes (IBTA 12.6.12).
const DREPPrivateLen = 224

// DREP answers a DREQ (IBTA 12.6.12).
type DREP struct {
	LocalID, RemoteID CommID
	PrivateData       [DREPPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *DREP) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	copy(m.PrivateData[:], b[8:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *DREP) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	copy(d[8:], m.PrivateData[:])
	return b
}

func (m *DREP) String() string {
	return fmt.Sprintf("DREP{id=0x%08x remote=0x%08x}", uint32(m.LocalID), uint32(m.RemoteID))
}
