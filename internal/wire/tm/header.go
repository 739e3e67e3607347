package tm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// ErrTruncated reports a message that is shorter than its header.
var ErrTruncated = errors.New("tm: message is shorter than its header")

// Lengths of the headers, in bytes.
const (
	HeaderLen     = 16
	RendezvousLen = 16
)

// Opcode says what a message of tag matching is; values of enum ibv_tmh_op.
type Opcode uint8

// Messages of tag matching.
const (
	OpNoTag      Opcode = 0
	OpRendezvous Opcode = 1
	OpFin        Opcode = 2
	OpEager      Opcode = 3
)

// Header is what a message of tag matching begins with (struct ibv_tmh).
//
//	 0        1                    4                   8                    16
//	+--------+--------------------+-------------------+--------------------+
//	| opcode | reserved           | context           | tag                |
//	+--------+--------------------+-------------------+--------------------+
type Header struct {
	Opcode Opcode
	// Context is the application's; it comes with the completion.
	Context uint32
	Tag     uint64
}

// ParseHeader reads a Header at the start of b. The reserved bytes are not looked at.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, ErrTruncated
	}
	return Header{
		Opcode: Opcode(b[0]), Context: binary.BigEndian.Uint32(b[4:]),
		Tag: binary.BigEndian.Uint64(b[8:]),
	}, nil
}

// Append appends the HeaderLen bytes of the header to b.
func (h *Header) Append(b []byte) []byte {
	b = append(b, byte(h.Opcode), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.Context)
	return binary.BigEndian.AppendUint64(b, h.Tag)
}

// HasTag reports a message that is to be matched.
func (h *Header) HasTag() bool { return h.Opcode == OpEager || h.Opcode == OpRendezvous }

func (h Header) String() string {
	return fmt.Sprintf("TMH{op=%d context=0x%08x tag=0x%016x}", uint8(h.Opcode), h.Context, h.Tag)
}

// Rendezvous follows the Header of a rendezvous request and says where the data are (struct
// ibv_rvh).
//
//	 0                    8          12         16
//	+--------------------+----------+----------+
//	| virtual address    | rkey     | length   |
//	+--------------------+----------+----------+
type Rendezvous struct {
	VA     uint64
	RKey   rdma.Key
	Length uint32 // in bytes
}

// ParseRendezvous reads an Rendezvous at the start of b.
func ParseRendezvous(b []byte) (Rendezvous, error) {
	if len(b) < RendezvousLen {
		return Rendezvous{}, ErrTruncated
	}
	return Rendezvous{
		VA: binary.BigEndian.Uint64(b), RKey: rdma.Key(binary.BigEndian.Uint32(b[8:])),
		Length: binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// Append appends the RendezvousLen bytes of the header to b.
func (h *Rendezvous) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, uint32(h.RKey))
	return binary.BigEndian.AppendUint32(b, h.Length)
}

func (h Rendezvous) String() string {
	return fmt.Sprintf("RVH{va=0x%x rkey=0x%08x length=%d}", h.VA, uint32(h.RKey), h.Length)
}
