package faulty

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/loop"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
)

func openPair(t *testing.T) (a, b *loop.Port) {
	t.Helper()
	hub := loop.NewHub(loop.Config{})
	open := func(name string, addr netip.Addr) *loop.Port {
		p, err := hub.Open(name, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	return open("a", addrA), open("b", addrB)
}

func decorate(t *testing.T, below netio.Port, text string) *Port {
	t.Helper()
	profile, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(below, profile)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func numbered(from, n int) []netio.Datagram {
	var list []netio.Datagram
	for i := range n {
		b := make([]byte, 16, 16+netio.TrailerBytes)
		binary.BigEndian.PutUint32(b[12:], uint32(from+i))
		list = append(list, netio.Datagram{
			Buf: b, Path: roce.Path{Src: addrA, Dst: addrB, SrcPort: 0xc000, HopLimit: 64},
		})
	}
	return list
}

func receiveNumbers(t *testing.T, p netio.Port) []int {
	t.Helper()
	var numbers []int
	batch := make([]netio.Datagram, 16)
	for {
		n, err := p.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range batch[:n] {
			numbers = append(numbers, int(binary.BigEndian.Uint32(d.Buf[12:])))
		}
		if n == 0 {
			return numbers
		}
	}
}

// run sends n packets, one each microsecond, and returns what arrives, in order.
func run(t *testing.T, text string, n int) (*Port, []int) {
	t.Helper()
	a, b := openPair(t)
	p := decorate(t, a, text)
	var numbers []int
	now := clock.Time(0)
	for i := range n {
		now = now.Add(time.Microsecond)
		p.Poll(now)
		if sent, err := p.Send(numbered(i, 1)); sent != 1 || err != nil {
			t.Fatal(sent, err)
		}
		numbers = append(numbers, receiveNumbers(t, b)...)
	}
	for p.NextDeadline() != clock.Never {
		now = p.NextDeadline()
		p.Poll(now)
		numbers = append(numbers, receiveNumbers(t, b)...)
	}
	return p, numbers
}

func TestPort_AllFaults_CountsAgreeWithWhatArrives(t *testing.T) {
	const n = 5000
	text := "loss=5%,dup=3%,reorder=4%,corrupt=2%,delay=20us,jitter=10us,seed=11"
	p, numbers := run(t, text, n)
	c := p.Counters()
	lost, doubled := int(c.Get(netio.FaultLost)), int(c.Get(netio.FaultDuplicated))
	damaged := int(c.Get(netio.FaultCorrupted))
	if lost == 0 || doubled == 0 || damaged == 0 || c.Get(netio.FaultReordered) == 0 ||
		c.Get(netio.FaultDelayed) == 0 || c.Get(netio.FaultOverrun) != 0 {
		c.Each(func(i netio.CounterInfo, v uint64) { t.Logf("%s = %d", i.Name, v) })
		t.Fatal("a fault did not happen")
	}
	// Damage in the one byte that the ICRC leaves out goes unseen.
	least, most := n-lost+doubled-damaged, n-lost+doubled
	if len(numbers) < least || len(numbers) >= most || least+damaged/4 < len(numbers) {
		t.Errorf("%d arrived, want %d or a few more", len(numbers), least)
	}
	if slices.IsSorted(numbers) {
		t.Error("nothing was reordered")
	}
	again, second := run(t, text, n)
	if !slices.Equal(numbers, second) {
		t.Error("the same seed gave another result")
	}
	_ = again
	_, third := run(t, text+"2", n)
	if slices.Equal(numbers, third) {
		t.Error("another seed gave the same result")
	}
	if p.Name() != "faulty(loop:a)" {
		t.Errorf("name %q", p.Name())
	}
}

func TestPort_PerfectProfile_PassesAllAtOnce(t *testing.T) {
	_, numbers := run(t, "", 100)
	if len(numbers) != 100 || !slices.IsSorted(numbers) {
		t.Errorf("arrived: %v", numbers)
	}
}

func TestPort_Delay_ReleasedByTimeAlone(t *testing.T) {
	a, b := openPair(t)
	p := decorate(t, a, "delay=1ms")
	p.Poll(1000)
	if p.NextDeadline() != clock.Never {
		t.Error("a deadline without a packet")
	}
	if n, err := p.Send(numbered(0, 10)); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	due := clock.Time(1000).Add(time.Millisecond)
	if got := p.NextDeadline(); got != due {
		t.Errorf("deadline %d, want %d", got, due)
	}
	p.Poll(due - 1)
	if got := receiveNumbers(t, b); len(got) != 0 {
		t.Errorf("too early: %v", got)
	}
	p.Poll(due)
	if got := receiveNumbers(t, b); len(got) != 10 || !slices.IsSorted(got) {
		t.Errorf("when due: %v", got)
	}
}

func TestPort_BothDirections_ReceiveHasFaultsToo(t *testing.T) {
	a, b := openPair(t)
	p := decorate(t, b, "loss=10%,dup=10%,corrupt=5%,reorder=5%,delay=10us,seed=5,direction=both")
	var numbers []int
	now := clock.Time(0)
	const n = 1000
	for i := range n {
		now = now.Add(time.Microsecond)
		p.Poll(now)
		if _, err := a.Send(numbered(i, 1)); err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, receiveNumbers(t, p)...)
	}
	for p.NextDeadline() != clock.Never {
		p.Poll(p.NextDeadline())
		numbers = append(numbers, receiveNumbers(t, p)...)
	}
	c := b.Counters()
	want := n - int(c.Get(netio.FaultLost)) - int(c.Get(netio.FaultCorrupted)) +
		int(c.Get(netio.FaultDuplicated))
	if len(numbers) != want || want == n || slices.IsSorted(numbers) {
		t.Errorf("%d arrived, want %d, reordered", len(numbers), want)
	}
}

// stuck takes a few datagrams and is full then.
type stuck struct {
	netio.Port
	room int
}

func (s *stuck) Send(batch []netio.Datagram) (int, error) {
	n, err := s.Port.Send(batch[:min(s.room, len(batch))])
	s.room -= n
	return n, err
}

func TestPort_FullPortBelow_NothingLostAndBackPressure(t *testing.T) {
	a, b := openPair(t)
	below := &stuck{Port: a, room: 3}
	p := decorate(t, below, "")
	p.Poll(1)
	if n, err := p.Send(numbered(0, 10)); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.Send(numbered(10, 10)); n != 0 || err != nil {
		t.Fatalf("a full port took %d, %v", n, err)
	}
	if got := p.NextDeadline(); got != clock.Time(1).Add(retryDelay) {
		t.Errorf("deadline %d although packets wait for room", got)
	}
	below.room = 5
	p.Poll(2)
	below.room = 100
	if n, err := p.Send(numbered(10, 10)); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	got := receiveNumbers(t, b)
	if len(got) != 20 || !slices.IsSorted(got) {
		t.Errorf("arrived: %v", got)
	}
}

func TestPort_TooManyHeld_OverrunCounted(t *testing.T) {
	a, _ := openPair(t)
	p := decorate(t, a, "delay=1s")
	for range 3 {
		if n, err := p.Send(numbered(0, heldMax)); n != heldMax || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := p.Counters().Get(netio.FaultOverrun); got != 2*heldMax {
		t.Errorf("%d overruns, want %d", got, 2*heldMax)
	}
}

func TestPort_SetProfile_ChecksAndChanges(t *testing.T) {
	a, b := openPair(t)
	p := decorate(t, a, "loss=100%")
	_, _ = p.Send(numbered(0, 5))
	if err := p.SetProfile(Profile{Loss: 2}); err == nil || p.Profile().Loss != 1 {
		t.Error("a bad profile was taken")
	}
	if err := p.SetProfile(Profile{}); err != nil || !p.Profile().IsZero() {
		t.Fatal(err)
	}
	_, _ = p.Send(numbered(5, 5))
	if got := receiveNumbers(t, b); !slices.Equal(got, []int{5, 6, 7, 8, 9}) {
		t.Errorf("arrived: %v", got)
	}
}

func TestPort_SteadyState_NoAllocation(t *testing.T) {
	a, b := openPair(t)
	p := decorate(t, a, "loss=5%,dup=5%,reorder=5%,corrupt=5%,delay=3us,seed=1")
	list := numbered(0, 16)
	batch := make([]netio.Datagram, 64)
	now := clock.Time(0)
	step := func() {
		now = now.Add(time.Microsecond)
		p.Poll(now)
		_, _ = p.Send(list)
		for {
			if n, _ := b.Receive(batch); n == 0 {
				return
			}
		}
	}
	for range 5000 {
		step() // slots and slices reach their sizes
	}
	if allocs := testing.AllocsPerRun(500, step); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
