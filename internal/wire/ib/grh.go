package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// GRHLen is the length of a global route header in bytes (IBTA 8.3).
const GRHLen = 40

// GRHNextHeaderIBA says that a transport header of IBTA follows (IBTA 8.3).
const GRHNextHeaderIBA = 0x1b

// GRH is a global route header, the same bytes as an IPv6 header (IBTA 8.3). It is also what a UD
// receive finds in the first 40 bytes of its buffer (IBTA 11.4.1.2, and A17.4.5.2 for RoCE v2).
type GRH struct {
	SGID, DGID   rdma.GID
	TrafficClass uint8
	// FlowLabel has 20 bits.
	FlowLabel uint32
	// PayloadLength counts the bytes after the GRH up to and with the ICRC.
	PayloadLength uint16
	NextHeader    uint8
	HopLimit      uint8
}

// ParseGRH reads a GRH at the start of b; its version must be 6.
func ParseGRH(b []byte) (GRH, error) {
	var h GRH
	if len(b) < GRHLen {
		return h, ErrTruncated
	}
	v := GRHView(b)
	if v.Version() != 6 {
		return h, ErrIPVersion
	}
	first := binary.BigEndian.Uint32(b)
	h.TrafficClass = uint8(first >> 20)
	h.FlowLabel = first & 0xfffff
	h.PayloadLength = binary.BigEndian.Uint16(b[4:])
	h.NextHeader, h.HopLimit = b[6], b[7]
	h.SGID, h.DGID = v.SGID(), v.DGID()
	return h, nil
}

// Append appends the GRHLen bytes of the header to b.
func (h *GRH) Append(b []byte) []byte {
	first := 6<<28 | uint32(h.TrafficClass)<<20 | h.FlowLabel&0xfffff
	b = binary.BigEndian.AppendUint32(b, first)
	b = binary.BigEndian.AppendUint16(b, h.PayloadLength)
	b = append(b, h.NextHeader, h.HopLimit)
	b = append(b, h.SGID[:]...)
	return append(b, h.DGID[:]...)
}

func (h GRH) String() string {
	return fmt.Sprintf("GRH{sgid=%s dgid=%s tclass=0x%02x flow=0x%05x len=%d next=0x%02x hop=%d}",
		h.SGID, h.DGID, h.TrafficClass, h.FlowLabel, h.PayloadLength, h.NextHeader, h.HopLimit)
}

// GRHView shows a global route header of any content. Preconditions of its methods: IsComplete.
type GRHView []byte

// IsComplete reports whether the header's bytes are all there; the other methods need it.
func (v GRHView) IsComplete() bool { return len(v) >= GRHLen }

// Version returns the IP version field.
func (v GRHView) Version() uint8 { return v[0] >> 4 }

// SGID returns the source GID.
func (v GRHView) SGID() rdma.GID { return rdma.GID(v[8:24]) }

// DGID returns the destination GID.
func (v GRHView) DGID() rdma.GID { return rdma.GID(v[24:40]) }

func (v GRHView) String() string {
	if !v.IsComplete() {
		return "truncated GRH"
	}
	h, err := ParseGRH(v)
	if err != nil {
		return fmt.Sprintf("GRH{version=%d}", v.Version())
	}
	return h.String()
}
