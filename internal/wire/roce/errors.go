package roce

import "errors"

// Why bytes are not a RoCE v2 frame. They are sentinels, so that a receive path counts by
// comparing and never allocates.
var (
	// ErrTruncated: fewer bytes than a header or its length field asks for.
	ErrTruncated = errors.New("roce: frame is shorter than its headers say")
	// ErrNotRoCE: another protocol, or another UDP port.
	ErrNotRoCE = errors.New("roce: not a RoCE v2 frame")
	// ErrVersion: the IP version does not agree with the EtherType.
	ErrVersion = errors.New("roce: IP version does not agree with the EtherType")
	// ErrLength: a length field contradicts another.
	ErrLength = errors.New("roce: length fields contradict each other")
	// ErrFragment: an IP fragment; RoCE v2 packets are never fragmented (IBTA A17.4.3).
	ErrFragment = errors.New("roce: IP fragment")
	// ErrOptions: an IPv4 header with options, which no adapter sends and the ICRC does not know.
	ErrOptions = errors.New("roce: IPv4 options")
)
