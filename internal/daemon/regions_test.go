package daemon_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
	"github.com/softrnic/softrnic/verbs"
)

// writeTo writes n bytes of its region to remote memory and returns what became of it.
func (e *end) writeTo(addr uint64, key verbs.Key, n int) verbs.WC {
	e.t.Helper()
	e.post(verbs.SendWR{
		ID: 1, Opcode: verbs.WRWrite, SGE: e.mr.SGE(0, n), RemoteAddr: addr, RKey: key,
	})
	return e.await()
}

func wantErrno(t *testing.T, what string, err error, errno syscall.Errno) {
	t.Helper()
	var r *verbs.Refusal
	if !errors.As(err, &r) || r.Errno != errno {
		t.Errorf("%s: %v, want %v", what, err, errno)
	}
}

func window(t *testing.T, e *end, typ verbs.MWType) *verbs.MW {
	t.Helper()
	w, err := e.pd.AllocWindow(typ)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWindow_BindUseRevoke(t *testing.T) {
	a, b := pair(t, startLocal(t), 4096, true)
	mr, err := b.pd.AllocMemory(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	if err != nil {
		t.Fatal(err)
	}
	fill(a.mr.Bytes(), 3)
	one, two := window(t, b, verbs.MWType1), window(t, b, verbs.MWType2)
	for _, w := range []*verbs.MW{one, two} {
		old := w.RKey()
		b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &verbs.Bind{
			Window: w, Region: mr, Addr: mr.Addr() + 64, Length: 32, Access: verbs.AccessRemoteWrite,
		}})
		if wc := b.ok(); wc.Opcode != verbs.WCOpBindMW {
			t.Errorf("completion %+v", wc)
		}
		if w.RKey() == old {
			t.Error("a bind did not change the key")
		}
		if wc := a.writeTo(mr.Addr()+64, w.RKey(), 32); wc.Err() != nil {
			t.Fatal(wc.Err())
		}
		if !bytes.Equal(mr.Bytes()[64:96], a.mr.Bytes()[:32]) {
			t.Error("the bytes did not arrive")
		}
		clear(mr.Bytes())
	}
	wantErrno(t, "close of a region with windows", mr.Close(), syscall.EBUSY)
	key := two.RKey()
	b.post(verbs.SendWR{Opcode: verbs.WRLocalInvalidate, InvalidateKey: key})
	if wc := b.ok(); wc.Opcode != verbs.WCOpLocalInvalidate {
		t.Errorf("completion %+v", wc)
	}
	b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &verbs.Bind{Window: one}})
	b.ok()
	if wc := a.writeTo(mr.Addr()+64, key, 8); !errors.Is(wc.Err(), verbs.ErrRemoteAccess) {
		t.Errorf("a write through a revoked window: %v", wc.Err())
	}
	if err := errors.Join(mr.Close(), one.Close(), two.Close()); err != nil {
		t.Error(err)
	}
}

func TestWindow_PeerInvalidates(t *testing.T) {
	a, b := pair(t, startLocal(t), 4096, true)
	mr, err := b.pd.AllocMemory(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	if err != nil {
		t.Fatal(err)
	}
	w := window(t, b, verbs.MWType2)
	b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &verbs.Bind{
		Window: w, Region: mr, Addr: mr.Addr(), Length: 4096,
		Access: verbs.AccessRemoteWrite | verbs.AccessZeroBased,
	}})
	b.ok()
	if wc := a.writeTo(0, w.RKey(), 8); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
	b.recv(5, 0, 64)
	a.post(verbs.SendWR{
		Opcode: verbs.WRSendWithInv, SGE: a.mr.SGE(0, 8), InvalidateKey: w.RKey(),
	})
	a.ok()
	if wc := b.ok(); wc.Flags&verbs.WCWithInv == 0 || wc.InvalidatedKey != w.RKey() {
		t.Errorf("completion %+v", wc)
	}
	if wc := a.writeTo(0, w.RKey(), 8); !errors.Is(wc.Err(), verbs.ErrRemoteAccess) {
		t.Errorf("a write through a revoked window: %v", wc.Err())
	}
}

func TestWindow_BadBinds_AreRefusedAtOnceOrComplete(t *testing.T) {
	a, b := pair(t, startLocal(t), 4096, true)
	w := window(t, b, verbs.MWType2)
	good := verbs.Bind{Window: w, Region: b.mr, Addr: b.mr.Addr(), Length: 8}
	for name, edit := range map[string]func(*verbs.SendWR){
		"nothing":       func(wr *verbs.SendWR) { wr.Bind = nil },
		"no window":     func(wr *verbs.SendWR) { wr.Bind.Window = nil },
		"no region":     func(wr *verbs.SendWR) { wr.Bind.Region = nil },
		"data":          func(wr *verbs.SendWR) { wr.SGE = b.mr.SGE(0, 1) },
		"other context": func(wr *verbs.SendWR) { wr.Bind.Region = a.mr },
		"access":        func(wr *verbs.SendWR) { wr.Bind.Access = verbs.AccessOnDemand },
		"another's key": func(wr *verbs.SendWR) { wr.Bind.Key = w.RKey() ^ 0x100 },
	} {
		bind := good
		wr := verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &bind}
		edit(&wr)
		if n, err := b.qp.PostSend(wr); err == nil || n != 0 {
			t.Errorf("%s was posted", name)
		}
	}
	b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &good})
	if wc := b.await(); !errors.Is(wc.Err(), verbs.ErrBind) {
		t.Errorf("a bind to a region without the right: %v", wc.Err())
	}
}

func TestReregister_ChangesAndKeepsKeys(t *testing.T) {
	d := startLocal(t)
	a, b := pair(t, d, 4096, false)
	key, old := b.mr.RKey(), b.mr.Bytes()
	fresh := make([]byte, 8192)
	if err := b.mr.Reregister(verbs.Change{Bytes: fresh}); err != nil {
		t.Fatal(err)
	}
	if b.mr.RKey() != key || b.mr.Len() != 8192 || &b.mr.Bytes()[0] != &fresh[0] {
		t.Errorf("region %+v", b.mr)
	}
	fill(a.mr.Bytes(), 9)
	if wc := a.writeTo(b.mr.Addr()+8000, key, 100); wc.Err() != nil {
		t.Fatal(wc.Err())
	}
	if !bytes.Equal(fresh[8000:8100], a.mr.Bytes()[:100]) || old[0] != 0 {
		t.Error("the bytes went elsewhere")
	}
	access := verbs.AccessLocalWrite
	if err := b.mr.Reregister(verbs.Change{Access: &access}); err != nil {
		t.Fatal(err)
	}
	if wc := a.writeTo(b.mr.Addr(), key, 8); !errors.Is(wc.Err(), verbs.ErrRemoteAccess) {
		t.Errorf("a write without the right: %v", wc.Err())
	}
	other, err := b.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.mr.Reregister(verbs.Change{PD: other}); err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "close of a PD with a region", other.Close(), syscall.EBUSY)
	bad := verbs.AccessRemoteWrite
	for name, c := range map[string]verbs.Change{
		"nothing": {}, "empty": {Bytes: []byte{}}, "other context": {PD: a.pd}, "access": {Access: &bad},
	} {
		wantErrno(t, name, b.mr.Reregister(c), syscall.EINVAL)
	}
	mapped, err := b.pd.AllocMemory(64, access)
	if err != nil {
		t.Fatal(err)
	}
	wantErrno(t, "mapped memory", mapped.Reregister(verbs.Change{Access: &access}), syscall.EINVAL)
}

// island is memory that comes and goes, always at one address.
type island struct {
	t  *testing.T
	at unsafe.Pointer
}

const islandBytes = 1 << 16

func newIsland(t *testing.T) *island {
	t.Helper()
	l := &island{t: t}
	l.rise(0)
	t.Cleanup(l.sink)
	return l
}

func (l *island) rise(flags int) []byte {
	l.t.Helper()
	p, err := unix.MmapPtr(-1, 0, l.at, islandBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|flags)
	if err != nil {
		l.t.Fatal(err)
	}
	l.at = p
	return l.bytes()
}

func (l *island) sink() {
	if err := unix.MunmapPtr(l.at, islandBytes); err != nil {
		l.t.Error(err)
	}
}

func (l *island) bytes() []byte { return unsafe.Slice((*byte)(l.at), islandBytes) }
func (l *island) addr() uint64  { return uint64(uintptr(l.at)) }

// TestOnDemand_MemoryIsWhatIsThere: a region outlives the mapping that it was made on, and counts
// for the one that comes after it.
func TestOnDemand_MemoryIsWhatIsThere(t *testing.T) {
	for name, register := range map[string]func(*end, *island) (*verbs.MR, error){
		"explicit": func(e *end, l *island) (*verbs.MR, error) {
			return e.pd.Register(l.bytes(), verbs.AccessAll|verbs.AccessOnDemand)
		},
		"implicit": func(e *end, _ *island) (*verbs.MR, error) {
			return e.pd.RegisterImplicit(verbs.AccessAll)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, startLocal(t), 4096, true)
			l := newIsland(t)
			mr, err := register(b, l)
			if err != nil {
				t.Fatal(err)
			}
			fill(a.mr.Bytes(), 7)
			l.sink()
			for range 2 {
				mem := l.rise(unix.MAP_FIXED_NOREPLACE)
				if wc := a.writeTo(l.addr()+4000, mr.RKey(), 200); wc.Err() != nil {
					t.Fatal(wc.Err())
				}
				if !bytes.Equal(mem[4000:4200], a.mr.Bytes()[:200]) {
					t.Error("the bytes are not in the new mapping")
				}
				l.sink()
			}
			if wc := a.writeTo(l.addr(), mr.RKey(), 8); !errors.Is(wc.Err(), verbs.ErrRemoteOperation) {
				t.Errorf("a write where nothing is mapped: %v", wc.Err())
			}
			l.rise(unix.MAP_FIXED_NOREPLACE)
		})
	}
}

func TestPrefetch_BringsPagesIn(t *testing.T) {
	b := newEnd(t, open(t, startLocal(t)), rdma.QPTypeRC, 64, true)
	l := newIsland(t)
	mr, err := b.pd.RegisterAt(l.bytes(), 0x1000, verbs.AccessAll|verbs.AccessOnDemand)
	if err != nil {
		t.Fatal(err)
	}
	resident := func() (n int) {
		var vec [islandBytes / 4096]byte
		if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(l.at), islandBytes,
			uintptr(unsafe.Pointer(&vec))); errno != 0 {
			t.Fatal(errno)
		}
		for _, v := range vec {
			n += int(v & 1)
		}
		return n
	}
	before := resident()
	err = b.pd.Prefetch([]verbs.SGE{{Addr: 0x3000, Length: 0x2001, LKey: mr.LKey()}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if n := resident(); n != before+3 {
		t.Errorf("%d pages before, %d after", before, n)
	}
	err = b.pd.Prefetch([]verbs.SGE{{Addr: 0x1000, Length: islandBytes + 1, LKey: mr.LKey()}}, false)
	wantErrno(t, "beyond the region", err, syscall.EFAULT)
	err = b.pd.Prefetch(b.mr.SGE(0, 8), false)
	wantErrno(t, "a region that is not paged on demand", err, syscall.EINVAL)
	l.sink()
	err = b.pd.Prefetch([]verbs.SGE{{Addr: 0x1000, Length: 8, LKey: mr.LKey()}}, false)
	if !errors.Is(err, unix.EFAULT) {
		t.Errorf("where nothing is mapped: %v", err)
	}
	l.rise(unix.MAP_FIXED_NOREPLACE)
}

func TestNullAndDeviceMemory_Transfer(t *testing.T) {
	d := startLocal(t)
	settled(t, func() {
		a, b := pair(t, d, 4096, true)
		null, err := a.pd.AllocNull()
		if err != nil {
			t.Fatal(err)
		}
		dm, err := b.ctx.AllocDeviceMemory(10000)
		if err != nil {
			t.Fatal(err)
		}
		mr, err := b.pd.RegisterDevice(dm, 100, 9000, verbs.AccessAll)
		if err != nil {
			t.Fatal(err)
		}
		fill(a.mr.Bytes(), 5)
		a.post(verbs.SendWR{
			Opcode: verbs.WRWrite, RemoteAddr: mr.Addr() + 8900, RKey: mr.RKey(),
			SGE: []verbs.SGE{{Addr: 1 << 40, Length: 10, LKey: null.LKey()}, a.mr.Piece(0, 90)},
		})
		a.ok()
		got := make([]byte, 1001)
		n, err := dm.ReadAt(got, 9000)
		if n != 1000 || err == nil {
			t.Errorf("read %d, %v", n, err)
		}
		if !bytes.Equal(got[:10], make([]byte, 10)) || !bytes.Equal(got[10:100], a.mr.Bytes()[:90]) {
			t.Error("other bytes in device memory")
		}
		if _, err := dm.WriteAt([]byte("hello"), 100); err != nil {
			t.Error(err)
		}
		a.post(verbs.SendWR{
			Opcode: verbs.WRRead, RemoteAddr: 0, RKey: mr.RKey(), SGE: a.mr.SGE(0, 5),
		})
		a.ok()
		if string(a.mr.Bytes()[:5]) != "hello" {
			t.Errorf("read %q", a.mr.Bytes()[:5])
		}
		wantErrno(t, "free in use", dm.Close(), syscall.EBUSY)
		if _, err := b.pd.RegisterDevice(dm, 9999, 2, verbs.AccessAll); err == nil {
			t.Error("a region beyond the device memory")
		}
		if err := errors.Join(mr.Close(), dm.Close()); err != nil {
			t.Error(err)
		}
		if _, err := dm.ReadAt(got, 0); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		left, err := a.ctx.AllocDeviceMemory(4096) // ends with its context
		if err != nil || left.Len() != 4096 {
			t.Error(err)
		}
		_, _ = a.ctx.Close(), b.ctx.Close()
	})
}

// TestContext_CloseWithBoundWindows: the order of the end is the library's to keep.
func TestContext_CloseWithBoundWindows(t *testing.T) {
	_, b := pair(t, startLocal(t), 4096, true)
	mr, err := b.pd.AllocMemory(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	if err != nil {
		t.Fatal(err)
	}
	b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &verbs.Bind{
		Window: window(t, b, verbs.MWType1), Region: mr, Addr: mr.Addr(), Length: 8,
	}})
	b.ok()
	if err := b.ctx.Close(); err != nil {
		t.Error(err)
	}
}

// TestHostile_Reregister_NeverWritesThroughReadOnlyMaps: a region that was mapped for reading gains
// no write access without being mapped anew, whatever a client says.
func TestHostile_Reregister_NeverWritesThroughReadOnlyMaps(t *testing.T) {
	s := startWithBystander(t)
	c := s.raw()
	c.open()
	pd := call[abi.HandleMsg](c, abi.OpAllocPD, struct{}{})
	m, err := shm.Create("rnic-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	seg := abi.Segment{Addr: 0x10000, Length: 4096}
	reg := struct {
		Head    abi.RegMRReq
		Segment abi.Segment
	}{abi.RegMRReq{PD: pd.Handle, Addr: 0x10000, Length: 4096, NumSegments: 1}, seg}
	rsp, _, err := ctl.Call[abi.RegMRRsp](c.Client, abi.OpRegMR, ctl.Bytes(&reg), m.FD())
	if err != nil {
		t.Fatal(err)
	}
	ask := abi.ReregMRReq{
		Handle: rsp.Handle, Flags: uint32(rdma.ReregAccess), Access: uint32(rdma.AccessLocalWrite),
		Addr: 0x10000, Length: 4096,
	}
	if _, _, err := ctl.Call[abi.RegMRRsp](c.Client, abi.OpReregMR, ctl.Bytes(&ask)); err == nil {
		t.Error("write access without segments")
	}
	// The access that the flags do not change is ignored, and so are segments that come with it.
	ask.Flags, ask.PD, ask.NumSegments = uint32(rdma.ReregPD), pd.Handle, 1
	msg := struct {
		Head    abi.ReregMRReq
		Segment abi.Segment
	}{ask, seg}
	change := func() error {
		body := ctl.Bytes(&msg)
		_, _, err := ctl.Call[abi.RegMRRsp](c.Client, abi.OpReregMR, body, m.FD())
		return err
	}
	if err := change(); err != nil {
		t.Error(err)
	}
	msg.Head.Flags = uint32(rdma.ReregTranslation)
	if err := change(); err != nil {
		t.Error(err)
	}
	msg.Segment.FD = 7
	if change() == nil {
		t.Error("a descriptor that did not come")
	}
	s.check()
}

// TestHostile_HandlesOfOthers_AreUnknown: every verb about memory with what belongs to another.
func TestHostile_HandlesOfOthers_AreUnknown(t *testing.T) {
	s := startWithBystander(t)
	owner, thief := s.raw(), s.raw()
	owner.open()
	thief.open()
	pd := call[abi.HandleMsg](owner, abi.OpAllocPD, struct{}{}).Handle
	mw := call[abi.AllocMWRsp](owner, abi.OpAllocMW, abi.AllocMWReq{PD: pd, Type: 2})
	null := call[abi.RegMRRsp](owner, abi.OpAllocNullMR, abi.HandleMsg{Handle: pd})
	dm, _ := makeQueue(owner, abi.OpAllocDM, abi.AllocDMReq{Length: 100},
		func(r abi.AllocDMRsp) int { return int(r.Length) })
	own := call[abi.HandleMsg](thief, abi.OpAllocPD, struct{}{}).Handle
	advice := struct {
		Head abi.AdviseMRReq
		SGE  abi.SGE
	}{abi.AdviseMRReq{PD: pd, NumSGE: 1}, abi.SGE{LKey: null.LKey}}
	named := func(h uint32) abi.HandleMsg { return abi.HandleMsg{Handle: h} }
	for name, err := range map[string]error{
		"PD for a window": ask(thief, abi.OpAllocMW, abi.AllocMWReq{PD: pd, Type: 1}),
		"window":          ask(thief, abi.OpDeallocMW, named(mw.Handle)),
		"region":          ask(thief, abi.OpDeregMR, named(null.Handle)),
		"PD for null":     ask(thief, abi.OpAllocNullMR, named(pd)),
		"device memory":   ask(thief, abi.OpFreeDM, named(dm.Handle)),
		"change": ask(thief, abi.OpReregMR, abi.ReregMRReq{
			Handle: null.Handle, Flags: uint32(rdma.ReregPD), PD: own,
		}),
		"region of device memory": ask(thief, abi.OpRegDeviceMR, abi.RegDeviceMRReq{
			PD: own, DM: dm.Handle, Access: uint32(rdma.AccessZeroBased),
		}),
		"advice": ask(thief, abi.OpAdviseMR, advice),
	} {
		var refused *ctl.Error
		if !errors.As(err, &refused) || refused.Refusal.Errno != syscall.EINVAL {
			t.Errorf("%s of another: %v", name, err)
		}
	}
	for _, err := range []error{
		ask(owner, abi.OpDeallocMW, named(mw.Handle)), ask(owner, abi.OpDeregMR, named(null.Handle)),
		ask(owner, abi.OpFreeDM, named(dm.Handle)), ask(owner, abi.OpDeallocPD, named(pd)),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	s.check()
}

// ask makes a request whose reply does not matter.
func ask[Req any](c *rawClient, op abi.Op, req Req) error {
	msg, err := c.Do(op, ctl.Bytes(&req))
	if err == nil {
		msg.CloseFDs()
	}
	return err
}

// cyclesEnv asks for more cycles than a test run has time for; 200000 is the goal.
const cyclesEnv = "RNIC_MR_CYCLES"

// TestMemory_Cycles_NothingGrows registers and deregisters, binds and unbinds, again and again.
func TestMemory_Cycles_NothingGrows(t *testing.T) {
	cycles := 3000
	if n, err := strconv.Atoi(os.Getenv(cyclesEnv)); err == nil {
		cycles = n
	}
	_, b := pair(t, startLocal(t), 4096, true)
	slice := make([]byte, 8192)
	round := func() {
		mr, err := b.pd.Register(slice, verbs.AccessAll|verbs.AccessMWBind)
		if err != nil {
			t.Fatal(err)
		}
		w := window(t, b, verbs.MWType2)
		b.post(verbs.SendWR{Opcode: verbs.WRBindMW, Bind: &verbs.Bind{
			Window: w, Region: mr, Addr: mr.Addr(), Length: 8192,
		}})
		b.ok()
		mapped, err := b.pd.AllocMemory(4096, verbs.AccessAll)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), mr.Close(), mapped.Close()); err != nil {
			t.Fatal(err)
		}
	}
	measure := func() (fds, maps int, heap uint64) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return countFDs(t), countMaps(t), m.HeapAlloc
	}
	for range 500 {
		round()
	}
	fds, maps, heap := measure()
	for range cycles {
		round()
	}
	f, m, h := measure()
	if f > fds || m > maps || h > heap+1<<20 {
		t.Errorf("%d → %d descriptors, %d → %d mappings, %d → %d bytes", fds, f, maps, m, heap, h)
	}
}
