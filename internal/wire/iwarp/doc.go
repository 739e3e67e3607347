// Package iwarp is the headers of iWARP as they travel in a TCP stream: MPA (RFC 5044, RFC 6581),
// DDP (RFC 5041) and RDMAP (RFC 5040, RFC 7306).
//
// A stream begins with one MPA frame in each direction (Frame). FPDUs follow:
//
//	+--------------+------------+---------+-------+-------+
//	| ULPDU length | DDP header | payload |  pad  |  CRC  |
//	+--------------+------------+---------+-------+-------+
//	       2          14 or 18                0…3      4
//
// Where markers were asked for, four bytes every 512 point back to the length field (Marks).
// Header is the DDP header with the RDMAP control in it. What follows in the payload of some
// opcodes has a value of its own: ReadRequest, AtomicRequest, AtomicResponse, Immediate and
// Terminate. The opcode table is in opcode.go, that of the Terminate codes in code.go.
//
// The receive path of an engine, when a whole FPDU is in b and there are no markers:
//
//	n, ok := iwarp.ParseULPDULen(b)
//	size := iwarp.FPDULen(n)
//	if !iwarp.IsCRCGood(b[:size]) { … CodeMPACRC … }
//	payload, err := h.Parse(b[iwarp.ULPDULenLen:][:n])
//	if code, ok := iwarp.CodeOf(err); ok { … Terminate with code … }
//
// and its transmit path:
//
//	b = iwarp.AppendULPDULen(b[:0], h.Len()+len(payload))
//	b = h.Append(b)
//	b = append(b, payload...)
//	b = iwarp.AppendPad(b, iwarp.PadLen(h.Len()+len(payload)))
//	b = iwarp.AppendCRC(b, iwarp.UpdateCRC(0, b))
//
// No function here allocates except the String methods, and none panics on bytes from a peer.
package iwarp
