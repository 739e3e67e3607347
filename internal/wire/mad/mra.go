package mad

import "fmt"

// MRAPrivateLen is the length of an MRA's private data in bytes (IBTA 12.6.7).
const MRAPrivateLen = 222

// Answered is the message that an MRA or a REJ is about; 2 bits.
type Answered uint8

// Messages answered.
const (
	AnsweredREQ   Answered = 0
	AnsweredREP   Answered = 1
	AnsweredLAP   Answered = 2 // by an MRA
	AnsweredOther Answered = 2 // by a REJ, also none: the sender gave up
)

func (a Answered) String() string {
	switch a {
	case AnsweredREQ:
		return "REQ"
	case AnsweredREP:
		return "REP"
	case AnsweredOther:
		return "other"
	}
	return fmt.Sprintf("message %d", uint8(a))
}

// MRA says that a message has arrived and that its answer takes a while (IBTA 12.6.7).
type MRA struct {
	LocalID, RemoteID CommID
	Answered          Answered
	ServiceTimeout    uint8 // 4.096 µs × 2^n; 5 bits
	PrivateData       [MRAPrivateLen]byte
}

// Parse reads a message from the data of a MAD.
func (m *MRA) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	m.Answered, m.ServiceTimeout = Answered(b[8]>>6), b[9]>>3
	copy(m.PrivateData[:], b[10:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *MRA) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	d[8], d[9] = uint8(m.Answered)<<6, m.ServiceTimeout<<3
	copy(d[10:], m.PrivateData[:])
	return b
}

func (m *MRA) String() string {
	return fmt.Sprintf("MRA{id=0x%08x remote=0x%08x to=%v timeout=%d}",
		uint32(m.LocalID), uint32(m.RemoteID), m.Answered, m.ServiceTimeout)
}
