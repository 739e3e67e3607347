package mad

import "fmt"

// RTUPrivateLen is the length of a RTU's private data in bytes (IBTA 12.6.10).
const RTUPrivateLen = 224

// RTU says that the sender is ready to use the connection (IBTA 12.6.10).
type RTU struct {
	LocalID, RemoteID CommID
	PrivateData       [RTUPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *RTU) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	copy(m.PrivateData[:], b[8:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *RTU) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	copy(d[8:], m.PrivateData[:])
	return b
}

func (m *RTU) String() string {
	return fmt.Sprintf("RTU{id=0x%08x remote=0x%08x}", uint32(m.LocalID), uint32(m.RemoteID))
}
