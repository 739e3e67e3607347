package daemon_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/netio/loop"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

func exchange(t *testing.T, a, b *end) {
	t.Helper()
	n := a.mr.Len()
	fill(a.mr.Bytes(), 1)
	b.recv(1, 0, n)
	a.post(verbs.SendWR{ID: 2, Opcode: rdma.WRSend, SGE: a.mr.SGE(0, n)})
	a.ok()
	wc := b.ok()
	equal := bytes.Equal(a.mr.Bytes(), b.mr.Bytes())
	if wc.ID != 1 || wc.ByteLen != uint32(n) || !equal {
		t.Errorf("SEND of %d bytes: %+v, equal %v", n, wc, equal)
	}
	fill(a.mr.Bytes(), 2)
	a.post(verbs.SendWR{
		Opcode: rdma.WRWrite, SGE: a.mr.SGE(0, n), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	})
	a.ok()
	if !bytes.Equal(a.mr.Bytes(), b.mr.Bytes()) {
		t.Errorf("WRITE of %d bytes: memory differs", n)
	}
	fill(b.mr.Bytes(), 3)
	a.post(verbs.SendWR{
		Opcode: rdma.WRRead, SGE: a.mr.SGE(0, n), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
	})
	a.ok()
	if !bytes.Equal(a.mr.Bytes(), b.mr.Bytes()) {
		t.Errorf("READ of %d bytes: memory differs", n)
	}
	if n < 16 {
		return
	}
	binary.NativeEndian.PutUint64(b.mr.Bytes()[8:], 40)
	a.post(verbs.SendWR{
		Opcode: rdma.WRFetchAdd, SGE: a.mr.SGE(0, 8), RemoteAddr: b.mr.Addr() + 8,
		RKey: b.mr.RKey(), CompareAdd: 2,
	})
	a.ok()
	was := binary.NativeEndian.Uint64(a.mr.Bytes())
	is := binary.NativeEndian.Uint64(b.mr.Bytes()[8:])
	if was != 40 || is != 42 {
		t.Errorf("FETCH_ADD: was %d, is %d", was, is)
	}
}

func TestDaemon_SameNIC_AllOperationsMoveTheBytes(t *testing.T) {
	d := startLocal(t)
	for _, mapped := range []bool{true, false} {
		for _, n := range []int{1, 64, 1024, 4097, 1 << 20} {
			t.Run(fmt.Sprintf("mapped=%v/%d", mapped, n), func(t *testing.T) {
				a, b := pair(t, d, n, mapped)
				exchange(t, a, b)
			})
		}
	}
}

func TestDaemon_FaultyNetwork_SameNICRecovers(t *testing.T) {
	const fault = "loss=2%,dup=2%,reorder=2%,corrupt=1%,seed=5"
	d := start(t, daemon.Config{Embedded: true, NoNetwork: true, Fault: fault})
	a, b := pair(t, d, 1<<20, true)
	exchange(t, a, b)
	s, _ := d.Status()
	if s.Fault == "" || s.Mirror == nil || s.Mirror.Counters["fault_lost"] == 0 ||
		s.Mirror.Counters["rx_icrc_bad"] == 0 {
		t.Errorf("no fault happened: %+v", s.Mirror)
	}
}

// startWired starts two embedded NICs on a wire in memory.
func startWired(t *testing.T, fault string) (a, b *daemon.Daemon) {
	hub := loop.NewHub(loop.Config{})
	wired := func(name, addr4, addr6 string) *daemon.Daemon {
		addrs := []netip.Addr{netip.MustParseAddr(addr4), netip.MustParseAddr(addr6)}
		port, err := hub.Open(name, addrs...)
		if err != nil {
			t.Fatal(err)
		}
		return start(t, daemon.Config{
			Embedded: true, Fault: fault, Wire: &daemon.Wire{Port: port, Addresses: addrs},
		})
	}
	return wired("a", "192.0.2.1", "2001:db8::1"), wired("b", "192.0.2.2", "2001:db8::2")
}

func TestDaemon_TwoNICs_AllOperationsCrossTheWire(t *testing.T) {
	da, db := startWired(t, "")
	for _, n := range []int{1, 4096, 4097, 1 << 20} {
		for gid := range 2 {
			a := newEnd(t, open(t, da), rdma.QPTypeRC, n, true)
			b := newEnd(t, open(t, db), rdma.QPTypeRC, n, false)
			connectOn(t, a, b, gid)
			exchange(t, a, b)
		}
	}
	s, _ := da.Status()
	if s.Network == nil || s.Network.Counters["rx_packets"] == 0 || s.Lane["looped_packets"] != 0 {
		t.Errorf("packets did not cross the wire: %+v", s)
	}
}

func TestDaemon_TwoNICsOnBadWire_Recover(t *testing.T) {
	da, db := startWired(t, "loss=1%,reorder=1%,dup=1%,corrupt=1%,delay=50us,jitter=20us,seed=3")
	a := newEnd(t, open(t, da), rdma.QPTypeRC, 300000, true)
	b := newEnd(t, open(t, db), rdma.QPTypeRC, 300000, true)
	connectOn(t, a, b, 0)
	exchange(t, a, b)
}

// connectOn connects by the GIDs at an index.
func connectOn(t *testing.T, a, b *end, index int) {
	t.Helper()
	endpoint := func(e *end) verbs.Endpoint {
		gids, err := e.ctx.GIDs()
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.qp.EndpointOn(gids[index])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	toA, toB := endpoint(a), endpoint(b)
	if err := errors.Join(a.qp.ConnectTo(toB), b.qp.ConnectTo(toA)); err != nil {
		t.Fatal(err)
	}
}

func TestDaemon_Lifecycle_LeaksNothing(t *testing.T) {
	settled(t, func() {
		d, err := daemon.Start(t.Context(), daemon.Config{Embedded: true, NoNetwork: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, mapped := range []bool{true, false} {
			a, b := pair(t, d, 5000, mapped)
			exchange(t, a, b)
			_, _ = a.ctx.Close(), b.ctx.Close()
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDaemon_ContextClosed_ObjectsVanish(t *testing.T) {
	d := startLocal(t)
	settled(t, func() {
		a, b := pair(t, d, 1<<16, true)
		exchange(t, a, b)
		_, _ = a.ctx.Close(), b.ctx.Close()
		eventually(t, "no context", func() bool {
			s, _ := d.Status()
			return len(s.Contexts) == 0 && s.Connections == 0
		})
	})
}

// cycle posts one operation of each kind that moves data, and reaps it.
func (e *end) cycle(wr []verbs.SendWR, wcs []verbs.WC) {
	if _, err := e.qp.PostSend(wr...); err != nil {
		e.t.Fatal(err)
	}
	for got := 0; got < len(wr); {
		n, err := e.cq.Poll(wcs)
		if err != nil {
			e.t.Fatal(err)
		}
		got += n
		runtime.Gosched()
	}
}

// Moving data costs no allocation anywhere: not in the program, the NIC or the port.
func TestDaemon_SteadyState_DoesNotAllocate(t *testing.T) {
	da, db := startWired(t, "")
	local := startLocal(t)
	for name, c := range map[string][2]*daemon.Daemon{"same NIC": {local, local}, "wire": {da, db}} {
		for _, mapped := range []bool{true, false} {
			a := newEnd(t, open(t, c[0]), rdma.QPTypeRC, 1<<16, mapped)
			b := newEnd(t, open(t, c[1]), rdma.QPTypeRC, 1<<16, mapped)
			connectOn(t, a, b, 0)
			wr := []verbs.SendWR{
				{Opcode: rdma.WRWrite, SGE: a.mr.SGE(0, 1<<16)},
				{Opcode: rdma.WRRead, SGE: a.mr.SGE(0, 1<<16)},
				{Opcode: rdma.WRWrite, SGE: a.mr.SGE(0, 8)},
			}
			for i := range wr {
				wr[i].Flags, wr[i].RKey, wr[i].RemoteAddr = verbs.SendSignaled, b.mr.RKey(), b.mr.Addr()
			}
			wcs := make([]verbs.WC, 8)
			for range 50 {
				a.cycle(wr, wcs)
			}
			if n := testing.AllocsPerRun(200, func() { a.cycle(wr, wcs) }); n >= 1 {
				t.Errorf("%s, mapped %v: %v allocations a cycle", name, mapped, n)
			}
		}
	}
}

// E11: a program that arms, polls and then waits never misses a completion.
func TestDaemon_ArmPollWait_E11_NoEventIsMissed(t *testing.T) {
	d := startLocal(t)
	a, b := pair(t, d, 4096, true)
	for range 8 {
		a.recv(1, 64, 64)
		b.recv(1, 64, 64)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	const rounds = 3000
	var group sync.WaitGroup
	play := func(e *end, first bool) {
		if first {
			e.post(verbs.SendWR{Opcode: rdma.WRSend, SGE: e.mr.SGE(0, 8)})
		}
		var wcs [4]verbs.WC
		for got := 0; got < rounds; {
			n, err := e.cq.Poll(wcs[:])
			if err == nil && n == 0 {
				err = e.cq.Wait(ctx)
			}
			if err != nil {
				t.Errorf("after %d messages: %v", got, err)
				return
			}
			for _, wc := range wcs[:n] {
				if err := wc.Err(); err != nil {
					t.Error(err)
					return
				}
				if wc.Opcode != rdma.WCOpRecv {
					continue
				}
				got++
				e.recv(1, 64, 64)
				if first && got == rounds {
					return
				}
				e.post(verbs.SendWR{Opcode: rdma.WRSend, SGE: e.mr.SGE(0, 8)})
			}
		}
	}
	group.Go(func() { play(a, true) })
	group.Go(func() { play(b, false) })
	group.Wait()
}

// Programs come and go at the same time, each with traffic of its own.
func TestDaemon_ManyProgramsAtOnce_EachUndisturbed(t *testing.T) {
	d := startLocal(t)
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			for range 4 {
				c1, err1 := verbs.Open(t.Context(), "", verbs.WithConnector(connector{d}))
				c2, err2 := verbs.Open(t.Context(), "", verbs.WithConnector(connector{d}))
				if err := errors.Join(err1, err2); err != nil {
					t.Error(err)
					return
				}
				a := newEnd(t, c1, rdma.QPTypeRC, 10000+i, i%2 == 0)
				b := newEnd(t, c2, rdma.QPTypeRC, 10000+i, i%3 == 0)
				connect(t, a, b)
				exchange(t, a, b)
				_, _ = c1.Close(), c2.Close()
			}
		})
	}
	group.Wait()
	eventually(t, "all gone", func() bool {
		s, _ := d.Status()
		return s.Connections == 0
	})
}
