package ib

import (
	"encoding/binary"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Lengths of the headers of tag matching, in bytes.
const (
	TMHLen = 16
	RVHLen = 16
)

// TMHOpcode says what a message of tag matching is; values of enum ibv_tmh_op.
type TMHOpcode uint8

// Messages of tag matching.
const (
	TMHNoTag      TMHOpcode = 0
	TMHRendezvous TMHOpcode = 1
	TMHFin        TMHOpcode = 2
	TMHEager      TMHOpcode = 3
)

// TMH is the header at the start of a message of tag matching, in the payload of its SEND (struct
// ibv_tmh; tag_matching.md of rdma-core).
//
//	 0        1                    4                   8                    16
//	+--------+--------------------+-------------------+--------------------+
//	| opcode | reserved           | context           | tag                |
//	+--------+--------------------+-------------------+--------------------+
type TMH struct {
	Opcode TMHOpcode
	// Context is the application's; it comes with the completion.
	Context uint32
	Tag     uint64
}

// ParseTMH reads a TMH at the start of b. The reserved bytes are not looked at.
func ParseTMH(b []byte) (TMH, error) {
	if len(b) < TMHLen {
		return TMH{}, ErrTruncated
	}
	return TMH{
		Opcode: TMHOpcode(b[0]), Context: binary.BigEndian.Uint32(b[4:]),
		Tag: binary.BigEndian.Uint64(b[8:]),
	}, nil
}

// Append appends the TMHLen bytes of the header to b.
func (h *TMH) Append(b []byte) []byte {
	b = append(b, byte(h.Opcode), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.Context)
	return binary.BigEndian.AppendUint64(b, h.Tag)
}

// HasTag reports a message that is to be matched.
func (h *TMH) HasTag() bool { return h.Opcode == TMHEager || h.Opcode == TMHRendezvous }

func (h TMH) String() string {
	return fmt.Sprintf("TMH{op=%d context=0x%08x tag=0x%016x}", uint8(h.Opcode), h.Context, h.Tag)
}

// RVH follows the TMH of a rendezvous request and says where the data are (struct ibv_rvh).
//
//	 0                    8          12         16
//	+--------------------+----------+----------+
//	| virtual address    | rkey     | length   |
//	+--------------------+----------+----------+
type RVH struct {
	VA     uint64
	RKey   rdma.Key
	Length uint32 // in bytes
}

// ParseRVH reads an RVH at the start of b.
func ParseRVH(b []byte) (RVH, error) {
	if len(b) < RVHLen {
		return RVH{}, ErrTruncated
	}
	return RVH{
		VA: binary.BigEndian.Uint64(b), RKey: rdma.Key(binary.BigEndian.Uint32(b[8:])),
		Length: binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// Append appends the RVHLen bytes of the header to b.
func (h *RVH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, uint32(h.RKey))
	return binary.BigEndian.AppendUint32(b, h.Length)
}

func (h RVH) String() string {
	return fmt.Sprintf("RVH{va=0x%x rkey=0x%08x length=%d}", h.VA, uint32(h.RKey), h.Length)
}
