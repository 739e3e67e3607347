package abi

import "encoding/binary"

var ne = binary.NativeEndian

// DecodeSendWQE reads the fixed part of a send queue entry. b is a private copy of at least
// SendWQEBytes.
func DecodeSendWQE(b []byte, w *SendWQE) {
	_ = b[SendWQEBytes-1]
	w.WRID = ne.Uint64(b[0:])
	w.Opcode = b[8]
	w.Flags = b[9]
	w.NumSGE = ne.Uint16(b[10:])
	w.ImmOrRKey = ne.Uint32(b[12:])
	w.RemoteAddr = ne.Uint64(b[16:])
	w.RKey = ne.Uint32(b[24:])
	w.InlineLen = ne.Uint32(b[28:])
	w.CompareAdd = ne.Uint64(b[32:])
	w.Swap = ne.Uint64(b[40:])
	w.AH = ne.Uint32(b[48:])
	w.RemoteQPN = ne.Uint32(b[52:])
	w.RemoteQKey = ne.Uint32(b[56:])
	w.Extra = ne.Uint32(b[60:])
}

// EncodeSendWQE writes the fixed part of a send queue entry into b.
func EncodeSendWQE(b []byte, w *SendWQE) {
	_ = b[SendWQEBytes-1]
	ne.PutUint64(b[0:], w.WRID)
	b[8] = w.Opcode
	b[9] = w.Flags
	ne.PutUint16(b[10:], w.NumSGE)
	ne.PutUint32(b[12:], w.ImmOrRKey)
	ne.PutUint64(b[16:], w.RemoteAddr)
	ne.PutUint32(b[24:], w.RKey)
	ne.PutUint32(b[28:], w.InlineLen)
	ne.PutUint64(b[32:], w.CompareAdd)
	ne.PutUint64(b[40:], w.Swap)
	ne.PutUint32(b[48:], w.AH)
	ne.PutUint32(b[52:], w.RemoteQPN)
	ne.PutUint32(b[56:], w.RemoteQKey)
	ne.PutUint32(b[60:], w.Extra)
}

// DecodeRecvWQE reads the fixed part of a receive queue entry.
func DecodeRecvWQE(b []byte, w *RecvWQE) {
	_ = b[RecvWQEBytes-1]
	w.WRID = ne.Uint64(b[0:])
	w.NumSGE = ne.Uint32(b[8:])
	w.Reserved = ne.Uint32(b[12:])
}

// EncodeRecvWQE writes the fixed part of a receive queue entry into b.
func EncodeRecvWQE(b []byte, w *RecvWQE) {
	_ = b[RecvWQEBytes-1]
	ne.PutUint64(b[0:], w.WRID)
	ne.PutUint32(b[8:], w.NumSGE)
	ne.PutUint32(b[12:], w.Reserved)
}

// DecodeSGE reads scatter/gather entry i of the array that begins at b.
func DecodeSGE(b []byte, i int, s *SGE) {
	e := b[i*SGEBytes : i*SGEBytes+SGEBytes : i*SGEBytes+SGEBytes]
	s.Addr = ne.Uint64(e[0:])
	s.Length = ne.Uint32(e[8:])
	s.LKey = ne.Uint32(e[12:])
}

// EncodeSGE writes scatter/gather entry i of the array that begins at b.
func EncodeSGE(b []byte, i int, s *SGE) {
	e := b[i*SGEBytes : i*SGEBytes+SGEBytes : i*SGEBytes+SGEBytes]
	ne.PutUint64(e[0:], s.Addr)
	ne.PutUint32(e[8:], s.Length)
	ne.PutUint32(e[12:], s.LKey)
}

// DecodeCQE reads a completion queue entry.
func DecodeCQE(b []byte, c *CQE) {
	_ = b[CQEBytes-1]
	c.WRID = ne.Uint64(b[0:])
	c.Status = ne.Uint32(b[8:])
	c.Opcode = ne.Uint32(b[12:])
	c.VendorErr = ne.Uint32(b[16:])
	c.ByteLen = ne.Uint32(b[20:])
	c.ImmOrRKey = ne.Uint32(b[24:])
	c.QPNum = ne.Uint32(b[28:])
	c.SrcQP = ne.Uint32(b[32:])
	c.WCFlags = ne.Uint32(b[36:])
	c.PKeyIndex = ne.Uint16(b[40:])
	c.SLID = ne.Uint16(b[42:])
	c.SL = b[44]
	c.DLIDPathBits = b[45]
	c.Reserved = ne.Uint16(b[46:])
	c.Timestamp = ne.Uint64(b[48:])
	c.SQIndex = ne.Uint32(b[56:])
	c.Reserved2 = ne.Uint32(b[60:])
}

// EncodeCQE writes a completion queue entry into b.
func EncodeCQE(b []byte, c *CQE) {
	_ = b[CQEBytes-1]
	ne.PutUint64(b[0:], c.WRID)
	ne.PutUint32(b[8:], c.Status)
	ne.PutUint32(b[12:], c.Opcode)
	ne.PutUint32(b[16:], c.VendorErr)
	ne.PutUint32(b[20:], c.ByteLen)
	ne.PutUint32(b[24:], c.ImmOrRKey)
	ne.PutUint32(b[28:], c.QPNum)
	ne.PutUint32(b[32:], c.SrcQP)
	ne.PutUint32(b[36:], c.WCFlags)
	ne.PutUint16(b[40:], c.PKeyIndex)
	ne.PutUint16(b[42:], c.SLID)
	b[44] = c.SL
	b[45] = c.DLIDPathBits
	ne.PutUint16(b[46:], c.Reserved)
	ne.PutUint64(b[48:], c.Timestamp)
	ne.PutUint32(b[56:], c.SQIndex)
	ne.PutUint32(b[60:], c.Reserved2)
}
