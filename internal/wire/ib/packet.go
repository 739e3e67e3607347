package ib

import "strconv"

// Packet shows a transport packet of any content, legal or not, from its BTH to the end of its
// pad. It is for tools; engines use Headers.
type Packet []byte

// BTH returns a view of the base transport header; it may be incomplete.
func (p Packet) BTH() BTHView { return BTHView(p[:min(len(p), BTHLen)]) }

// Payload returns what follows the headers, pad cut off as far as there is any. It is empty when
// the headers are incomplete or the opcode is unknown.
func (p Packet) Payload() []byte {
	if !p.BTH().IsComplete() {
		return nil
	}
	n := p.BTH().Opcode().HeaderLen()
	if n == 0 || len(p) < n {
		return nil
	}
	rest := p[n:]
	return rest[:len(rest)-min(int(p.BTH().PadCount()), len(rest))]
}

// String prints the packet in one line: the headers, the payload's length, and what is wrong with
// it, if anything.
func (p Packet) String() string {
	bth := p.BTH()
	if !bth.IsComplete() {
		return bth.String() + " (" + strconv.Itoa(len(p)) + " bytes)"
	}
	var h Headers
	payload, err := h.Parse(p)
	if err == nil {
		return bth.String() + h.extendedLine() + " payload=" + strconv.Itoa(len(payload))
	}
	s := bth.String()
	info := bth.Opcode().Info()
	if info.HeaderLen != 0 && len(p) >= info.HeaderLen {
		h = Headers{}
		h.BTH.decode(p)
		h.decodeExtended(p[BTHLen:], info.Headers)
		s += h.extendedLine()
	}
	return s + " bytes=" + strconv.Itoa(len(p)) + " (" + err.Error() + ")"
}
