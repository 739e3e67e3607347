package daemon

import "sync/atomic"

// latch lets one goroutine wait until the lane has done what it asked for.
//
// It waits in the kernel. A channel would make the goroutine runnable on the lane's thread, which
// goes on; other threads take it from there only after a pause of 3 µs that the Go scheduler asks
// of the kernel, and of which timer slack makes 60. A request took 28 µs with it and takes 16
// without, on 2 processors.
type latch struct {
	open atomic.Uint32
	// done is closed instead, for a goroutine that may not keep a thread.
	done chan struct{}
}

// waitersMax bounds the threads that wait for the lane at once; more goroutines than that wait
// without one, lest a flood of requests cost a thread each.
const waitersMax = 8

// wait returns once the latch is released. The store in release comes before the load that ends
// the loop, so that what the lane did before is seen after.
func (l *latch) wait() {
	if l.done != nil {
		<-l.done
		return
	}
	for l.open.Load() == 0 {
		futexWait(&l.open)
	}
}

// release does not block.
func (l *latch) release() {
	if l.done != nil {
		close(l.done)
		return
	}
	l.open.Store(1)
	futexWake(&l.open)
}
