package work

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Tagged is a tagged buffer: where the next message is to go whose tag fits. Nobody but its list
// changes what is exported.
type Tagged struct {
	WRID      uint64 // of the message's completions
	Tag, Mask uint64
	Handle    uint32
	List      []abi.SGE // into store

	store      [limits.MaxTagSGE]abi.SGE
	prev, next *Tagged // in the order of posting; next also of the free ones
	chain      *Tagged // of those with handles alike
}

// fits is the rule of matching (ibv_post_srq_ops(3)).
func (t *Tagged) fits(tag uint64) bool { return tag&t.Mask == t.Tag }

// Matcher is a shared receive queue that matches tags.
type Matcher interface {
	// Match takes the oldest buffer that a message with this tag fits, nil where there is none. Who
	// took it gives it back with Release.
	Match(tag uint64) *Tagged
	// NoteUnexpected counts a message that fitted none and goes to the queue's ordinary receives,
	// and returns flags for its completion.
	NoteUnexpected() rdma.WCFlags
	// Release makes room for another buffer.
	Release(t *Tagged)
}

// TagList is the matching list of a shared receive queue. Posting and matching happen on different
// sides, so both count the messages that fitted nothing: a buffer that was posted before its
// program knew of all of them might be meant for one of those, and is not matched until the counts
// have met (tag_matching.md of rdma-core).
type TagList struct {
	oldest, newest *Tagged
	// waiting is the first of those, at the end of the list, that are not matched yet.
	waiting *Tagged
	free    *Tagged
	buckets []*Tagged // by handle; a power of two
	used    int       // buffers that are not free

	unexpected uint32 // messages that fitted nothing, modulo 2^32
	handled    uint32 // how many of them the program says it knows
}

// NewTagList makes a list with room for n buffers, which is allocated at once.
func NewTagList(n uint32) *TagList {
	size := uint32(1)
	for size < n {
		size *= 2
	}
	l := &TagList{buckets: make([]*Tagged, size)}
	all := make([]Tagged, n)
	for i := range all {
		l.Release(&all[i])
	}
	l.used = 0
	return l
}

// Spare takes a buffer for Add out of those that are free; nil where there is none. Its list has
// room for n entries, at most limits.MaxTagSGE.
func (l *TagList) Spare(n int) *Tagged {
	t := l.free
	if t == nil {
		return nil
	}
	l.free = t.next
	l.used++
	t.List = t.store[:n]
	return t
}

// Add puts a spare buffer at the end of the list. Handle tells it from the others.
func (l *TagList) Add(t *Tagged) {
	t.prev, t.next = l.newest, nil
	if l.newest == nil {
		l.oldest = t
	} else {
		l.newest.next = t
	}
	l.newest = t
	b := l.bucket(t.Handle)
	t.chain, *b = *b, t
	if !l.IsSynced() && l.waiting == nil {
		l.waiting = t
	}
}

// Del releases the buffer with a handle and reports whether it was still in the list.
func (l *TagList) Del(handle uint32) bool {
	t := *l.bucket(handle)
	for t != nil && t.Handle != handle {
		t = t.chain
	}
	if t == nil {
		return false
	}
	l.take(t)
	l.Release(t)
	return true
}

// Match takes the oldest buffer that fits out of the list.
func (l *TagList) Match(tag uint64) *Tagged {
	for t := l.oldest; t != l.waiting; t = t.next {
		if t.fits(tag) {
			l.take(t)
			return t
		}
	}
	return nil
}

// NoteUnexpected counts a message that fitted nothing.
func (l *TagList) NoteUnexpected() rdma.WCFlags {
	l.unexpected++
	if l.unexpected-l.handled > limits.MaxTagDebt {
		return rdma.WCTagSyncWanted
	}
	return 0
}

// Sync takes the program's count of messages that fitted nothing. Where it is the list's own, the
// buffers that have waited for that are matched from now on.
func (l *TagList) Sync(handled uint32) {
	l.handled = handled
	if l.IsSynced() {
		l.waiting = nil
	}
}

// IsSynced reports that both sides know of the same messages.
func (l *TagList) IsSynced() bool { return l.handled == l.unexpected }

// Release puts a buffer that is not in the list among the free ones.
func (l *TagList) Release(t *Tagged) {
	t.List, t.prev, t.chain = nil, nil, nil
	t.next, l.free = l.free, t
	l.used--
}

// Used returns how many buffers are in the list or have a message under way.
func (l *TagList) Used() int { return l.used }

// Unexpected returns how many messages fitted nothing, and how many of them the program knows.
func (l *TagList) Unexpected() (seen, handled uint32) { return l.unexpected, l.handled }

func (l *TagList) take(t *Tagged) {
	if l.waiting == t {
		l.waiting = t.next
	}
	if t.prev == nil {
		l.oldest = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.newest = t.prev
	} else {
		t.next.prev = t.prev
	}
	b := l.bucket(t.Handle)
	for *b != t {
		b = &(*b).chain
	}
	*b = t.chain
}

func (l *TagList) bucket(handle uint32) **Tagged {
	return &l.buckets[handle&uint32(len(l.buckets)-1)]
}
