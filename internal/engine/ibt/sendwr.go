package ibt

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// sendWR is one send work request: the private copy of what shared memory said, and where it
// stands in the sequence of packets.
type sendWR struct {
	wqe abi.SendWQE
	op  *operation
	// first is the PSN of the first packet; a READ's are those of its responses. packets is how
	// many PSNs the request takes, 0 where it failed before the first.
	first   rdma.PSN
	packets uint32
	length  uint32 // bytes of the message
	// serial names this request in the NIC's scratch memory.
	serial uint64
	// receives counts the requests up to this one that need a receive at the peer.
	receives uint32
	// fail, where it is not WCSuccess, waits until all requests before this one are complete.
	fail   rdma.WCStatus
	vendor abi.Vendor
	fault  mem.Fault
	bad    uint8 // the entry of the list at fault
	owner  owner
	// isDone says that a local operation was executed and waits for those before it to complete.
	isDone bool

	one    [1]abi.SGE // most requests have one entry
	many   []abi.SGE
	inline []byte
}

// list returns the scatter/gather entries.
func (w *sendWR) list() []abi.SGE {
	if w.wqe.NumSGE <= 1 {
		return w.one[:w.wqe.NumSGE]
	}
	return w.many
}

func (w *sendWR) has(f rdma.SendFlags) bool { return rdma.SendFlags(w.wqe.Flags)&f != 0 }

// end returns the PSN after the last.
func (w *sendWR) end() rdma.PSN { return w.first.Add(w.packets) }

// setFail lets the request fail once it is the oldest.
func (w *sendWR) setFail(s rdma.WCStatus, v abi.Vendor) {
	if w.fail == rdma.WCSuccess {
		w.fail, w.vendor = s, v
	}
}

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
