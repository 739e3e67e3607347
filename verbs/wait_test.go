package verbs

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ring"
)

// patience bounds what must happen soon; a failure takes that long, a success does not.
const patience = time.Minute

func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s does not end", what)
	}
}

// aside runs f beside the test, which does not end before it.
func aside(t *testing.T, f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	t.Cleanup(wg.Wait)
}

// asleep waits until a goroutine that waits for q has asked for an event.
func asleep(t *testing.T, q *fakeCQ) {
	t.Helper()
	arm := ring.Word(q.memory.Bytes(), abi.OffCQArm)
	for end := time.Now().Add(patience); arm.Load() == abi.ArmNone; {
		time.Sleep(10 * time.Microsecond)
		if time.Now().After(end) {
			t.Fatal("nobody asked for an event")
		}
	}
}

func TestWait_Completion_Wakes(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.cq(r.cq)
	var wcs [4]WC
	for i := range uint64(50) {
		aside(t, func() {
			if i%2 == 0 {
				asleep(t, q)
			}
			q.push(abi.CQE{WRID: i})
		})
		within(t, "Wait", func() {
			if err := r.cq.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
		if n, err := r.cq.Poll(wcs[:]); n != 1 || err != nil || wcs[0].ID != i {
			t.Fatalf("round %d: polled %d, %v, %+v", i, n, err, wcs[0])
		}
	}
}

// Case E11: asking for an event, then polling, never misses a completion that came in between.
func TestWait_E11_ConcurrentPush_LosesNoWakeup(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.cq(r.cq)
	const total = 1000
	aside(t, func() {
		for i := range uint64(total) {
			for q.isFull() {
				time.Sleep(10 * time.Microsecond)
			}
			q.push(abi.CQE{WRID: i})
			if i%7 == 0 && i < total-1 {
				asleep(t, q)
			}
		}
	})
	within(t, "waiting for every completion", func() {
		var wcs [1]WC
		for i := uint64(0); i < total; {
			if err := r.cq.Wait(t.Context()); err != nil {
				t.Error(err)
				return
			}
			for {
				n, err := r.cq.Poll(wcs[:])
				if err != nil || n > 0 && wcs[0].ID != i {
					t.Errorf("at %d: %+v, %v", i, wcs[0], err)
					return
				}
				if n == 0 {
					break
				}
				i++
			}
		}
	})
}

func TestWait_ManyWaiters_AllSeeACompletion(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.cq(r.cq)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := r.cq.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	asleep(t, q)
	q.push(abi.CQE{})
	within(t, "waking all", wg.Wait)
}

func TestWait_Cancelled_LeaksNoGoroutine(t *testing.T) {
	r := newRig(t, QPConfig{})
	before := runtime.NumGoroutine()
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := r.cq.Wait(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled wait: %v", err)
				}
			})
		}
		asleep(t, r.nic.cq(r.cq))
		cancel()
		within(t, "cancelling", wg.Wait)
	}
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; {
		time.Sleep(time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
	// A cancelled wait leaves its request for an event behind; the next one uses it.
	aside(t, func() { r.nic.cq(r.cq).push(abi.CQE{}) })
	within(t, "the wait after", func() {
		if err := r.cq.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The NIC closes its end of the pipe before it answers: that is no sign of its death.
func TestChannel_ClosedUnderItsReader_ContextLivesOn(t *testing.T) {
	_, c := openFake(t)
	for range 50 {
		ch, err := c.CreateCompletionChannel()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := ch.Next(t.Context())
			ended <- err
		}()
		if err := ch.Close(); err != nil {
			t.Fatal(err)
		}
		within(t, "Next", func() {
			if err := <-ended; !errors.Is(err, ErrClosed) {
				t.Errorf("Next: %v", err)
			}
		})
		if c.isDead() {
			t.Fatal("the NIC is taken for dead")
		}
	}
}

func TestChannel_SharedByTwoQueues_NamesTheQueue(t *testing.T) {
	n, c := openFake(t)
	ch, err := c.CreateCompletionChannel()
	if err != nil {
		t.Fatal(err)
	}
	var cqs [2]*CQ
	for i := range cqs {
		if cqs[i], err = c.CreateCQ(CQConfig{Channel: ch}); err != nil {
			t.Fatal(err)
		}
		if err := cqs[i].RequestNotify(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := cqs[0].Wait(t.Context()); !errors.Is(err, ErrNoChannel) {
		t.Errorf("wait on a shared channel: %v", err)
	}
	n.cq(cqs[1]).push(abi.CQE{})
	n.cq(cqs[0]).push(abi.CQE{})
	for _, want := range []*CQ{cqs[1], cqs[0]} {
		within(t, "Next", func() {
			if got, err := ch.Next(t.Context()); got != want || err != nil {
				t.Errorf("got %p, %v, want %p", got, err, want)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := ch.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no event, but %v", err)
	}
}

func TestNICGone_EverybodyHears(t *testing.T) {
	r := newRig(t, QPConfig{})
	shared, err := r.ctx.CreateCompletionChannel()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var heard atomic.Int32
	expect := func(what string, err error) {
		if errors.Is(err, ErrDeviceFatal) {
			heard.Add(1)
		} else {
			t.Errorf("%s: %v", what, err)
		}
	}
	wg.Go(func() { expect("Wait", r.cq.Wait(t.Context())) })
	wg.Go(func() { _, err := shared.Next(t.Context()); expect("Next", err) })
	wg.Go(func() {
		e, err := r.ctx.NextEvent(t.Context())
		if e.Type != EventDeviceFatal || err != nil {
			t.Errorf("event %v, %v", e, err)
		}
		_, err = r.ctx.NextEvent(t.Context())
		expect("NextEvent", err)
	})
	asleep(t, r.nic.cq(r.cq))
	r.nic.kill()
	within(t, "waking all", wg.Wait)
	if heard.Load() != 3 {
		t.Errorf("%d of 3 heard", heard.Load())
	}
	_, err = r.qp.PostSend(SendWR{Opcode: WRSend})
	expect("PostSend", err)
	_, err = r.qp.PostRecv(RecvWR{})
	expect("PostRecv", err)
	var wcs [1]WC
	_, err = r.cq.Poll(wcs[:])
	expect("Poll", err)
	expect("RequestNotify", r.cq.RequestNotify(false))
	_, err = r.ctx.AllocPD()
	expect("AllocPD", err)
	_, err = r.pd.Register(make([]byte, 8), 0)
	expect("Register", err)
	expect("Modify", r.qp.ToError())
	_, err = r.ctx.GIDs()
	expect("GIDs", err)
	select {
	case <-r.ctx.Dead():
	default:
		t.Error("Dead is open")
	}
	// What is gone with the NIC can be closed without complaint.
	if err := errors.Join(r.qp.Close(), r.cq.Close(), shared.Close(), r.ctx.Close()); err != nil {
		t.Errorf("closing: %v", err)
	}
}

func TestClose_EndsWaitersAndCalls(t *testing.T) {
	r := newRig(t, QPConfig{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.cq.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("Wait: %v", err)
		}
	})
	wg.Go(func() {
		if _, err := r.ctx.NextEvent(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("NextEvent: %v", err)
		}
	})
	wg.Go(func() {
		for {
			if _, err := r.qp.PostSend(SendWR{Opcode: WRSend}); err != nil {
				if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrQueueFull) {
					t.Errorf("PostSend: %v", err)
				}
				return
			}
		}
	})
	asleep(t, r.nic.cq(r.cq))
	if err := r.ctx.Close(); err != nil {
		t.Error(err)
	}
	within(t, "ending all", wg.Wait)
	var wcs [1]WC
	_, err1 := r.cq.Poll(wcs[:])
	_, err2 := r.qp.PostRecv(RecvWR{})
	_, err3 := r.ctx.AllocPD()
	for _, err := range []error{err1, err2, err3, r.cq.RequestNotify(false)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestEvents_NameTheirObject(t *testing.T) {
	r := newRig(t, QPConfig{})
	r.nic.raise(EventCommEst, r.qp.handle)
	r.nic.raise(EventPortActive, 1)
	r.nic.raise(EventQPFatal, 9999)
	ring.Word(r.nic.cq(r.cq).memory.Bytes(), abi.OffCQState).Store(1)
	r.nic.raise(EventCQErr, r.cq.handle)
	want := []Event{
		{Type: EventCommEst, QP: r.qp},
		{Type: EventPortActive, Port: 1},
		{Type: EventQPFatal},
		{Type: EventCQErr, CQ: r.cq},
	}
	i := 0
	for e := range r.ctx.Events(t.Context()) {
		if e != want[i] {
			t.Errorf("event %d: %v, want %v", i, e, want[i])
		}
		if i++; i == len(want) {
			break
		}
	}
	within(t, "waiting on a failed queue", func() {
		if err := r.cq.Wait(t.Context()); !errors.Is(err, ErrCQOverrun) {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestWait_QueueFailsMeanwhile_Ends(t *testing.T) {
	r := newRig(t, QPConfig{})
	q := r.nic.cq(r.cq)
	aside(t, func() {
		asleep(t, q)
		ring.Word(q.memory.Bytes(), abi.OffCQState).Store(1)
		r.nic.raise(EventCQErr, r.cq.handle)
	})
	within(t, "Wait", func() {
		if err := r.cq.Wait(t.Context()); !errors.Is(err, ErrCQOverrun) {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestEvents_NobodyListens_OldestAreDropped(t *testing.T) {
	r := newRig(t, QPConfig{})
	for i := range uint32(eventsKept + 10) {
		r.nic.raise(EventPortActive, i+1)
	}
	for end := time.Now().Add(patience); r.ctx.EventsLost() < 10; {
		time.Sleep(time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("%d lost", r.ctx.EventsLost())
		}
	}
	if e, err := r.ctx.NextEvent(t.Context()); e.Port != 11 || err != nil {
		t.Errorf("the oldest left is %v, %v", e, err)
	}
}
