package daemon

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/ring"
)

// startDirect starts a NIC that lets programs go direct, whatever the system keeps apart.
func startDirect(t *testing.T) *Daemon {
	t.Helper()
	d, err := Start(t.Context(), Config{Embedded: true, NoNetwork: true, Direct: DirectOn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// beginCopy counts the busy word of all queue pairs up, as their libraries do.
func beginCopy(d *Daemon) {
	d.lane.do(func(clock.Time) {
		for s := range d.lane.sessions {
			for q := range s.queues {
				if ring.Word(q.Bytes(), abi.OffQPGrant).Load() != 0 {
					ring.Word(q.Bytes(), abi.OffDirectBusy).Add(1)
				}
			}
		}
	})
}

// endCopy counts it up again. The grant may be gone meanwhile.
func endCopy(d *Daemon) {
	d.lane.do(func(clock.Time) {
		for s := range d.lane.sessions {
			for q := range s.queues {
				if w := ring.Word(q.Bytes(), abi.OffDirectBusy); w.Load()&1 != 0 {
					w.Add(1)
				}
			}
		}
	})
}

// Who takes memory back is answered only when nobody is at it any more.
func TestDirect_Revocation_AnsweredWhenTheLibraryIsOut(t *testing.T) {
	d := startDirect(t)
	v := newVictim(t, d)
	beginCopy(d)
	answered := make(chan error, 1)
	go func() { answered <- v.qp.ToError() }()
	select {
	case err := <-answered:
		t.Fatalf("answered while a library is at work: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	// Meanwhile the NIC serves others.
	if other := newVictim(t, d); !other.write(t) {
		t.Error("another program has to wait")
	}
	endCopy(d)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	select {
	case <-v.ctx.Dead():
		t.Error("who came out has lost its device")
	default:
	}
}

// A program that is stopped inside does not keep others for ever.
func TestDirect_LibraryStoppedInside_LosesItsDevice(t *testing.T) {
	d := startDirect(t)
	v := newVictim(t, d)
	beginCopy(d)
	var waits []nic.DirectWait
	d.lane.do(func(clock.Time) {
		d.lane.nic.HoldDirect(true)
		waits = d.lane.nic.TakeDirectWaits()
	})
	if len(waits) != 1 || !d.lane.awaitLibraries(waits, 20*time.Millisecond) {
		t.Fatalf("%d waits", len(waits))
	}
	select {
	case <-v.ctx.Dead():
	case <-time.After(10 * time.Second):
		t.Error("the program was not told")
	}
	if s, ok := d.Status(); !ok || s.Lane["evicted_sessions"] != 1 || len(s.Contexts) != 0 {
		t.Errorf("evicted %d, contexts %d", s.Lane["evicted_sessions"], len(s.Contexts))
	}
}

// What is handed out is the tickets, which nobody else can write, and the memory itself; a copy of
// a descriptor stays in the NIC no longer than the region.
func TestDirect_MapRemote_HandsOutTheMemory(t *testing.T) {
	d := startDirect(t)
	d.lane.do(func(clock.Time) {}) // it has opened what it opens when it begins
	before := countDescriptors(t)
	v := newVictim(t, d)
	var s *session
	d.lane.do(func(clock.Time) {
		for x := range d.lane.sessions {
			s = x
		}
	})
	rsp, fds := mapOwn(t, s, v.mr.RKey(), v.mr.Addr()+4096)
	if rsp.Addr != v.mr.Addr() || rsp.Length != 1<<16 {
		t.Errorf("%+v of a region at %#x", rsp, v.mr.Addr())
	}
	if _, err := unix.Mmap(fds[0], 0, abi.TicketBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); err == nil {
		t.Error("a program can write tickets")
	}
	tickets, err := unix.Mmap(fds[0], 0, abi.TicketBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(tickets) }()
	memory, err := unix.Mmap(fds[1], int64(rsp.FDOffset), int(rsp.Length), unix.PROT_READ,
		unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	v.mr.Bytes()[77] = 0xa5
	if memory[77] != 0xa5 {
		t.Error("it is other memory")
	}
	ticket := ring.Word64(tickets, 8*int(rsp.Slot))
	if ticket.Load() != rsp.Ticket {
		t.Errorf("ticket %d, not %d", ticket.Load(), rsp.Ticket)
	}
	if err := v.mr.Close(); err != nil {
		t.Fatal(err)
	}
	if ticket.Load() != 0 {
		t.Error("the ticket outlives the region")
	}
	_, _ = unix.Close(fds[0]), unix.Close(fds[1])
	_ = v.ctx.Close()
	for deadline := time.Now().Add(10 * time.Second); countDescriptors(t) > before; {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors, %d before", countDescriptors(t), before)
		}
		time.Sleep(time.Millisecond)
	}
}

// mapOwn asks, for the session's only queue pair, for memory behind a key.
func mapOwn(t *testing.T, s *session, key rdma.Key, addr uint64) (rsp abi.MapRemoteRsp, fds []int) {
	t.Helper()
	fds = []int{-1, -1}
	var r *rdma.Refusal
	refused := s.do(func(clock.Time) {
		qp := s.daemon.lane.nic.Status().Contexts[0].QPs[0].Handle
		rsp2, part, refusal := s.context.MapRemote(&abi.MapRemoteReq{
			QP: qp, RKey: uint32(key), Addr: addr, Length: 8,
		})
		if r = refusal; r == nil {
			rsp2.FDOffset, r = s.handOut(&part, fds)
		}
		rsp = rsp2
	})
	if refused != nil || r != nil {
		t.Fatal(refused, r)
	}
	return rsp, fds
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestCheckDirect(t *testing.T) {
	for mode, good := range map[string]bool{
		"": true, DirectAuto: true, DirectOn: true, DirectOff: true, "yes": false, "ON": false,
	} {
		if err := CheckDirect(mode); (err == nil) != good {
			t.Errorf("%q: %v", mode, err)
		}
	}
	if _, err := Start(t.Context(), Config{Embedded: true, NoNetwork: true, Direct: "x"}); err == nil {
		t.Error("a NIC starts with a mode that there is not")
	}
}
