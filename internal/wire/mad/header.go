package mad

import (
	"encoding/binary"
	"fmt"
)

// HeaderLen is the length of the header of all MADs in bytes (IBTA 13.4.2).
const HeaderLen = 24

// Class is a management class (IBTA 13.4.4).
type Class uint8

// ClassCM is communication management.
const ClassCM Class = 0x07

// Versions of the formats here (IBTA 13.4.2, 16.7.1).
const (
	BaseVersion    = 1
	ClassVersionCM = 2
)

// Method is what a MAD asks for (IBTA 13.4.5).
type Method uint8

// Methods that communication management has (IBTA 16.7.2).
const (
	MethodGet         Method = 0x01
	MethodSet         Method = 0x02
	MethodSend        Method = 0x03
	MethodGetResponse Method = 0x81
)

func (m Method) String() string {
	switch m {
	case MethodGet:
		return "Get"
	case MethodSet:
		return "Set"
	case MethodSend:
		return "Send"
	case MethodGetResponse:
		return "GetResp"
	}
	return fmt.Sprintf("method 0x%02x", uint8(m))
}

// Status is the outcome in a response (IBTA 13.4.7).
type Status uint16

// Statuses common to all classes.
const (
	StatusOK                   Status = 0
	StatusBadVersion           Status = 1 << 2
	StatusUnsupportedMethod    Status = 2 << 2
	StatusUnsupportedAttribute Status = 3 << 2
)

// Attribute is what a MAD is about. Those of communication management are messages (IBTA 16.7.3).
type Attribute uint16

// Attributes.
const (
	AttributeClassPortInfo Attribute = 0x0001
	AttributeREQ           Attribute = 0x0010
	AttributeMRA           Attribute = 0x0011
	AttributeREJ           Attribute = 0x0012
	AttributeREP           Attribute = 0x0013
	AttributeRTU           Attribute = 0x0014
	AttributeDREQ          Attribute = 0x0015
	AttributeDREP          Attribute = 0x0016
	AttributeSIDRREQ       Attribute = 0x0017
	AttributeSIDRREP       Attribute = 0x0018
	AttributeLAP           Attribute = 0x0019
	AttributeAPR           Attribute = 0x001a
)

var attributeNames = map[Attribute]string{
	AttributeClassPortInfo: "ClassPortInfo",
	AttributeREQ:           "REQ",
	AttributeMRA:           "MRA",
	AttributeREJ:           "REJ",
	AttributeREP:           "REP",
	AttributeRTU:           "RTU",
	AttributeDREQ:          "DREQ",
	AttributeDREP:          "DREP",
	AttributeSIDRREQ:       "SIDR_REQ",
	AttributeSIDRREP:       "SIDR_REP",
	AttributeLAP:           "LAP",
	AttributeAPR:           "APR",
}

func (a Attribute) String() string {
	if name, ok := attributeNames[a]; ok {
		return name
	}
	return fmt.Sprintf("attribute 0x%04x", uint16(a))
}

// Header begins every MAD (IBTA 13.4.3). The reserved word is not kept.
type Header struct {
	Class         Class
	ClassVersion  uint8
	Method        Method
	Status        Status
	ClassSpecific uint16
	TransactionID uint64
	Attribute     Attribute
	Modifier      uint32
}

// ParseHeader reads the header at the start of a MAD. It returns no error only where DataLen
// bytes follow.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < Len {
		return Header{}, ErrTruncated
	}
	if b[0] != BaseVersion {
		return Header{}, ErrVersion
	}
	be := binary.BigEndian
	return Header{
		Class: Class(b[1]), ClassVersion: b[2], Method: Method(b[3]), Status: Status(be.Uint16(b[4:])),
		ClassSpecific: be.Uint16(b[6:]), TransactionID: be.Uint64(b[8:]),
		Attribute: Attribute(be.Uint16(b[16:])), Modifier: be.Uint32(b[20:]),
	}, nil
}

// Append appends the HeaderLen bytes of the header to b.
func (h *Header) Append(b []byte) []byte {
	b, d := extend(b, HeaderLen)
	be := binary.BigEndian
	d[0], d[1], d[2], d[3] = BaseVersion, uint8(h.Class), h.ClassVersion, uint8(h.Method)
	be.PutUint16(d[4:], uint16(h.Status))
	be.PutUint16(d[6:], h.ClassSpecific)
	be.PutUint64(d[8:], h.TransactionID)
	be.PutUint16(d[16:], uint16(h.Attribute))
	be.PutUint32(d[20:], h.Modifier)
	return b
}

func (h Header) String() string {
	return fmt.Sprintf("MAD{class=0x%02x version=%d %v %v status=0x%04x tid=0x%016x}",
		uint8(h.Class), h.ClassVersion, h.Method, h.Attribute, uint16(h.Status), h.TransactionID)
}
