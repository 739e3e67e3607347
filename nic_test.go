package softrnic_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestNIC_StartAndClose_LeavesNothingBehind(t *testing.T) {
	run := func() {
		nic, err := softrnic.Start(t.Context(), softrnic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := nic.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
		mr, err := y.pd.AllocMemory(1<<16, verbs.AccessAll)
		if err != nil {
			t.Fatal(err)
		}
		err = x.do(nictest.Soon(t), verbs.SendWR{
			Opcode: verbs.WRWrite, Inline: []byte("hello"), RemoteAddr: mr.Addr(), RKey: mr.RKey(),
		})
		if err != nil || string(mr.Bytes()[:5]) != "hello" {
			t.Errorf("%q: %v", mr.Bytes()[:5], err)
		}
		if err := errors.Join(dev.Close(), nic.Close()); err != nil {
			t.Error(err)
		}
	}
	run() // the runtime opens descriptors of its own once
	goroutines, fds := runtime.NumGoroutine(), nictest.Descriptors()
	for range 3 {
		run()
	}
	nictest.Settles(t, "goroutines", goroutines, runtime.NumGoroutine)
	nictest.Settles(t, "descriptors", fds, nictest.Descriptors)
}

func TestNIC_ClosedUnderItsPrograms_TellsThem(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, _ := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := x.cq.Wait(nictest.Soon(t)); !errors.Is(err, verbs.ErrDeviceFatal) {
			t.Errorf("Wait: %v", err)
		}
	})
	wg.Go(func() {
		// Others may come before: communication established, for one.
		for {
			e, err := dev.NextEvent(nictest.Soon(t))
			if err != nil {
				t.Errorf("NextEvent: %v", err)
				return
			}
			if e.Type == verbs.EventDeviceFatal {
				return
			}
		}
	})
	time.Sleep(5 * time.Millisecond) // so that most often both sleep
	if err := nic.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	_, err := x.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend})
	if !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("PostSend: %v", err)
	}
	if _, err := nic.Open(t.Context()); err == nil {
		t.Error("a closed NIC opens")
	}
}

func TestNIC_TwoOnANetwork_Exchange(t *testing.T) {
	wire := softrnic.NewNetwork()
	first := netip.MustParseAddr("2001:db8::1")
	a := nictest.Start(t, softrnic.Config{Network: wire, Addresses: []netip.Addr{first}})
	b := nictest.Start(t, softrnic.Config{Network: wire, Addresses: []netip.Addr{first.Next()}})
	x, y := pair(t, open(t, verbs.WithConnector(a)), open(t, verbs.WithConnector(b)),
		verbs.QPConfig{Type: verbs.QPTypeRC})
	if x.point.GID.Addr() != first {
		t.Errorf("the GID is %v", x.point.GID)
	}
	mr, err := y.pd.Register(make([]byte, 100000), verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("softrnic"), 12500)
	src, err := x.pd.Register(data, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = x.do(nictest.Soon(t), verbs.SendWR{
		Opcode: verbs.WRWrite, SGE: src.SGE(0, len(data)), RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	})
	if err != nil || !bytes.Equal(mr.Bytes(), data) {
		t.Errorf("written %v: %v", bytes.Equal(mr.Bytes(), data), err)
	}
	if _, err := softrnic.Start(t.Context(), softrnic.Config{
		Network: wire, Addresses: []netip.Addr{first},
	}); err == nil {
		t.Error("two NICs have one address")
	}
	if _, err := softrnic.Start(t.Context(), softrnic.Config{Network: wire, UDP: true}); err == nil {
		t.Error("a NIC is on two networks")
	}
}

// Packets get lost, doubled and reordered; RC hides it.
func TestNIC_BadNetwork_RCDelivers(t *testing.T) {
	const fault = "loss=3%,dup=3%,reorder=5%,corrupt=1%,seed=11"
	for name, c := range map[string]softrnic.Config{
		"OneNIC":  {Fault: fault},
		"Network": {Fault: fault, Network: softrnic.NewNetwork(), MTU: verbs.MTU1024},
	} {
		t.Run(name, func(t *testing.T) {
			nic := nictest.Start(t, c)
			other := nic
			if c.Network != nil {
				other = nictest.Start(t, c)
			}
			x, y := pair(t, open(t, verbs.WithConnector(nic)), open(t, verbs.WithConnector(other)),
				verbs.QPConfig{Type: verbs.QPTypeRC})
			const size = 300000
			dst, err := y.pd.AllocMemory(size, verbs.AccessAll)
			if err != nil {
				t.Fatal(err)
			}
			src, err := x.pd.AllocMemory(2*size, verbs.AccessLocalWrite)
			if err != nil {
				t.Fatal(err)
			}
			for i := range src.Bytes()[:size] {
				src.Bytes()[i] = byte(i * 11)
			}
			err = x.do(nictest.Soon(t), verbs.SendWR{
				Opcode: verbs.WRWrite, SGE: src.SGE(0, size), RemoteAddr: dst.Addr(), RKey: dst.RKey(),
			})
			if err != nil || !bytes.Equal(dst.Bytes(), src.Bytes()[:size]) {
				t.Fatalf("WRITE: equal %v, %v", bytes.Equal(dst.Bytes(), src.Bytes()[:size]), err)
			}
			err = x.do(nictest.Soon(t), verbs.SendWR{
				Opcode: verbs.WRRead, SGE: src.SGE(size, size), RemoteAddr: dst.Addr(), RKey: dst.RKey(),
			})
			if err != nil || !bytes.Equal(dst.Bytes(), src.Bytes()[size:]) {
				t.Fatalf("READ: equal %v, %v", bytes.Equal(dst.Bytes(), src.Bytes()[size:]), err)
			}
			add := verbs.SendWR{
				Opcode: verbs.WRFetchAdd, CompareAdd: 1, SGE: src.SGE(0, 8),
				RemoteAddr: dst.Addr(), RKey: dst.RKey(),
			}
			before := binary.NativeEndian.Uint64(dst.Bytes())
			for range 200 {
				if err := x.do(nictest.Soon(t), add); err != nil {
					t.Fatal(err)
				}
			}
			if got := binary.NativeEndian.Uint64(dst.Bytes()) - before; got != 200 {
				t.Errorf("200 FETCH_ADDs added %d", got)
			}
		})
	}
}

func TestNIC_Datagram_IsAnsweredFromItsCompletion(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeUD, QKey: 0x1234})
	ctx := nictest.Soon(t)
	there, err := x.pd.CreateAH(verbs.AHAttr{DGID: y.point.GID, SGIDIndex: x.point.GIDIndex})
	if err != nil {
		t.Fatal(err)
	}
	var rooms [2]*verbs.MR
	for i, e := range []*end{x, y} {
		if rooms[i], err = e.pd.AllocMemory(verbs.GRHBytes+64, verbs.AccessLocalWrite); err != nil {
			t.Fatal(err)
		}
		wr := verbs.RecvWR{SGE: rooms[i].SGE(0, rooms[i].Len())}
		if _, err := e.qp.PostRecv(wr); err != nil {
			t.Fatal(err)
		}
	}
	ask := verbs.SendWR{
		Opcode: verbs.WRSend, Inline: []byte("ping"), AH: there, RemoteQPN: y.point.QPN,
		RemoteQKey: 0x1234,
	}
	if _, err := x.qp.PostSend(ask); err != nil {
		t.Fatal(err)
	}
	wc, err := y.next(ctx)
	if err != nil || wc.Err() != nil {
		t.Fatal(err, wc.Err())
	}
	back, err := y.pd.CreateAHFrom(&wc, rooms[1].Bytes())
	if err != nil {
		t.Fatal(err)
	}
	answer := ask
	answer.Inline, answer.AH, answer.RemoteQPN = []byte("pong"), back, wc.SrcQPN
	if _, err := y.qp.PostSend(answer); err != nil {
		t.Fatal(err)
	}
	wc, err = x.next(ctx)
	if err != nil || wc.Err() != nil || string(rooms[0].Bytes()[40:44]) != "pong" {
		t.Errorf("%q: %v, %v", rooms[0].Bytes()[40:44], err, wc.Err())
	}
	if err := errors.Join(there.Close(), back.Close()); err != nil {
		t.Error(err)
	}
}

// A program that is stopped takes no part, and need not: its memory is read, written and added to.
func TestNICProcess_StoppedTarget_IsServed(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	dev := open(t, verbs.WithSocket(socket))
	e, err := newEnd(dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		t.Fatal(err)
	}
	target := nictest.StartPart(t, "target", socket)
	var peer verbs.Endpoint
	var text string
	var addr uint64
	var rkey uint32
	if _, err := fmt.Sscan(target.Line(t), &text, &addr, &rkey); err != nil {
		t.Fatal(err)
	}
	if err := peer.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(target.In, e.point)
	if got := target.Line(t); got != "connected" {
		t.Fatalf("the target says %q", got)
	}
	if err := e.qp.ConnectTo(peer); err != nil {
		t.Fatal(err)
	}
	stopProcess(t, target)
	mr, err := e.pd.Register(make([]byte, 64), verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	wr := verbs.SendWR{
		Opcode: verbs.WRRead, SGE: mr.SGE(0, 22), RemoteAddr: addr, RKey: verbs.Key(rkey),
	}
	err = e.do(nictest.Soon(t), wr)
	if err != nil || string(mr.Bytes()[:22]) != "the target's own words" {
		t.Errorf("READ of a stopped program: %q, %v", mr.Bytes()[:22], err)
	}
	wr.Opcode, wr.SGE, wr.Inline = verbs.WRWrite, nil, []byte("MINE")
	if err := e.do(nictest.Soon(t), wr); err != nil {
		t.Errorf("WRITE to a stopped program: %v", err)
	}
	wr.Opcode, wr.SGE, wr.Inline = verbs.WRFetchAdd, mr.SGE(24, 8), nil
	wr.RemoteAddr, wr.CompareAdd = addr+24, 'A'
	if err := e.do(nictest.Soon(t), wr); err != nil {
		t.Errorf("FETCH_ADD on a stopped program: %v", err)
	}
	if err := syscall.Kill(target.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(target.In, "show")
	got := target.Line(t)
	if !strings.Contains(got, "MINEtarget's own words") || !strings.Contains(got, "A") {
		t.Errorf("the target's memory is %s", got)
	}
}

// stopProcess sends SIGSTOP and waits until the process has stopped.
func stopProcess(t *testing.T, r *nictest.Part) {
	t.Helper()
	if err := syscall.Kill(r.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(r.PID(), &status, syscall.WUNTRACED, nil); err != nil ||
		!status.Stopped() {
		t.Fatalf("stop: %v, status %v", err, status)
	}
}

// A NIC that is killed takes no program with it, and none waits for ever.
func TestNICProcess_Killed_EveryCallEnds(t *testing.T) {
	socket, nic := nictest.StartProcess(t)
	dev := open(t, verbs.WithSocket(socket))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	dst, err := y.pd.Register(make([]byte, 1<<20), verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	src, err := x.pd.AllocMemory(1<<20, verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	wr := verbs.SendWR{
		Opcode: verbs.WRWrite, SGE: src.SGE(0, src.Len()), RemoteAddr: dst.Addr(), RKey: dst.RKey(),
	}
	done := make(chan error)
	go func() {
		for {
			if err := x.do(nictest.Soon(t), wr); err != nil {
				done <- err
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond) // in the midst of traffic
	nic.Kill()
	if err := <-done; !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("traffic ended with %v", err)
	}
	if _, err := dev.AllocPD(); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("AllocPD: %v", err)
	}
	if err := y.cq.Wait(nictest.Soon(t)); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("Wait: %v", err)
	}
}

// A peer that is killed is to the survivor like a host that vanished.
func TestNICProcess_PeerKilled_TheSurvivorGoesOn(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	dev := open(t, verbs.WithSocket(socket))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	e, err := newEnd(dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if err != nil {
		t.Fatal(err)
	}
	target := nictest.StartPart(t, "target", socket)
	var peer verbs.Endpoint
	var text string
	wr := verbs.SendWR{Opcode: verbs.WRWrite, Inline: []byte("x")}
	if _, err := fmt.Sscan(target.Line(t), &text, &wr.RemoteAddr, (*uint32)(&wr.RKey)); err != nil {
		t.Fatal(err)
	}
	if err := peer.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(target.In, e.point)
	target.Line(t)
	err = e.qp.ConnectTo(peer, func(c *verbs.ConnectConfig) { c.Timeout, c.RetryCnt = 8, 2 })
	if err != nil {
		t.Fatal(err)
	}
	if err := e.do(nictest.Soon(t), wr); err != nil {
		t.Fatal(err)
	}
	target.Kill()
	for limit := time.Now().Add(nictest.Patience); err == nil; {
		if err = e.do(nictest.Soon(t), wr); time.Now().After(limit) {
			t.Fatal("the dead peer still answers")
		}
	}
	if !errors.Is(err, verbs.ErrRetryExceeded) {
		t.Errorf("writing to a dead peer: %v", err)
	}
	mr, err := y.pd.AllocMemory(8, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
	if err := x.do(nictest.Soon(t), wr); err != nil || mr.Bytes()[0] != 'x' {
		t.Errorf("the others: %q, %v", mr.Bytes(), err)
	}
}

func TestOpen_CancelledContext_DoesNotConnect(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := nic.Open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The whole way, posting, waiting for it in the NIC and polling, allocates nothing.
func TestRoundTrip_AllocatesNothing(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	dst, err := y.pd.AllocMemory(64, verbs.AccessAll)
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("sixteen bytes ..")
	var wcs [4]verbs.WC
	step := func() {
		_, err := x.qp.PostSend(verbs.SendWR{
			Opcode: verbs.WRWrite, Flags: verbs.SendSignaled, Inline: data,
			RemoteAddr: dst.Addr(), RKey: dst.RKey(),
		})
		n := 0
		for n == 0 && err == nil {
			n, err = x.cq.Poll(wcs[:])
		}
		if err != nil || wcs[0].Status != verbs.WCSuccess {
			t.Fatal(err, wcs[0].Err())
		}
	}
	for range 1000 {
		step() // lets queues and pools of the NIC reach their sizes
	}
	if got := testing.AllocsPerRun(2000, step); got != 0 {
		t.Errorf("%v allocations per operation", got)
	}
}

func TestChannel_Solicited_IsRaisedByTheSender(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	dev := open(t, verbs.WithConnector(nic))
	x, y := pair(t, dev, dev, verbs.QPConfig{Type: verbs.QPTypeRC})
	if _, err := y.qp.PostRecv(verbs.RecvWR{ID: 1}, verbs.RecvWR{ID: 2}); err != nil {
		t.Fatal(err)
	}
	if err := y.cq.RequestNotify(true); err != nil {
		t.Fatal(err)
	}
	if err := x.do(nictest.Soon(t), verbs.SendWR{Opcode: verbs.WRSend}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := y.cq.Channel().Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a plain message: %v", err)
	}
	err := x.do(nictest.Soon(t), verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSolicited})
	if err != nil {
		t.Fatal(err)
	}
	if cq, err := y.cq.Channel().Next(nictest.Soon(t)); cq != y.cq || err != nil {
		t.Errorf("a solicited message: %v", err)
	}
	var wcs [4]verbs.WC
	if n, err := y.cq.Poll(wcs[:]); n != 2 || err != nil {
		t.Errorf("polled %d, %v", n, err)
	}
}

func TestNIC_Devices_AreThoseAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		config softrnic.Config
		want   []string
	}{
		"none said":  {softrnic.Config{}, []string{"rnic0"}},
		"one name":   {softrnic.Config{Device: "x"}, []string{"x"}},
		"both wires": {softrnic.Config{Devices: []string{"iwarp0=iwarp"}}, []string{"rnic0", "iwarp0"}},
		"all of it": {
			softrnic.Config{Device: "x", Devices: []string{"y=iwarp,crc=on"}}, []string{"x", "y"},
		},
	} {
		nic := nictest.Start(t, c.config)
		list, err := verbs.Devices(t.Context(), verbs.WithConnector(nic))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range list {
			names = append(names, d.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%s: %v", name, names)
		}
	}
	for _, bad := range []softrnic.Config{
		{Devices: []string{"x=tcp"}},
		{Device: "x", Devices: []string{"y"}},
		{Network: softrnic.NewNetwork(), Devices: []string{"w=iwarp"}},
	} {
		if _, err := softrnic.Start(t.Context(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
