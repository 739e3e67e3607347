package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// DETHLen is the length of a datagram extended transport header in bytes (IBTA 9.3.1).
const DETHLen = 8

// DETH carries a datagram's queue key and sender (IBTA 9.3.1). Its reserved byte is not kept.
type DETH struct {
	QKey   rdma.QKey
	SrcQPN rdma.QPN
}

// ParseDETH reads a DETH at the start of b.
func ParseDETH(b []byte) (DETH, error) {
	var h DETH
	if len(b) < DETHLen {
		return h, ErrTruncated
	}
	h.decode(b)
	return h, nil
}

// decode reads the fields. Preconditions: len(b) >= DETHLen.
func (h *DETH) decode(b []byte) {
	_ = b[DETHLen-1]
	h.QKey = rdma.QKey(binary.BigEndian.Uint32(b))
	h.SrcQPN = rdma.QPN(binary.BigEndian.Uint32(b[4:])) & rdma.QPNMask
}

// Append appends the DETHLen bytes of the header to b.
func (h *DETH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.QKey))
	return binary.BigEndian.AppendUint32(b, uint32(h.SrcQPN&rdma.QPNMask))
}

func (h DETH) String() string {
	return fmt.Sprintf("DETH{qkey=0x%08x src_qpn=%s}", uint32(h.QKey), h.SrcQPN)
}
