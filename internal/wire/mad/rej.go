package mad

import (
	"encoding/binary"
	"fmt"
)

// Lengths in a REJ in bytes (IBTA 12.6.8).
const (
	REJInfoLen    = 72
	REJPrivateLen = 148
)

// REJ refuses a message, or gives a connection up (IBTA 12.6.8).
type REJ struct {
	LocalID     CommID // 0 where the sender gave the connection none
	RemoteID    CommID // 0 where the sender never learnt it
	Answered    Answered
	Reason      Reason
	InfoLen     uint8 // bytes of Info that count; 7 bits
	Info        [REJInfoLen]byte
	PrivateData [REJPrivateLen]byte
}

// Parse reads a message from the data of a MAD. An InfoLen beyond the field is cut.
func (m *REJ) Parse(b []byte) error {
	if len(b) < DataLen {
		return ErrTruncated
	}
	m.LocalID, m.RemoteID = getID(b), getID(b[4:])
	m.Answered, m.InfoLen = Answered(b[8]>>6), min(b[9]>>1, REJInfoLen)
	m.Reason = Reason(binary.BigEndian.Uint16(b[10:]))
	copy(m.Info[:], b[12:])
	copy(m.PrivateData[:], b[12+REJInfoLen:])
	return nil
}

// Append appends the DataLen bytes of the message to b.
func (m *REJ) Append(b []byte) []byte {
	b, d := extend(b, DataLen)
	putID(d, m.LocalID)
	putID(d[4:], m.RemoteID)
	d[8], d[9] = uint8(m.Answered)<<6, min(m.InfoLen, REJInfoLen)<<1
	binary.BigEndian.PutUint16(d[10:], uint16(m.Reason))
	copy(d[12:], m.Info[:])
	copy(d[12+REJInfoLen:], m.PrivateData[:])
	return b
}

func (m *REJ) String() string {
	return fmt.Sprintf("REJ{id=0x%08x remote=0x%08x of=%v reason=%d (%v) info=%d}",
		uint32(m.LocalID), uint32(m.RemoteID), m.Answered, uint16(m.Reason), m.Reason, m.InfoLen)
}

// Reason is why a message was refused (IBTA 12.6.7.2).
type Reason uint16

// Reasons.
const (
	ReasonNoQP                     Reason = 1
	ReasonNoEEC                    Reason = 2
	ReasonNoResources              Reason = 3
	ReasonTimeout                  Reason = 4
	ReasonUnsupportedRequest       Reason = 5
	ReasonInvalidCommID            Reason = 6
	ReasonInvalidCommInstance      Reason = 7
	ReasonInvalidServiceID         Reason = 8
	ReasonInvalidTransport         Reason = 9
	ReasonStaleConnection          Reason = 10
	ReasonRDCNotExistent           Reason = 11
	ReasonPrimaryGID               Reason = 12
	ReasonPrimaryLID               Reason = 13
	ReasonPrimarySL                Reason = 14
	ReasonPrimaryTrafficClass      Reason = 15
	ReasonPrimaryHopLimit          Reason = 16
	ReasonPrimaryPacketRate        Reason = 17
	ReasonAlternateGID             Reason = 18
	ReasonAlternateLID             Reason = 19
	ReasonAlternateSL              Reason = 20
	ReasonAlternateTrafficClass    Reason = 21
	ReasonAlternateHopLimit        Reason = 22
	ReasonAlternatePacketRate      Reason = 23
	ReasonPortAndCMRedirect        Reason = 24
	ReasonPortRedirect             Reason = 25
	ReasonInvalidMTU               Reason = 26
	ReasonInsufficientResources    Reason = 27
	ReasonConsumer                 Reason = 28
	ReasonRNRRetryCount            Reason = 29
	ReasonDuplicateLocalID         Reason = 30
	ReasonInvalidClassVersion      Reason = 31
	ReasonPrimaryFlowLabel         Reason = 32
	ReasonAlternateFlowLabel       Reason = 33
	ReasonVendorOptionNotSupported Reason = 35
)

//tidy:table
var reasonNames = map[Reason]string{
	ReasonNoQP:                     "no queue pair available",
	ReasonNoEEC:                    "no end-to-end context available",
	ReasonNoResources:              "no resources available",
	ReasonTimeout:                  "timeout",
	ReasonUnsupportedRequest:       "unsupported request",
	ReasonInvalidCommID:            "invalid communication ID",
	ReasonInvalidCommInstance:      "invalid communication instance",
	ReasonInvalidServiceID:         "invalid service ID: nobody listens",
	ReasonInvalidTransport:         "invalid transport service type",
	ReasonStaleConnection:          "stale connection",
	ReasonRDCNotExistent:           "reliable datagram channel does not exist",
	ReasonPrimaryGID:               "primary remote port GID rejected",
	ReasonPrimaryLID:               "primary remote port LID rejected",
	ReasonPrimarySL:                "invalid primary service level",
	ReasonPrimaryTrafficClass:      "invalid primary traffic class",
	ReasonPrimaryHopLimit:          "invalid primary hop limit",
	ReasonPrimaryPacketRate:        "invalid primary packet rate",
	ReasonAlternateGID:             "alternate remote port GID rejected",
	ReasonAlternateLID:             "alternate remote port LID rejected",
	ReasonAlternateSL:              "invalid alternate service level",
	ReasonAlternateTrafficClass:    "invalid alternate traffic class",
	ReasonAlternateHopLimit:        "invalid alternate hop limit",
	ReasonAlternatePacketRate:      "invalid alternate packet rate",
	ReasonPortAndCMRedirect:        "port and communication manager redirected",
	ReasonPortRedirect:             "port redirected",
	ReasonInvalidMTU:               "invalid path MTU",
	ReasonInsufficientResources:    "insufficient responder resources",
	ReasonConsumer:                 "rejected by the application",
	ReasonRNRRetryCount:            "RNR retry count rejected",
	ReasonDuplicateLocalID:         "duplicate local communication ID",
	ReasonInvalidClassVersion:      "invalid class version",
	ReasonPrimaryFlowLabel:         "invalid primary flow label",
	ReasonAlternateFlowLabel:       "invalid alternate flow label",
	ReasonVendorOptionNotSupported: "vendor option not supported",
}

func (r Reason) String() string {
	if name, ok := reasonNames[r]; ok {
		return name
	}
	return fmt.Sprintf("unknown reason %d", uint16(r))
}
