package daemon_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/verbs"
)

// counts are the counters of a NIC's TCP.
func counts(t *testing.T, d *daemon.Daemon) map[string]uint64 {
	t.Helper()
	s, ok := d.Status()
	if !ok {
		t.Fatal("no status")
	}
	return s.Streams.Counters
}

func TestDaemon_TCPWithinOneNIC_BytesPassInMemory(t *testing.T) {
	for _, off := range []string{"", "1"} {
		t.Run("RNIC_DISABLE_JOIN="+off, func(t *testing.T) {
			t.Setenv("RNIC_DISABLE_JOIN", off)
			d := startIWARP(t)
			a, b := meetByTCP(t, d)
			before := counts(t, d)
			a.send(b, bytes.Repeat([]byte("there"), 40_000))
			after := counts(t, d)
			moved := after["joined_bytes"] - before["joined_bytes"]
			carried := after["tx_bytes"] - before["tx_bytes"]
			if off == "" && (carried > 0 || moved < 200_000) || off != "" && moved > 0 {
				t.Errorf("%d bytes by TCP, %d in memory", carried, moved)
			}
			s, _ := d.Status()
			for _, c := range s.Contexts {
				for _, q := range c.QPs {
					if q.Stream == nil || q.Stream.IsInside != (off == "") {
						t.Errorf("queue pair %#x: %+v", q.QPN, q.Stream)
					}
				}
			}
		})
	}
}

// post posts count SENDs of the whole buffer.
func (e *tcpEnd) post(count int) {
	e.t.Helper()
	for range count {
		if _, err := e.conn.QP().PostSend(verbs.SendWR{
			Opcode: verbs.WRSend, SGE: e.mr.SGE(0, tcpBuffer), Flags: verbs.SendSignaled,
		}); err != nil {
			e.t.Fatal(err)
		}
	}
}

// poll takes what a queue has.
func poll(t *testing.T, cq *verbs.CQ) []verbs.WC {
	t.Helper()
	wcs := make([]verbs.WC, 64)
	n, err := cq.Poll(wcs)
	if err != nil {
		t.Fatal(err)
	}
	return wcs[:n]
}

// TestDaemon_TCPWithinOneNIC_NoReceive_SenderWaits has one receive for four messages, and posts the
// others later: nothing of them is lost meanwhile.
func TestDaemon_TCPWithinOneNIC_NoReceive_SenderWaits(t *testing.T) {
	d := startIWARP(t)
	a, b := meetByTCP(t, d)
	a.post(4)
	taken, sent := 0, 0
	eventually(t, "the first message", func() bool {
		taken += len(poll(t, b.conn.RecvCQ()))
		return taken == 1
	})
	time.Sleep(100 * time.Millisecond) // a tenth of what the NIC waits for
	if sent = len(poll(t, a.conn.SendCQ())); sent > 2 {
		t.Errorf("%d messages are complete, and one has a receive", sent)
	}
	for range 3 {
		if _, err := b.conn.QP().PostRecv(verbs.RecvWR{SGE: b.mr.SGE(0, tcpBuffer)}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all messages", func() bool {
		taken += len(poll(t, b.conn.RecvCQ()))
		for _, wc := range poll(t, a.conn.SendCQ()) {
			if err := wc.Err(); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		return taken == 4 && sent == 4
	})
}

// TestDaemon_TCPWithinOneNIC_EndAmidMessages ends the program at one end, in the middle of what
// both send.
func TestDaemon_TCPWithinOneNIC_EndAmidMessages_OtherHearsOfIt(t *testing.T) {
	d := startIWARP(t)
	failed := verbs.QPAttr{State: verbs.QPStateError}
	for range 4 {
		a, b := meetByTCP(t, d)
		a.post(6)
		b.post(6)
		if err := a.conn.QP().Modify(failed, verbs.QPAttrState); err != nil {
			t.Fatal(err)
		}
		select {
		case <-b.conn.Done():
		case <-time.After(testTimeout):
			t.Fatal("the other end is not told")
		}
		over := 0
		eventually(t, "its messages and its receive are over", func() bool {
			over += len(poll(t, b.conn.SendCQ())) // which is that for receives as well
			return over == 7
		})
		_, _ = a.conn.Close(), b.conn.Close()
	}
	eventually(t, "no connection is left", func() bool {
		s, ok := d.Status()
		return ok && s.Streams.Connections == 0 && s.Streams.Closing == 0
	})
}
