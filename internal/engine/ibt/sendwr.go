package ibt

import (
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/rdma"
)

// sendWR is one send work request: the private copy of what shared memory said, and where it
// stands in the sequence of packets.
type sendWR struct {
	work.SendWR
	op *operation
	// first is the PSN of the first packet; a READ's are those of its responses. packets is how
	// many PSNs the request takes, 0 where it failed before the first.
	first   rdma.PSN
	packets uint32
	// serial names this request in the NIC's scratch memory.
	serial uint64
	// receives counts the requests up to this one that need a receive at the peer.
	receives uint32
	owner    owner
	// isDone says that a local operation was executed and waits for those before it to complete.
	isDone bool
}

// end returns the PSN after the last.
func (w *sendWR) end() rdma.PSN { return w.first.Add(w.packets) }

// index returns which packet of the request a PSN is; one that is not less than packets does not
// belong to it.
func (w *sendWR) index(p rdma.PSN) uint32 { return distance(w.first, p) }

// distance returns how many PSNs to is after from, modulo 2^24. Unlike the signed distance it
// orders everything inside a message of 2^23 packets.
func distance(from, to rdma.PSN) uint32 { return (uint32(to) - uint32(from)) & rdma.PSNMask }

// packetsOf returns how many packets of mtu bytes a message takes; an empty one takes one.
func packetsOf(length, mtu uint32) uint32 {
	return max(1, uint32((uint64(length)+uint64(mtu)-1)/uint64(mtu)))
}
