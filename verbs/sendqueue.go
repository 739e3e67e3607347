package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// sendQueue is the application's end of a send queue.
type sendQueue struct {
	ctx       *Context
	state     *atomic.Uint32 // the QP's, written by the NIC
	bell      bell
	service   services
	qpType    QPType
	maxSGE    int
	maxInline int
	slots     *slots
	refused   *refusals

	mu     sync.Mutex
	closed bool           // guarded by mu
	ring   *ring.Producer // guarded by mu; its memory is gone once closed
}

func (q *sendQueue) post(wrs []SendWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked(); err != nil {
		if len(wrs) > 0 && !q.closed {
			q.refused.note(wrs[0].ID, uint32(wrs[0].Opcode), err)
		}
		return 0, err
	}
	n := 0
	var err error
	for n < len(wrs) {
		if err = q.putLocked(&wrs[n]); err != nil {
			q.refused.note(wrs[n].ID, uint32(wrs[n].Opcode), err)
			break
		}
		n++
	}
	if n > 0 {
		q.ring.Publish()
		q.bell.ring()
	}
	return n, err
}

func (q *sendQueue) usableLocked() error {
	switch {
	case q.closed:
		return ErrClosed
	case q.ctx.isDead():
		return ErrDeviceFatal
	}
	switch state := QPState(q.state.Load()); state {
	case rdma.QPStateRTS, rdma.QPStateSQD, rdma.QPStateSQE, rdma.QPStateError:
		return nil
	default:
		return badSend("the QP is in state %v; it can send from RTS on", state)
	}
}

func (q *sendQueue) putLocked(wr *SendWR) error {
	switch {
	case !q.service.has(wr.Opcode):
		return badSend("a %v QP has no operation %v (%d)", q.qpType, wr.Opcode, uint8(wr.Opcode))
	case len(wr.SGE) > q.maxSGE:
		return badSend("%d scatter/gather entries; the QP has room for %d", len(wr.SGE), q.maxSGE)
	case len(wr.Inline) > q.maxInline:
		return badSend("%d bytes inline; the QP has room for %d", len(wr.Inline), q.maxInline)
	case wr.Inline == nil && wr.Flags&rdma.SendInline != 0:
		return badSend("inline data goes into SendWR.Inline, the flag alone says nothing")
	case wr.Inline != nil && len(wr.SGE) > 0:
		return badSend("a work request has either Inline or SGE")
	case wr.Inline != nil && opReturnsData(wr.Opcode):
		return badSend("%v brings data back, which needs SGE, not Inline", wr.Opcode)
	case q.service == onUD && wr.AH == nil:
		return badSend("a datagram needs an address handle")
	case q.ring.Free() == 0:
		return ErrQueueFull
	}
	if err := checkLocal(wr); err != nil {
		return err
	}
	e := abi.SendWQE{
		WRID: wr.ID, Opcode: uint8(wr.Opcode), Flags: uint8(wr.Flags),
		NumSGE: uint16(len(wr.SGE)), RemoteAddr: wr.RemoteAddr, RKey: uint32(wr.RKey),
		CompareAdd: wr.CompareAdd, Swap: wr.Swap,
	}
	switch wr.Opcode {
	case rdma.WRSendWithInv, rdma.WRLocalInvalidate:
		e.ImmOrRKey = uint32(wr.InvalidateKey)
	case rdma.WRBindMW:
		wr.Bind.put(&e)
	case rdma.WRFlush:
		wr.Flush.put(&e)
	default:
		e.ImmOrRKey = swapImm(wr.Imm)
	}
	if q.service == onXRC && wr.Opcode != rdma.WRBindMW {
		e.Extra = wr.SRQN
	}
	if q.service == onUD {
		e.AH, e.RemoteQPN, e.RemoteQKey = wr.AH.handle, uint32(wr.RemoteQPN), uint32(wr.RemoteQKey)
	}
	slot := q.ring.Slot()
	if wr.Inline != nil {
		e.Flags |= uint8(rdma.SendInline)
		e.InlineLen = uint32(len(wr.Inline))
		copy(slot[abi.SendWQEBytes:], wr.Inline)
	}
	abi.EncodeSendWQE(slot, &e)
	putSGEs(slot[abi.SendWQEBytes:], wr.SGE)
	q.ring.Push()
	return nil
}

// close ends posting; it waits for a post that is under way.
func (q *sendQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ring = nil
}

// checkLocal checks what is special to requests without data of this side.
func checkLocal(wr *SendWR) error {
	switch wr.Opcode {
	case rdma.WRBindMW, rdma.WRLocalInvalidate:
	case rdma.WRFlush:
		if wr.Flush == nil {
			return badSend("a flush needs SendWR.Flush")
		}
	default:
		return nil
	}
	if wr.Inline != nil || len(wr.SGE) > 0 {
		return badSend("%v has no data", wr.Opcode)
	}
	if wr.Opcode == rdma.WRBindMW {
		return wr.Bind.check()
	}
	return nil
}

func opReturnsData(op WROpcode) bool {
	return op == rdma.WRRead || op == rdma.WRCompareSwap || op == rdma.WRFetchAdd
}

func putSGEs(room []byte, list []SGE) {
	for i := range list {
		s := &list[i]
		abi.EncodeSGE(room, i, &abi.SGE{Addr: s.Addr, Length: s.Length, LKey: uint32(s.LKey)})
	}
}

func badSend(format string, args ...any) error {
	return refuse("post send", rdma.Refuse(syscall.EINVAL, fmt.Sprintf(format, args...)))
}
