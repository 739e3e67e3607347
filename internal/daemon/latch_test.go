package daemon

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
)

func TestLatch_ManyRounds_NobodySleepsOn(t *testing.T) {
	for range 2000 {
		var l latch
		done := make(chan struct{})
		go func() {
			l.wait()
			close(done)
		}()
		l.release()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("released, and nobody woke")
		}
	}
}

// More goroutines than may keep a thread are served as well.
func TestLane_ManyAskAtOnce_EachIsServed(t *testing.T) {
	l := newTestLane(t)
	go l.run()
	defer l.stop()
	var ran atomic.Int32
	var all sync.WaitGroup
	const askers, each = 10 * waitersMax, 50
	for range askers {
		all.Go(func() {
			for range each {
				if !l.do(func(clock.Time) { ran.Add(1) }) {
					t.Error("the lane has ended")
				}
			}
		})
	}
	all.Wait()
	if got := ran.Load(); got != askers*each || l.waiters.Load() != 0 {
		t.Errorf("%d of %d ran; %d wait", got, askers*each, l.waiters.Load())
	}
}
