package work

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// SendFlagsKnown are the flags that a send work request may carry.
const SendFlagsKnown = rdma.SendFence | rdma.SendSignaled | rdma.SendSolicited | rdma.SendInline

// SendWR is a send work request: the private copy of what shared memory said, and what is wrong
// with it.
type SendWR struct {
	WQE    abi.SendWQE
	Length uint32 // bytes of the message
	// Fail, where it is not WCSuccess, waits until all requests before this one are complete.
	Fail   rdma.WCStatus
	Vendor abi.Vendor
	Fault  mem.Fault
	Bad    uint8 // the entry of the list at fault
	Inline []byte

	one  [1]abi.SGE // most requests have one entry
	many []abi.SGE
}

// SendLimits are what a send queue was made for.
type SendLimits struct {
	MaxSGE, MaxInline uint32
}

// Reset makes a request of which nothing is wrong yet out of an old one.
func (w *SendWR) Reset() {
	w.Length, w.Fail, w.Vendor = 0, rdma.WCSuccess, abi.VendorNone
	w.Fault, w.Bad = mem.FaultNone, 0
}

// SetList takes the first n bytes of a list.
//
// Preconditions: the list has n bytes.
func (w *SendWR) SetList(list []abi.SGE, n uint32) {
	w.many = w.many[:0]
	for i := 0; n > 0; i++ {
		s := list[i]
		s.Length = min(s.Length, n)
		n -= s.Length
		w.many = append(w.many, s)
	}
	if len(w.many) == 1 {
		w.one[0] = w.many[0]
	}
	w.WQE.NumSGE = uint16(len(w.many))
}

// Copy makes the private copy of a queue's entry. Every byte of the slot is read once: the
// application may change it at any instant.
func (w *SendWR) Copy(slot []byte, limits SendLimits) {
	var fixed [abi.SendWQEBytes]byte
	copy(fixed[:], slot)
	abi.DecodeSendWQE(fixed[:], &w.WQE)
	tail := slot[abi.SendWQEBytes:]
	if w.Has(rdma.SendInline) {
		w.copyInline(tail, limits)
		return
	}
	n := int(w.WQE.NumSGE)
	if n > int(limits.MaxSGE) || n*abi.SGEBytes > len(tail) {
		w.WQE.NumSGE = 0
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
		return
	}
	if n == 1 {
		abi.DecodeSGE(tail, 0, &w.one[0])
		return
	}
	w.many = w.many[:0]
	for i := range n {
		var s abi.SGE
		abi.DecodeSGE(tail, i, &s)
		w.many = append(w.many, s)
	}
}

func (w *SendWR) copyInline(tail []byte, limits SendLimits) {
	length := w.WQE.InlineLen
	if w.WQE.NumSGE != 0 || length > limits.MaxInline || int(length) > len(tail) {
		w.WQE.NumSGE = 0
		w.SetFail(rdma.WCLocQPOpErr, abi.VendorBadWQE)
		return
	}
	w.Inline = append(w.Inline[:0], tail[:length]...)
	w.Length = length
}

// List returns the scatter/gather entries.
func (w *SendWR) List() []abi.SGE {
	if w.WQE.NumSGE <= 1 {
		return w.one[:w.WQE.NumSGE]
	}
	return w.many
}

// Has reports any of the flags f.
func (w *SendWR) Has(f rdma.SendFlags) bool { return rdma.SendFlags(w.WQE.Flags)&f != 0 }

// SetFail lets the request fail once it is the oldest. The first reason stays.
func (w *SendWR) SetFail(s rdma.WCStatus, v abi.Vendor) {
	if w.Fail == rdma.WCSuccess {
		w.Fail, w.Vendor = s, v
	}
}

// SetFault lets the request fail by a local access (IBTA 11.6.2: local protection error).
func (w *SendWR) SetFault(f mem.Fault) {
	w.SetFail(rdma.WCLocProtErr, VendorOf(f))
	w.Fault = f
}

// VendorOf tells the evidence of a refused local access.
func VendorOf(f mem.Fault) abi.Vendor {
	switch f {
	case mem.FaultBounds:
		return abi.VendorLocalBounds
	case mem.FaultMemory, mem.FaultGone:
		return abi.VendorLocalFault
	default:
		return abi.VendorLocalKey
	}
}

// CheckList judges the entries of the list, each for the rights in want; one of no bytes needs no
// key (IBTA 10.6.3.3).
func (w *SendWR) CheckList(t *mem.Table, pd mem.PD, want rdma.Access) {
	list := w.List()
	for i := range list {
		s := &list[i]
		if s.Length == 0 {
			continue
		}
		if _, f := t.Check(rdma.Key(s.LKey), pd, s.Addr, uint64(s.Length), want); f != mem.FaultNone {
			w.SetFault(f)
			w.Bad = uint8(i)
			return
		}
	}
}
