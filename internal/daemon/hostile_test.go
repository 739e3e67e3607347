package daemon_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
	"github.com/softrnic/softrnic/test/netnstest"
)

// bystander is a pair of well-behaved ends that must go on working beside a hostile client.
type bystander struct {
	t    *testing.T
	d    *daemon.Daemon
	a, b *end
}

func startWithBystander(t *testing.T, devices ...string) *bystander {
	d := start(t, daemon.Config{
		Embedded: true, NoNetwork: true, Logger: slog.New(slog.DiscardHandler), Devices: devices,
	})
	a, b := pair(t, d, 5000, true)
	s := &bystander{t, d, a, b}
	s.check()
	return s
}

func (s *bystander) check() {
	s.t.Helper()
	exchange(s.t, s.a, s.b)
}

// rawClient speaks to the NIC without a library.
type rawClient struct {
	*ctl.Client
	t    *testing.T
	kick int // once the device is open
}

func (s *bystander) raw() *rawClient {
	s.t.Helper()
	sock, err := s.d.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	c := &rawClient{Client: ctl.NewClient(sock), t: s.t}
	s.t.Cleanup(func() { _ = c.Close() })
	_, lane, err := c.Hello("hostile\x1b[31m\n")
	if err != nil {
		s.t.Fatal(err)
	}
	_ = unix.Close(lane)
	return c
}

// open opens the device of RoCE and returns the doorbell page.
func (c *rawClient) open() *shm.Memory { return c.openDevice("rnic0") }

func (c *rawClient) openDevice(name string) *shm.Memory {
	c.t.Helper()
	var req abi.OpenDeviceReq
	copy(req.Name[:], name)
	_, fds, err := ctl.CallFDs[abi.OpenDeviceRsp](c.Client, abi.OpOpenDevice, ctl.Bytes(&req), 3)
	if err != nil {
		c.t.Fatal(err)
	}
	bells, err := shm.Open(fds[0], abi.DoorbellPageBytes, true)
	if err != nil {
		c.t.Fatal(err)
	}
	c.kick = fds[1]
	c.t.Cleanup(func() {
		bells.Release()
		_, _ = unix.Close(fds[1]), unix.Close(fds[2])
	})
	return bells
}

// makeQueue creates an object with a queue and maps it.
func makeQueue[Req, Rsp any](
	c *rawClient, op abi.Op, req Req, bytes func(Rsp) int,
) (Rsp, *shm.Memory) {
	c.t.Helper()
	rsp, fds, err := ctl.CallFDs[Rsp](c.Client, op, ctl.Bytes(&req), 1)
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := shm.Open(fds[0], bytes(rsp), true)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(m.Release)
	return rsp, m
}

func call[Rsp, Req any](c *rawClient, op abi.Op, req Req) Rsp {
	c.t.Helper()
	rsp, _, err := ctl.Call[Rsp](c.Client, op, ctl.Bytes(&req))
	if err != nil {
		c.t.Fatal(err)
	}
	return rsp
}

// someFDs are descriptors that a NIC might be handed, good and bad; they are closed with the test.
func someFDs(t *testing.T) []int {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := shm.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := shm.Create("rnic-test", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	open, err := unix.MemfdCreate("rnic-test", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = null.Close()
		sealed.Release()
		_, _, _ = unix.Close(read), unix.Close(write), unix.Close(open)
	})
	return []int{int(null.Fd()), read, write, sealed.FD(), open}
}

// randomMessage is anything from noise to a request that is almost right.
func randomMessage(r *rand.Rand) []byte {
	body := make([]byte, []int{0, 1, 4, 8, 16, 48, 56, 80, 96, 160, 64 * 17, 5000}[r.IntN(12)])
	for i := range body {
		if r.IntN(3) == 0 {
			body[i] = byte(r.Uint32())
		}
	}
	h := abi.Header{Op: uint16(r.IntN(30)), Seq: r.Uint32(), Length: uint32(len(body))}
	switch r.IntN(20) {
	case 0:
		h.Length = r.Uint32()
	case 1:
		h.Op = uint16(r.Uint32())
	case 2:
		return body
	case 3:
		h.Op = uint16(abi.OpStatus)
	case 4, 5, 6, 7:
		h.Op = uint16(abi.OpAllocMW) + uint16(r.IntN(8)) // memory
	}
	return append(append([]byte(nil), ctl.Bytes(&h)...), body...)
}

// reader takes replies off a raw socket and closes what comes with them, until it ends.
func reader(sock *net.UnixConn) {
	buf, oob := make([]byte, 1<<17), make([]byte, 1024)
	for {
		_, n, _, _, err := sock.ReadMsgUnix(buf, oob)
		if messages, e := unix.ParseSocketControlMessage(oob[:n]); e == nil {
			for i := range messages {
				fds, _ := unix.ParseUnixRights(&messages[i])
				for _, fd := range fds {
					_ = unix.Close(fd)
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func TestHostile_RandomMessages_OthersUndisturbed(t *testing.T) {
	s := startWithBystander(t)
	fds := someFDs(t)
	r := rand.New(rand.NewPCG(1, 2))
	before, maps := countFDs(t), countMaps(t)
	for range 150 {
		sock, err := s.d.Connect()
		if err != nil {
			t.Fatal(err)
		}
		go reader(sock)
		if r.IntN(8) > 0 { // mostly after a proper beginning
			sendProper(t, sock)
		}
		for range 40 {
			var oob []byte
			if n := r.IntN(4) * r.IntN(9); n > 0 {
				var send []int
				for range n {
					send = append(send, fds[r.IntN(len(fds))])
				}
				oob = unix.UnixRights(send...)
			}
			if _, _, err := sock.WriteMsgUnix(randomMessage(r), oob, nil); err != nil {
				break // the NIC has had enough
			}
		}
		_ = sock.Close()
	}
	s.check()
	eventually(t, "everything of the hostile connections gone", func() bool {
		status, _ := s.d.Status()
		return status.Connections == 2 && countFDs(t) <= before && countMaps(t) <= maps
	})
	if status, _ := s.d.Status(); status.Lane["client_misbehaviour"] == 0 {
		t.Error("nothing of it was counted")
	}
}

// sendProper says hello and opens the device, without waiting for replies.
func sendProper(t *testing.T, sock *net.UnixConn) {
	hello := abi.HelloReq{Magic: abi.Magic, Version: abi.Version}
	device := abi.OpenDeviceReq{Name: [64]byte{'r', 'n', 'i', 'c', '0'}}
	for op, body := range map[abi.Op][]byte{abi.OpHello: ctl.Bytes(&hello)} {
		h := abi.Header{Op: uint16(op), Length: uint32(len(body))}
		if _, err := sock.Write(append(append([]byte(nil), ctl.Bytes(&h)...), body...)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Millisecond) // a request before the reply was read would end the connection
	h := abi.Header{Op: uint16(abi.OpOpenDevice), Length: uint32(len(ctl.Bytes(&device)))}
	_, _ = sock.Write(append(append([]byte(nil), ctl.Bytes(&h)...), ctl.Bytes(&device)...))
	time.Sleep(time.Millisecond)
}

// connected makes a QP of a hostile client that is connected to itself, so that the NIC works on
// whatever the queues hold.
func (c *rawClient) connected() (memories []*shm.Memory) {
	pd := call[abi.HandleMsg](c, abi.OpAllocPD, struct{}{})
	cq, cqm := makeQueue(c, abi.OpCreateCQ, abi.CreateCQReq{Entries: 16},
		func(r abi.CreateCQRsp) int { return abi.QueueHeaderBytes + int(r.Entries)*abi.CQEBytes })
	qp, qpm := makeQueue(c, abi.OpCreateQP, abi.CreateQPReq{
		Type: uint32(rdma.QPTypeRC), PD: pd.Handle, SendCQ: cq.Handle, RecvCQ: cq.Handle,
		MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64,
	}, func(r abi.CreateQPRsp) int { return int(r.Bytes) })
	reply, err := c.Do(abi.OpQueryGIDTable, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	gids, _ := ctl.DecodeList[abi.GIDEntry](reply.Body)
	attr := abi.QPAttr{
		Port: 1, PathMTU: uint32(rdma.MTU1024), DestQPN: qp.QPN, MaxRdAtomic: 4, Timeout: 8,
		MaxDestRdAtomic: 4, MinRNRTimer: 1, RetryCnt: 1, RNRRetry: 1,
		AccessFlags: uint32(rdma.AccessLocalWrite | rdma.AccessRemoteAny&7),
		AH: abi.AHAttr{
			DGID: gids[0].GID, SGIDIndex: uint8(gids[0].Index), IsGlobal: 1, Port: 1,
		},
	}
	modify := func(to rdma.QPState, mask rdma.QPAttrMask) {
		attr.State = uint32(to)
		call[abi.QPAttr](c, abi.OpModifyQP, abi.ModifyQPReq{
			Handle: qp.Handle, Mask: uint32(mask | rdma.QPAttrState), Attr: attr,
		})
	}
	modify(rdma.QPStateInit, rdma.QPAttrPKeyIndex|rdma.QPAttrPort|rdma.QPAttrAccessFlags)
	modify(rdma.QPStateRTR, rdma.QPAttrAV|rdma.QPAttrPathMTU|rdma.QPAttrDestQPN|rdma.QPAttrRQPSN|
		rdma.QPAttrMaxDestRdAtomic|rdma.QPAttrMinRNRTimer)
	modify(rdma.QPStateRTS, rdma.QPAttrTimeout|rdma.QPAttrRetryCnt|rdma.QPAttrRNRRetry|
		rdma.QPAttrSQPSN|rdma.QPAttrMaxQPRdAtomic)
	return []*shm.Memory{cqm, qpm}
}

func TestHostile_RandomRings_OthersUndisturbed(t *testing.T) {
	s := startWithBystander(t)
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 12 {
		c := s.raw()
		memories := append([]*shm.Memory{c.open()}, c.connected()...)
		for range 60 {
			scribble(r, memories)
			if err := shm.Kick(c.kick); err != nil {
				t.Fatal(err)
			}
			if r.IntN(10) == 0 {
				// Holes read as zeros; they must not become a SIGBUS.
				for _, m := range memories {
					hole := m.Bytes()
					if err := unix.Madvise(hole, unix.MADV_REMOVE); err != nil && round == 0 {
						t.Logf("MADV_REMOVE: %v", err)
					}
				}
			}
		}
		s.check()
		_ = c.Close()
	}
	eventually(t, "the hostile contexts gone", func() bool {
		status, _ := s.d.Status()
		return len(status.Contexts) == 2
	})
	s.check()
	if status, _ := s.d.Status(); status.Counters["stray_doorbells"] == 0 {
		t.Error("the NIC never looked at the scribbled doorbells")
	}
}

// scribble writes indices, doorbells and entries at random, near what is plausible.
func scribble(r *rand.Rand, memories []*shm.Memory) {
	for _, m := range memories {
		b := m.Bytes()
		for range 40 {
			at := r.IntN(len(b)/8) * 8
			if r.IntN(2) == 0 {
				at = []int{0, 0x80, 0x100, 0x180, 0x200, 0x240, 0x108, 0x140}[r.IntN(8)]
			}
			value := r.Uint64() >> (r.IntN(8) * 8)
			for i := range 8 {
				b[at+i] = byte(value >> (8 * i))
			}
		}
	}
}

func TestHostile_RequestsOutOfOrder_AreRefused(t *testing.T) {
	s := startWithBystander(t)
	c := s.raw()
	expect := func(op abi.Op, body []byte, errno unix.Errno) {
		t.Helper()
		if _, err := c.Do(op, body); !errors.Is(err, errno) {
			t.Errorf("%v: %v, want %v", op, err, errno)
		}
	}
	handle := abi.HandleMsg{Handle: 999}
	expect(abi.OpAllocPD, nil, unix.EPROTO)
	expect(abi.OpHello, nil, unix.EPROTO)
	expect(abi.Op(999), nil, unix.EOPNOTSUPP)
	expect(abi.OpOpenDevice, ctl.Bytes(&abi.OpenDeviceReq{Name: [64]byte{'x'}}), unix.ENODEV)
	expect(abi.OpOpenDevice, []byte{1}, unix.EINVAL)
	c.open()
	again := abi.OpenDeviceReq{Name: [64]byte{'r', 'n', 'i', 'c', '0'}}
	expect(abi.OpOpenDevice, ctl.Bytes(&again), unix.EBUSY)
	expect(abi.OpDeallocPD, ctl.Bytes(&handle), unix.EINVAL)
	expect(abi.OpDeregMR, ctl.Bytes(&handle), unix.EINVAL)
	expect(abi.OpDestroyQP, ctl.Bytes(&handle), unix.EINVAL)
	expect(abi.OpDestroyCompChannel, ctl.Bytes(&handle), unix.EINVAL)
	expect(abi.OpCreateQP, []byte("short"), unix.EINVAL)
	// Another context's handles mean nothing here.
	status, _ := s.d.Status()
	for _, ctx := range status.Contexts {
		for _, q := range ctx.QPs {
			other := abi.HandleMsg{Handle: q.Handle}
			expect(abi.OpDestroyQP, ctl.Bytes(&other), unix.EINVAL)
		}
		for _, m := range ctx.MRs {
			other := abi.HandleMsg{Handle: m.Handle}
			expect(abi.OpDeregMR, ctl.Bytes(&other), unix.EINVAL)
		}
		if ctx.PID != uint32(os.Getpid()) {
			t.Errorf("context of pid %d", ctx.PID)
		}
	}
	s.check()
}

func TestHostile_Registrations_AreRefusedWithTheReason(t *testing.T) {
	s := startWithBystander(t)
	c := s.raw()
	c.open()
	pd := call[abi.HandleMsg](c, abi.OpAllocPD, struct{}{})
	fds := someFDs(t)
	before, maps := countFDs(t), countMaps(t)
	const size = 1 << 16
	for name, row := range map[string]struct {
		piece abi.Segment
		errno unix.Errno
	}{
		"no such descriptor": {abi.Segment{Length: size, FD: 7}, unix.EINVAL},
		"descriptor -2":      {abi.Segment{Length: size, FD: -2}, unix.EINVAL},
		"a device":           {abi.Segment{Length: size, FD: 0}, unix.EINVAL},
		"a pipe":             {abi.Segment{Length: size, FD: 1}, unix.EINVAL},
		"not sealed":         {abi.Segment{Length: size, FD: 4}, unix.EINVAL},
		"beyond the end":     {abi.Segment{Length: size, FDOffset: 1, FD: 3}, unix.EINVAL},
		"offset wraps":       {abi.Segment{Length: size, FDOffset: ^uint64(0) - 9, FD: 3}, unix.EINVAL},
		"no bytes":           {abi.Segment{FD: 3}, unix.EINVAL},
		"unmapped address":   {abi.Segment{Addr: 4096, Length: size, FD: -1}, unix.EFAULT},
		"kernel address":     {abi.Segment{Addr: 1 << 63, Length: size, FD: -1}, unix.EFAULT},
	} {
		req := abi.RegMRReq{
			PD: pd.Handle, Access: 7, Addr: row.piece.Addr, Length: row.piece.Length, NumSegments: 1,
		}
		body := append(append([]byte(nil), ctl.Bytes(&req)...), ctl.Bytes(&row.piece)...)
		if _, err := c.Do(abi.OpRegMR, body, fds...); !errors.Is(err, row.errno) {
			t.Errorf("%s: %v, want %v", name, err, row.errno)
		}
	}
	// Right but for the protection domain: what was mapped for it must be unmapped again.
	piece := abi.Segment{Addr: 1 << 20, Length: size, FD: 3}
	req := abi.RegMRReq{PD: 12345, Addr: 1 << 20, Length: size, NumSegments: 1}
	body := append(append([]byte(nil), ctl.Bytes(&req)...), ctl.Bytes(&piece)...)
	if _, err := c.Do(abi.OpRegMR, body, fds...); !errors.Is(err, unix.EINVAL) {
		t.Errorf("unknown PD: %v", err)
	}
	if f, m := countFDs(t), countMaps(t); f != before || m != maps {
		t.Errorf("descriptors %d → %d, mappings %d → %d", before, f, maps, m)
	}
	s.check()
}

// A library of another release learns which side is older.
func TestHostile_OtherVersion_IsTold(t *testing.T) {
	s := startWithBystander(t)
	for name, hello := range map[string]abi.HelloReq{
		"version": {Magic: abi.Magic, Version: abi.Version + 1},
		"magic":   {Magic: 1, Version: abi.Version},
	} {
		sock, err := s.d.Connect()
		if err != nil {
			t.Fatal(err)
		}
		c := ctl.NewClient(sock)
		if _, err := c.Do(abi.OpHello, ctl.Bytes(&hello)); !errors.Is(err, unix.EPROTO) {
			t.Errorf("%s: %v, want EPROTO", name, err)
		}
		if _, err := c.Do(abi.OpListDevices, nil); !errors.Is(err, ctl.ErrGone) {
			t.Errorf("%s: then %v, want the end", name, err)
		}
		_ = c.Close()
	}
}

func TestHostile_GarbageOnUDP_CountedNothingElse(t *testing.T) {
	n := netnstest.New(t)
	d := startIn(t, n, daemon.Config{Embedded: true})
	a, b := pair(t, d, 5000, true)
	r := rand.New(rand.NewPCG(5, 6))
	n.Do(func() {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", "127.0.0.1:4791")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for range 2000 {
			junk := make([]byte, r.IntN(1400))
			for i := range junk {
				junk[i] = byte(r.Uint32())
			}
			_, _ = conn.Write(junk)
		}
	})
	exchange(t, a, b)
	eventually(t, "garbage counted", func() bool {
		s, _ := d.Status()
		c := s.Network.Counters
		return c["rx_icrc_bad"]+c["rx_short"] > 0
	})
}
