package ibt

import (
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// Address is where a packet comes from and goes to, in terms of every link: on RoCE v2 the GIDs
// are IP addresses and Flow becomes the UDP source port.
type Address struct {
	SGID         rdma.GID
	DGID         rdma.GID
	FlowLabel    uint32
	Flow         uint16 // entropy for multipath; equal for all packets of a QP
	TrafficClass uint8  // DSCP in the upper six bits; ECN in the lower two
	HopLimit     uint8
	SL           uint8
	Port         uint8 // of this NIC, from 1
}

// IsCongested reports the ECN mark "congestion experienced".
func (a *Address) IsCongested() bool { return a.TrafficClass&3 == 3 }

// Packet is one transport packet. Outgoing: Payload is the engine's or the application's memory,
// valid until the next call into the engine, and may change meanwhile; pad bytes are not part of
// it (Headers.BTH carries their count). Incoming: Payload is the caller's and valid during
// HandlePacket only.
type Packet struct {
	Address
	Headers ib.Headers
	Payload []byte
	// More is how many packets like this one follow: only their sequence numbers differ, each by one,
	// and the payload is that of all, in equal parts. Outgoing ones only, and 0 unless RunMax allows
	// it.
	More uint32
	// RunMax is for who polls to set: how many packets he takes as one; 0 stands for 1. They are
	// from the middle of one message.
	RunMax uint32
}
