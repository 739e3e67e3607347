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
	left int
}

func (h *hoarder) Receive(batch []netio.Datagram) (int, error) {
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
