package verbs

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/shm"
)

func TestRegister_ForgottenSlice_StaysUntilClose(t *testing.T) {
	r := newRig(t, QPConfig{})
	freed := make(chan struct{})
	mr := func() *MR {
		b := new([4096]byte)
		runtime.AddCleanup(b, func(c chan struct{}) { close(c) }, freed)
		mr, err := r.pd.Register(b[:], AccessAll)
		if err != nil {
			t.Fatal(err)
		}
		return mr
	}()
	addr := mr.Addr()
	handle := mr.handle
	mr = nil // the context still knows the region, and the NIC its address
	for range 3 {
		runtime.GC()
	}
	select {
	case <-freed:
		t.Fatal("a registered slice was freed")
	default:
	}
	r.ctx.mu.Lock()
	mr = r.ctx.regions[handle]
	r.ctx.mu.Unlock()
	if mr.Addr() != addr || mr.Len() != 4096 || addressOf(mr.Bytes()) != addr {
		t.Error("the region is another")
	}
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "freeing after Close", func() {
		for {
			runtime.GC()
			select {
			case <-freed:
				return
			default:
			}
		}
	})
}

func TestAllocMemory_IsSealedAndZero(t *testing.T) {
	r := newRig(t, QPConfig{})
	mr, err := r.pd.AllocMemory(5000, AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	if len(mr.Bytes()) != 5000 || mr.Addr()%4096 != 0 {
		t.Errorf("%d bytes at %#x", len(mr.Bytes()), mr.Addr())
	}
	for i, b := range mr.Bytes() {
		if b != 0 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	got, ok := r.nic.region(mr)
	want := abi.Segment{Addr: mr.Addr(), Length: 5000, FD: 0}
	if !ok || got.segment != want || !got.sealed {
		t.Errorf("registered %+v, %v", got, ok)
	}
	if err := errors.Join(mr.Close(), mr.Close()); err != nil {
		t.Error(err)
	}
	if n := r.nic.count(abi.OpDeregMR); n != 1 {
		t.Errorf("deregistered %d times", n)
	}
}

func TestMemory_BadArguments_AreRefused(t *testing.T) {
	r := newRig(t, QPConfig{})
	if _, err := r.pd.Register(nil, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("empty slice: %v", err)
	}
	if _, err := r.pd.AllocMemory(0, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no bytes: %v", err)
	}
	r.nic.deny(abi.OpRegMR, syscall.EPERM, "Yama forbids it")
	before := descriptors(t)
	_, err1 := r.pd.Register(make([]byte, 10), 0)
	_, err2 := r.pd.AllocMemory(10, 0)
	for _, err := range []error{err1, err2} {
		if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "Yama") {
			t.Errorf("refused with %v", err)
		}
	}
	// The NIC closes its copy of a descriptor after it has answered.
	after := descriptors(t)
	for deadline := time.Now().Add(5 * time.Second); after != before; after = descriptors(t) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors before, %d after", before, after)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestMR_Piece_OutsideTheRegion_Panics(t *testing.T) {
	r := newRig(t, QPConfig{})
	mr, err := r.pd.Register(make([]byte, 100), 0)
	if err != nil {
		t.Fatal(err)
	}
	if s := mr.Piece(40, 60); s != (SGE{Addr: mr.Addr() + 40, Length: 60, LKey: mr.LKey()}) {
		t.Errorf("piece %+v", s)
	}
	for _, piece := range [][2]int{{0, 101}, {-1, 5}, {5, -1}, {101, 0}, {50, 51}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("piece %v was made", piece)
				}
			}()
			mr.Piece(piece[0], piece[1])
		}()
	}
}

// fakeRegion is a registration as the fake NIC saw it.
type fakeRegion struct {
	segment abi.Segment
	sealed  bool
}

func inspectRegion(fds []int, segment abi.Segment) fakeRegion {
	if len(fds) != 1 {
		return fakeRegion{segment: segment}
	}
	f, err := shm.CheckForeign(fds[0])
	sealed := err == nil && f.Covers(segment.FDOffset, segment.Length)
	return fakeRegion{segment: segment, sealed: sealed}
}
