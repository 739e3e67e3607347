package daemon

import (
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
)

// hoarder is a port that has taken more packets off its socket than a lane takes in a turn.
type hoarder struct {
	netio.Port
	left  int
	asked int
}

func (h *hoarder) Receive(batch []netio.Datagram) (int, error) {
	h.asked++
	n := min(h.left, len(batch))
	h.left -= n
	for i := range batch[:n] {
		batch[i].Buf = []byte("no packet")
	}
	return n, nil
}

func (h *hoarder) Close() error { return nil }

func (h *hoarder) Poll(clock.Time) {}

func (h *hoarder) NextDeadline() clock.Time { return clock.Never }

// A lane that loses its processor between two turns must come back for what the port holds: no
// socket is readable any more.
func TestLane_PortHoldsMore_IsAskedAgainHoweverLate(t *testing.T) {
	l := newTestLane(t)
	const turnful = batchesPerTurn * datagramBatch
	port := &hoarder{left: 2*turnful + 1}
	l.wire = port
	now := clock.Time(0)
	l.hot = now.Add(hotTime) // epoll has reported the socket
	for _, left := range []int{turnful + 1, 1, 0} {
		if !l.receive(now) || port.left != left {
			t.Errorf("%d packets left, not %d", port.left, left)
		}
		now = now.Add(time.Second)
	}
	if l.receive(now) {
		t.Error("an empty port counts as work")
	}
	if l.stats.malformed != 2*turnful+1 {
		t.Errorf("%d packets handled", l.stats.malformed)
	}
}

// Where epoll has just been asked and told of a doorbell alone, the sockets are not asked before it
// is answered.
func TestLane_OnlyDoorbellWakes_PortIsNotAsked(t *testing.T) {
	l := newTestLane(t)
	port := &hoarder{}
	l.wire = port
	l.heatUp()
	l.wait(0, 0)
	for turn, asked := range []int{0, 1, 2} {
		l.receive(0)
		if port.asked != asked {
			t.Errorf("turn %d: the port was asked %d times, not %d", turn, port.asked, asked)
		}
	}
	l.wait(0, 0)
	l.owed = true
	if l.receive(0); port.asked != 3 {
		t.Error("a port that may hold packets was not asked")
	}
}
