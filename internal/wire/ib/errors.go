package ib

import "errors"

// Why bytes are not a packet. They are sentinels, so that a receive path counts by comparing and
// never allocates; a packet with such a fault is dropped in silence (IBTA 9.6.1).
var (
	// ErrTruncated: fewer bytes than the headers that the opcode asks for.
	ErrTruncated = errors.New("ib: packet is shorter than its headers")
	// ErrVersion: TVer is not 0 (IBTA 9.2.3.4, 9.6.1.1).
	ErrVersion = errors.New("ib: unknown transport header version")
	// ErrOpcode: reserved or manufacturer specific opcode (IBTA 9.2.1).
	ErrOpcode = errors.New("ib: unknown opcode")
	// ErrPad: the pad count is larger than what follows the headers (IBTA 9.2.3.3).
	ErrPad = errors.New("ib: pad count exceeds the payload")
	// ErrUnaligned: payload and pad do not end on a multiple of four bytes (IBTA 9.2.3.3).
	ErrUnaligned = errors.New("ib: packet length is not a multiple of four")
	// ErrIPVersion: the version field of a GRH is not 6 (IBTA 8.3).
	ErrIPVersion = errors.New("ib: GRH version is not 6")
)
