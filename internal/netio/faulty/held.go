package faulty

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
)

// heldMax bounds the packets that are held back in one direction: 17 MB of the longest, and more
// than a window of every queue pair of a busy NIC. What exceeds it is lost, like in a switch.
const heldMax = 4096

// slot is one packet that is held back, in a buffer of its own that is used again and again.
type slot struct {
	datagram netio.Datagram
	buffer   []byte
	at       clock.Time
	number   uint64 // order of arrival: breaks ties
}

// held is a heap of packets by time.
type held struct {
	heap  []*slot
	free  []*slot
	count uint64 // packets ever held
	total int    // slots in existence
}

// hold copies a datagram; false when there is no room.
func (h *held) hold(d *netio.Datagram, at clock.Time) bool {
	s := h.slot()
	if s == nil {
		return false
	}
	n := len(d.Buf)
	whole := d.Buf
	if cap(d.Buf)-n >= netio.TrailerBytes {
		whole = d.Buf[:n+netio.TrailerBytes]
	}
	s.buffer = append(s.buffer[:0], whole...)
	for len(s.buffer) < n+netio.TrailerBytes {
		s.buffer = append(s.buffer, 0)
	}
	s.datagram = *d
	s.datagram.Buf = s.buffer[:n:len(s.buffer)]
	s.at = at
	s.number = h.count
	h.count++
	h.push(s)
	return true
}

func (h *held) slot() *slot {
	if n := len(h.free); n > 0 {
		s := h.free[n-1]
		h.free = h.free[:n-1]
		return s
	}
	if h.total == heldMax {
		return nil
	}
	h.total++
	return &slot{}
}

// release gives a slot that was popped back.
func (h *held) release(s *slot) { h.free = append(h.free, s) }

// next returns when the first packet is due.
func (h *held) next() clock.Time {
	if len(h.heap) == 0 {
		return clock.Never
	}
	return h.heap[0].at
}

func (h *held) less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}

func (h *held) push(s *slot) {
	h.heap = append(h.heap, s)
	for i := len(h.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.heap[i], h.heap[parent] = h.heap[parent], h.heap[i]
		i = parent
	}
}

// pop removes the first packet. Preconditions: there is one.
func (h *held) pop() *slot {
	top := h.heap[0]
	last := len(h.heap) - 1
	h.heap[0] = h.heap[last]
	h.heap[last] = nil
	h.heap = h.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && h.less(child+1, child) {
			child++
		}
		if child >= last || !h.less(child, i) {
			return top
		}
		h.heap[i], h.heap[child] = h.heap[child], h.heap[i]
		i = child
	}
}
