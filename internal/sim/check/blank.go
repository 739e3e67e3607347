package check

import "sync"

// pageBytes is the grain in which a memory knows what was used of it.
const pageBytes = 4096

// blankPages is the period of the blank pattern: short enough to stay in a processor's cache while
// memories are compared with it, and not a power of two, at which addresses are often apart that
// are mixed up.
const blankPages = 15

var blankPattern = func() [blankPages * pageBytes]byte {
	var b [blankPages * pageBytes]byte
	Fill(b[:], 0x626c616e6b, 0)
	return b
}()

// blank is what a page holds that was never in use.
func blank(page int) []byte {
	at := page % blankPages * pageBytes
	return blankPattern[at : at+pageBytes]
}

// blanksMax bounds the bytes that wait for the next run, with their shadows: a few worlds of the
// usual size.
const blanksMax = 256 << 20

// blanks are memories that hold nothing but the blank pattern: worlds come and go many a second,
// and most of what one makes is what the one before left.
var blanks blankList

type blankList struct {
	mu     sync.Mutex
	bySize map[int][]*Memory // guarded by mu, as is bytes
	bytes  int
}

func (l *blankList) take(size int) *Memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.bySize[size]
	if len(list) == 0 {
		return nil
	}
	m := list[len(list)-1]
	l.bySize[size] = list[:len(list)-1]
	l.bytes -= 2 * size
	return m
}

func (l *blankList) give(m *Memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if size := len(m.Bytes); l.bytes+2*size <= blanksMax {
		if l.bySize == nil {
			l.bySize = map[int][]*Memory{}
		}
		l.bySize[size] = append(l.bySize[size], m)
		l.bytes += 2 * size
	}
}

// Recycle gives the memory to whoever needs one next. Nobody may use it any more. Where a court has
// found something wrong, nobody knows what the memory holds, and it is not used again.
func (m *Memory) Recycle() {
	if m.Court.HasFailed() {
		return
	}
	for i, isUsed := range m.inUse {
		if isUsed {
			copy(m.page(m.Bytes, i), blank(i))
		}
	}
	clear(m.inUse)
	blanks.give(&Memory{Bytes: m.Bytes, shadow: m.shadow, inUse: m.inUse})
}
