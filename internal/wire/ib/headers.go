package ib

import (
	"encoding/binary"
)

// HeadersLenMax is the longest BTH with extended headers: an atomic request of the RD service.
const HeadersLenMax = BTHLen + RDETHLen + DETHLen + AtomicETHLen

// Headers is every transport header of one packet. Which of them are on the wire is what
// BTH.Opcode says; the others are zero after Parse and ignored by Append.
type Headers struct {
	BTH       BTH
	DETH      DETH
	RETH      RETH
	Atomic    AtomicETH
	AtomicAck AtomicAckETH
	AETH      AETH
	Imm       ImmDt
	Inv       IETH
	XRC       XRCETH
	RD        RDETH
	Flush     FETH
}

// Parse reads the headers of b, which runs from the BTH to the end of the pad: the ICRC is already
// cut off. It returns the payload, a part of b, without the pad.
//
// It refuses unknown versions and opcodes and lengths that cannot be (IBTA 9.6.1.1), with one of
// the package's sentinels; h is then undefined. Whether the payload's length fits the opcode and
// the path MTU is a question for the QP: ask OpcodeInfo.Payload.
func (h *Headers) Parse(b []byte) (payload []byte, err error) {
	if len(b) < BTHLen {
		return nil, ErrTruncated
	}
	if b[1]&bthTVerMask != 0 {
		return nil, ErrVersion
	}
	info := Opcode(b[0]).Info()
	if info.HeaderLen == 0 {
		return nil, ErrOpcode
	}
	if len(b) < info.HeaderLen {
		return nil, ErrTruncated
	}
	if len(b)%4 != 0 {
		return nil, ErrUnaligned
	}
	*h = Headers{}
	h.BTH.decode(b)
	if info.Headers != 0 {
		h.decodeExtended(b[BTHLen:], info.Headers)
	}
	payload = b[info.HeaderLen:]
	pad := int(h.BTH.PadCount)
	if pad > len(payload) {
		return nil, ErrPad
	}
	return payload[: len(payload)-pad : len(payload)-pad], nil
}

// decodeExtended reads the headers of set in wire order. Preconditions: len(b) >= set.Len().
func (h *Headers) decodeExtended(b []byte, set HeaderSet) {
	if set&(HasRDETH|HasDETH|HasXRCETH|HasFETH) != 0 {
		b = h.decodeService(b, set)
	}
	if set&HasRETH != 0 {
		h.RETH.decode(b)
		b = b[RETHLen:]
	}
	if set&HasAtomicETH != 0 {
		h.Atomic.decode(b)
		b = b[AtomicETHLen:]
	}
	if set&HasAETH != 0 {
		h.AETH.decode(b)
		b = b[AETHLen:]
	}
	if set&HasAtomicAckETH != 0 {
		h.AtomicAck = AtomicAckETH(binary.BigEndian.Uint64(b))
		b = b[AtomicAckETHLen:]
	}
	if set&HasImmDt != 0 {
		h.Imm = ImmDt(binary.NativeEndian.Uint32(b))
		b = b[ImmDtLen:]
	}
	if set&HasIETH != 0 {
		h.Inv = IETH(binary.BigEndian.Uint32(b))
	}
}

// decodeService reads the headers that stand in front of an RETH and returns the rest.
func (h *Headers) decodeService(b []byte, set HeaderSet) []byte {
	if set&HasRDETH != 0 {
		h.RD = RDETH(binary.BigEndian.Uint32(b) & mask24)
		b = b[RDETHLen:]
	}
	if set&HasDETH != 0 {
		h.DETH.decode(b)
		b = b[DETHLen:]
	}
	if set&HasXRCETH != 0 {
		h.XRC = XRCETH(binary.BigEndian.Uint32(b) & mask24)
		b = b[XRCETHLen:]
	}
	if set&HasFETH != 0 {
		h.Flush.decode(b)
		b = b[FETHLen:]
	}
	return b
}

// Len returns the bytes that Append appends; 0 for an unknown opcode.
func (h *Headers) Len() int { return h.BTH.Opcode.Info().HeaderLen }

// Append appends the headers that BTH.Opcode asks for to b. The payload and BTH.PadCount pad bytes
// are the caller's to append.
func (h *Headers) Append(b []byte) []byte {
	b = h.BTH.Append(b)
	set := h.BTH.Opcode.Info().Headers
	if set&(HasRDETH|HasDETH|HasXRCETH|HasFETH) != 0 {
		b = h.appendService(b, set)
	}
	if set&HasRETH != 0 {
		b = h.RETH.Append(b)
	}
	if set&HasAtomicETH != 0 {
		b = h.Atomic.Append(b)
	}
	if set&HasAETH != 0 {
		b = h.AETH.Append(b)
	}
	if set&HasAtomicAckETH != 0 {
		b = h.AtomicAck.Append(b)
	}
	if set&HasImmDt != 0 {
		b = h.Imm.Append(b)
	}
	if set&HasIETH != 0 {
		b = h.Inv.Append(b)
	}
	return b
}

func (h *Headers) appendService(b []byte, set HeaderSet) []byte {
	if set&HasRDETH != 0 {
		b = h.RD.Append(b)
	}
	if set&HasDETH != 0 {
		b = h.DETH.Append(b)
	}
	if set&HasXRCETH != 0 {
		b = h.XRC.Append(b)
	}
	if set&HasFETH != 0 {
		b = h.Flush.Append(b)
	}
	return b
}

// String prints the headers in one line.
func (h *Headers) String() string { return h.BTH.String() + h.extendedLine() }

// extendedLine prints the extended headers, a space in front of each.
func (h *Headers) extendedLine() string {
	s := ""
	set := h.BTH.Opcode.Info().Headers
	for i := range headerLens {
		if header := HeaderSet(1) << i; set&header != 0 {
			s += " " + h.extendedString(header)
		}
	}
	return s
}

func (h *Headers) extendedString(header HeaderSet) string {
	switch header {
	case HasRDETH:
		return h.RD.String()
	case HasDETH:
		return h.DETH.String()
	case HasXRCETH:
		return h.XRC.String()
	case HasFETH:
		return h.Flush.String()
	case HasRETH:
		return h.RETH.String()
	case HasAtomicETH:
		return h.Atomic.String()
	case HasAETH:
		return h.AETH.String()
	case HasAtomicAckETH:
		return h.AtomicAck.String()
	case HasImmDt:
		return h.Imm.String()
	case HasIETH:
		return h.Inv.String()
	}
	return "unknown header"
}
