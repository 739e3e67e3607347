package iwarp

import "fmt"

// Code is why a connection is terminated: a layer in the upper four bits, an error type in the next
// four, and an error code in the low byte, as a Terminate message has them (RFC 5040 4.8).
type Code uint16

// Layer is who found the fault.
type Layer uint8

// Layers.
const (
	LayerRDMAP Layer = 0
	LayerDDP   Layer = 1
	LayerLLP   Layer = 2 // MPA
)

func (l Layer) String() string {
	names := [...]string{"RDMAP", "DDP", "MPA"}
	if int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("layer %d", uint8(l))
}

// Codes of RDMAP (RFC 5040 4.8).
const (
	CodeRDMAPLocal Code = 0x0000 // catastrophe at the sender of the Terminate

	CodeProtectionSTag       Code = 0x0100
	CodeProtectionBounds     Code = 0x0101
	CodeProtectionAccess     Code = 0x0102
	CodeProtectionStream     Code = 0x0103 // STag of another PD
	CodeProtectionWrap       Code = 0x0104
	CodeProtectionInvalidate Code = 0x0109
	CodeProtectionOther      Code = 0x01ff

	CodeRDMAPVersion        Code = 0x0205
	CodeOpcode              Code = 0x0206
	CodeCatastropheStream   Code = 0x0207
	CodeCatastropheGlobal   Code = 0x0208
	CodeOperationInvalidate Code = 0x0209
	CodeOperationOther      Code = 0x02ff
)

// Codes of DDP (RFC 5041 8.2).
const (
	CodeDDPLocal Code = 0x1000

	CodeTaggedSTag    Code = 0x1100
	CodeTaggedBounds  Code = 0x1101
	CodeTaggedStream  Code = 0x1102
	CodeTaggedWrap    Code = 0x1103
	CodeTaggedVersion Code = 0x1104

	CodeUntaggedQN       Code = 0x1201
	CodeUntaggedNoBuffer Code = 0x1202
	CodeUntaggedMSN      Code = 0x1203
	CodeUntaggedMO       Code = 0x1204
	CodeUntaggedTooLong  Code = 0x1205
	CodeUntaggedVersion  Code = 0x1206
)

// Codes of MPA (RFC 5044 8, RFC 6581 8).
const (
	CodeMPAClosed Code = 0x2001
	CodeMPACRC    Code = 0x2002
	CodeMPAMarker Code = 0x2003
	CodeMPAFrame  Code = 0x2004
	CodeMPALocal  Code = 0x2005
	CodeMPAIRD    Code = 0x2006
	CodeMPARTR    Code = 0x2007
)

// codeRow names a code.
type codeRow struct {
	code Code
	name string
}

// codes are all that are defined, in ascending order.
var codes = [...]codeRow{
	{CodeRDMAPLocal, "local catastrophic error"},
	{CodeProtectionSTag, "invalid STag"},
	{CodeProtectionBounds, "base or bounds violation"},
	{CodeProtectionAccess, "access rights violation"},
	{CodeProtectionStream, "STag not associated with the stream"},
	{CodeProtectionWrap, "TO wrap"},
	{CodeProtectionInvalidate, "STag cannot be invalidated"},
	{CodeProtectionOther, "unspecified error"},
	{CodeRDMAPVersion, "invalid RDMAP version"},
	{CodeOpcode, "unexpected opcode"},
	{CodeCatastropheStream, "catastrophic error of the stream"},
	{CodeCatastropheGlobal, "catastrophic error of the device"},
	{CodeOperationInvalidate, "STag cannot be invalidated"},
	{CodeOperationOther, "unspecified error"},
	{CodeDDPLocal, "local catastrophic error"},
	{CodeTaggedSTag, "invalid STag"},
	{CodeTaggedBounds, "base or bounds violation"},
	{CodeTaggedStream, "STag not associated with the stream"},
	{CodeTaggedWrap, "TO wrap"},
	{CodeTaggedVersion, "invalid DDP version"},
	{CodeUntaggedQN, "invalid QN"},
	{CodeUntaggedNoBuffer, "invalid MSN: no buffer available"},
	{CodeUntaggedMSN, "invalid MSN: range is not valid"},
	{CodeUntaggedMO, "invalid MO"},
	{CodeUntaggedTooLong, "message too long for the buffer"},
	{CodeUntaggedVersion, "invalid DDP version"},
	{CodeMPAClosed, "TCP connection lost"},
	{CodeMPACRC, "wrong CRC"},
	{CodeMPAMarker, "marker and ULPDU length disagree"},
	{CodeMPAFrame, "invalid MPA request or reply"},
	{CodeMPALocal, "local catastrophic error"},
	{CodeMPAIRD, "insufficient IRD"},
	{CodeMPARTR, "no matching RTR option"},
}

// CodeOfParts puts a code together; each part beyond its width is cut.
func CodeOfParts(layer Layer, etype, code uint8) Code {
	return Code(layer&0xf)<<12 | Code(etype&0xf)<<8 | Code(code)
}

// Codes calls f with every code that is defined, in ascending order.
func Codes(f func(Code)) {
	for i := range codes {
		f(codes[i].code)
	}
}

// Layer returns who found the fault.
func (c Code) Layer() Layer { return Layer(c >> 12) }

// EType returns the error type.
func (c Code) EType() uint8 { return uint8(c >> 8 & 0xf) }

// Number returns the error code within layer and type.
func (c Code) Number() uint8 { return uint8(c) }

// Mirrored exchanges layer and error type, as Linux's siw does on little-endian machines.
func (c Code) Mirrored() Code { return c&0x00ff | c>>4&0x0f00 | c<<4&0xf000 }

// IsKnown reports a code that a standard defines.
func (c Code) IsKnown() bool { return c.row() != nil }

// Name says what is wrong, in words; "" for an unknown code.
func (c Code) Name() string {
	if row := c.row(); row != nil {
		return row.name
	}
	return ""
}

func (c Code) row() *codeRow {
	if isLocal := c>>8 == CodeRDMAPLocal>>8 || c>>8 == CodeDDPLocal>>8; isLocal {
		c &^= 0xff // RFC 5040 and 5041 give the type no codes: any is the same
	}
	for i := range codes {
		if codes[i].code == c {
			return &codes[i]
		}
	}
	return nil
}

// TypeName names the error type in words; "" for an unknown one.
func (c Code) TypeName() string {
	switch uint8(c >> 8) {
	case 0x00, 0x10:
		return "local catastrophic error"
	case 0x01:
		return "remote protection error"
	case 0x02:
		return "remote operation error"
	case 0x11:
		return "tagged buffer error"
	case 0x12:
		return "untagged buffer error"
	case 0x20:
		return "MPA error"
	}
	return ""
}

// String prints the layer, the type, what is wrong and the number.
func (c Code) String() string {
	if !c.IsKnown() {
		return fmt.Sprintf("%s error 0x%04x", c.Layer(), uint16(c))
	}
	if c.TypeName() == c.Name() || c.Layer() == LayerLLP {
		return fmt.Sprintf("%s %s (0x%04x)", c.Layer(), c.Name(), uint16(c))
	}
	return fmt.Sprintf("%s %s: %s (0x%04x)", c.Layer(), c.TypeName(), c.Name(), uint16(c))
}
