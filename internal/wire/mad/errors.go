package mad

import "errors"

// Why bytes are not a management datagram. They are sentinels, so that a receive path counts by
// comparing.
var (
	// ErrTruncated: a MAD of the general services classes has Len bytes (IBTA 13.4.2).
	ErrTruncated = errors.New("mad: shorter than a management datagram")
	// ErrVersion: the base version is not 1 (IBTA 13.4.3).
	ErrVersion = errors.New("mad: unknown base version")
	// ErrIPVersion: the IP addressing header names neither IPv4 nor IPv6, or not its version 0
	// (annex A11.4.2).
	ErrIPVersion = errors.New("mad: no IP addressing header")
)
