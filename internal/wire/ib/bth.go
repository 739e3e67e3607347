package ib

import (
	"encoding/binary"
	"strconv"

	"github.com/softrnic/softrnic/internal/rdma"
)

// BTHLen is the length of a base transport header in bytes (IBTA 9.2).
const BTHLen = 12

// Bits of the BTH. Byte 4 is resv8a to InfiniBand; RoCE v2 puts FECN and BECN in its upper two
// bits (IBTA A17.9).
const (
	bthSolicited = 0x80
	bthMigReq    = 0x40
	bthPadShift  = 4
	bthPadMask   = 0x3
	bthTVerMask  = 0xf
	bthFECN      = 0x80
	bthBECN      = 0x40
	bthAckReq    = 0x80
)

// BTH is a base transport header (IBTA 9.2) with transport version 0 and reserved bits 0.
//
//	 0               1               2               3
//	+---------------+-+-+---+-------+-------------------------------+
//	|    Opcode     |S|M|Pad| TVer  |             P_Key             |
//	+---------------+-+-+---+-------+-------------------------------+
//	|F|B|  reserved |              Destination QPN                  |
//	+-+-+-----------+-----------------------------------------------+
//	|A|  reserved   |                    PSN                        |
//	+-+-------------+-----------------------------------------------+
type BTH struct {
	PSN     rdma.PSN
	DestQPN rdma.QPN
	PKey    rdma.PKey
	Opcode  Opcode
	// PadCount is the number of zero bytes, 0…3, between payload and ICRC.
	PadCount uint8
	// Solicited asks the responder to raise a solicited event (IBTA 9.2.3.1).
	Solicited bool
	// MigReq is the migration state of the sender's QP: true means migrated. SoftRNIC sends
	// true, as adapters do, and accepts both.
	MigReq bool
	// FECN and BECN are the congestion marks of RoCE v2 (IBTA A17.9).
	FECN, BECN bool
	// AckReq asks the responder for an acknowledge (IBTA 9.2.3.5).
	AckReq bool
}

// ParseBTH reads a BTH at the start of b. It refuses a short b and a TVer other than 0, and
// accepts any opcode: ask Opcode.IsKnown.
func ParseBTH(b []byte) (BTH, error) {
	var h BTH
	if len(b) < BTHLen {
		return h, ErrTruncated
	}
	if b[1]&bthTVerMask != 0 {
		return h, ErrVersion
	}
	h.decode(b)
	return h, nil
}

// decode reads the fields. Preconditions: len(b) >= BTHLen.
func (h *BTH) decode(b []byte) {
	_ = b[BTHLen-1]
	h.Opcode = Opcode(b[0])
	h.Solicited = b[1]&bthSolicited != 0
	h.MigReq = b[1]&bthMigReq != 0
	h.PadCount = b[1] >> bthPadShift & bthPadMask
	h.PKey = rdma.PKey(binary.BigEndian.Uint16(b[2:]))
	h.FECN = b[4]&bthFECN != 0
	h.BECN = b[4]&bthBECN != 0
	h.DestQPN = rdma.QPN(binary.BigEndian.Uint32(b[4:])) & rdma.QPNMask
	h.AckReq = b[8]&bthAckReq != 0
	h.PSN = rdma.PSN(binary.BigEndian.Uint32(b[8:]) & rdma.PSNMask)
}

// Append appends the BTHLen bytes of the header to b. Bits beyond a field's width are dropped.
func (h *BTH) Append(b []byte) []byte {
	flags := h.PadCount & bthPadMask << bthPadShift
	flags |= bit(h.Solicited, bthSolicited) | bit(h.MigReq, bthMigReq)
	b = append(b, byte(h.Opcode), flags)
	b = binary.BigEndian.AppendUint16(b, uint16(h.PKey))
	ecn := bit(h.FECN, bthFECN) | bit(h.BECN, bthBECN)
	b = binary.BigEndian.AppendUint32(b, uint32(h.DestQPN&rdma.QPNMask)|uint32(ecn)<<24)
	ack := uint32(bit(h.AckReq, bthAckReq)) << 24
	return binary.BigEndian.AppendUint32(b, uint32(h.PSN)&rdma.PSNMask|ack)
}

func bit(on bool, mask uint8) uint8 {
	if on {
		return mask
	}
	return 0
}

func (h BTH) String() string {
	var b [BTHLen]byte
	return BTHView(h.Append(b[:0])).String()
}

// PadCount returns the pad that a payload of n bytes needs (IBTA 9.2.3.3).
func PadCount(n int) uint8 { return uint8(-n) & 3 }

// AppendPad appends the pad bytes, which are zero.
func AppendPad(b []byte, count uint8) []byte {
	const zero = "\x00\x00\x00"
	return append(b, zero[:count&bthPadMask]...)
}

// BTHView shows a base transport header of any content, reserved bits included.
// Preconditions of its methods: IsComplete.
type BTHView []byte

// IsComplete reports whether the header's bytes are all there; the other methods need it.
func (v BTHView) IsComplete() bool { return len(v) >= BTHLen }

// Opcode returns the opcode, known or not.
func (v BTHView) Opcode() Opcode { return Opcode(v[0]) }

// TVer returns the transport header version.
func (v BTHView) TVer() uint8 { return v[1] & bthTVerMask }

// PadCount returns the pad count.
func (v BTHView) PadCount() uint8 { return v[1] >> bthPadShift & bthPadMask }

// Resv8a returns the six bits of byte 4 that neither FECN nor BECN uses.
func (v BTHView) Resv8a() uint8 { return v[4] &^ (bthFECN | bthBECN) }

// Resv7 returns the seven reserved bits beside the acknowledge request.
func (v BTHView) Resv7() uint8 { return v[8] &^ bthAckReq }

// String prints the header in one line, flags that are off and reserved bits that are 0 left out.
func (v BTHView) String() string {
	if !v.IsComplete() {
		return "truncated BTH"
	}
	var h BTH
	h.decode(v)
	s := h.Opcode.String() + " qpn=" + h.DestQPN.String() + " psn=" + h.PSN.String()
	s += " pkey=0x" + strconv.FormatUint(uint64(h.PKey), 16)
	flags := [...]struct {
		on   bool
		name string
	}{
		{h.AckReq, " ack_req"},
		{h.Solicited, " solicited"},
		{h.MigReq, " mig_req"},
		{h.FECN, " fecn"},
		{h.BECN, " becn"},
	}
	for _, f := range flags {
		if f.on {
			s += f.name
		}
	}
	numbers := [...]struct {
		value uint8
		name  string
	}{
		{h.PadCount, " pad="},
		{v.TVer(), " tver="},
		{v.Resv8a(), " resv8a="},
		{v.Resv7(), " resv7="},
	}
	for _, n := range numbers {
		if n.value != 0 {
			s += n.name + strconv.Itoa(int(n.value))
		}
	}
	return s
}
