package daemon_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/verbs"
)

// capture is one that runs.
type capture struct {
	t      *testing.T
	client *ctl.Client
	file   chan []byte
}

func dialRaw(t *testing.T, d *daemon.Daemon) *ctl.Client {
	t.Helper()
	sock, err := d.Connect()
	if err != nil {
		t.Fatal(err)
	}
	client := ctl.NewClient(sock)
	t.Cleanup(func() { _ = client.Close() })
	_, lane, err := client.Hello("capture")
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(lane)
	return client
}

func startCapture(t *testing.T, d *daemon.Daemon, req abi.CaptureReq) *capture {
	t.Helper()
	c := &capture{t: t, client: dialRaw(t, d), file: make(chan []byte, 1)}
	_, fds, err := ctl.CallFDs[struct{}](c.client, abi.OpCapture, ctl.Bytes(&req), 1)
	if err != nil {
		t.Fatal(err)
	}
	pipe := os.NewFile(uintptr(fds[0]), "capture")
	go func() {
		text, _ := io.ReadAll(pipe)
		_ = pipe.Close()
		c.file <- text
	}()
	return c
}

// wait returns the frames of the file, which has to end.
func (c *capture) wait() []roce.Frame {
	c.t.Helper()
	select {
	case text := <-c.file:
		return framesOf(c.t, text)
	case <-time.After(testTimeout):
		c.t.Fatal("the capture does not end")
	}
	return nil
}

func (c *capture) end() []roce.Frame {
	c.t.Helper()
	rsp, _, err := ctl.Call[abi.CaptureRsp](c.client, abi.OpEndCapture, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	list := c.wait()
	if uint64(len(list)) != rsp.Captured || rsp.Dropped != 0 {
		c.t.Errorf("%d frames in the file; the NIC says %+v", len(list), rsp)
	}
	return list
}

// framesOf walks the blocks of a pcapng file and checks lengths and ICRCs.
func framesOf(t *testing.T, text []byte) []roce.Frame {
	t.Helper()
	var list []roce.Frame
	le := func(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }
	for len(text) >= 12 {
		n := le(text[4:])
		if n < 12 || n > len(text) || le(text[n-4:]) != n {
			t.Fatalf("a block of %d bytes in %d", n, len(text))
		}
		if le(text) == 6 {
			captured, length := le(text[20:]), le(text[24:])
			if captured != length {
				t.Errorf("%d of %d bytes captured", captured, length)
			}
			f, err := roce.ParseFrame(text[28 : 28+captured])
			if err != nil {
				t.Fatalf("frame %d: %v", len(list), err)
			}
			if v := roce.CheckICRC(&f.Path, f.Payload); v != roce.Good {
				t.Errorf("frame %d: ICRC %v: %v", len(list), v, f.Packet())
			}
			list = append(list, f)
		}
		text = text[n:]
	}
	if len(text) != 0 {
		t.Errorf("%d bytes behind the last block", len(text))
	}
	return list
}

func dests(list []roce.Frame) map[rdma.QPN]int {
	out := map[rdma.QPN]int{}
	for i := range list {
		h, _ := ib.ParseBTH(list[i].Packet())
		out[h.DestQPN]++
	}
	return out
}

func hasPayload(list []roce.Frame, want []byte) bool {
	var all []byte
	for i := range list {
		all = append(all, list[i].Packet().Payload()...)
	}
	return bytes.Contains(all, want)
}

func (e *end) write(to *end, n int) {
	e.t.Helper()
	e.post(verbs.SendWR{
		Opcode: rdma.WRWrite, SGE: e.mr.SGE(0, n), RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
	})
	e.ok()
}

func TestCapture_OwnQueuePairs_BothWaysWithTheirBytes(t *testing.T) {
	d := startLocal(t)
	a, b := pair(t, d, 100<<10, true)
	fill(a.mr.Bytes(), 9)
	c := startCapture(t, d, abi.CaptureReq{})
	a.write(b, a.mr.Len())
	list := c.end()
	to := dests(list)
	if to[b.qp.QPN()] < 4 || to[a.qp.QPN()] == 0 || len(to) != 2 {
		t.Errorf("packets by destination: %v", to)
	}
	if !hasPayload(list, a.mr.Bytes()) {
		t.Error("the file has other bytes")
	}
	a.write(b, a.mr.Len()) // the NIC goes on
}

func TestCapture_ByQueuePair_BothDirectionsOfOneConnection(t *testing.T) {
	d := startLocal(t)
	a, b := pair(t, d, 4096, true)
	other1, other2 := pair(t, d, 4096, true)
	c := startCapture(t, d, abi.CaptureReq{QPN: uint32(a.qp.QPN())})
	a.write(b, 4096)
	other1.write(other2, 4096)
	to := dests(c.end())
	if to[b.qp.QPN()] == 0 || to[a.qp.QPN()] == 0 || len(to) != 2 {
		t.Errorf("packets by destination: %v; the queue pair is %v", to, a.qp.QPN())
	}
}

func TestCapture_OnTheWire_ByAddressAndCount(t *testing.T) {
	da, db := startWired(t, "")
	a := newEnd(t, open(t, da), rdma.QPTypeRC, 10<<10, true)
	b := newEnd(t, open(t, db), rdma.QPTypeRC, 10<<10, true)
	connectOn(t, a, b, 0)
	peer := rdma.GIDFromAddr(netip.MustParseAddr("192.0.2.2"))
	stranger := rdma.GIDFromAddr(netip.MustParseAddr("192.0.2.3"))
	whole := startCapture(t, da, abi.CaptureReq{Address: peer, QPN: uint32(a.qp.QPN())})
	none := startCapture(t, da, abi.CaptureReq{Address: stranger})
	two := startCapture(t, da, abi.CaptureReq{Count: 2})
	a.write(b, a.mr.Len())
	to := dests(whole.end())
	if to[b.qp.QPN()] < 3 || to[a.qp.QPN()] == 0 {
		t.Errorf("packets by destination: %v", to)
	}
	if n := len(two.wait()); n != 2 { // by itself
		t.Errorf("%d packets instead of 2", n)
	}
	if n := len(none.end()); n != 0 {
		t.Errorf("%d packets of a stranger", n)
	}
}

func TestCapture_Faults_FileHasWhatIsOnTheWire(t *testing.T) {
	d := start(t, daemon.Config{Embedded: true, NoNetwork: true, Fault: "dup=100%,seed=3"})
	a, b := pair(t, d, 1000, true)
	c := startCapture(t, d, abi.CaptureReq{QPN: uint32(b.qp.QPN())})
	const writes = 20
	for range writes {
		a.write(b, 1000)
	}
	if n := dests(c.end())[b.qp.QPN()]; n <= writes+writes/2 { // the last may be under way
		t.Errorf("%d packets of %d WRITEs that are doubled", n, writes)
	}
}

// A datagram to a group is on the wire and stays in the NIC; the file has it once.
func TestCapture_Datagram_BySenderOnce(t *testing.T) {
	local := startLocal(t)
	wired, _ := startWired(t, "")
	both, _ := startWired(t, "delay=10us")
	for name, d := range map[string]*daemon.Daemon{
		"own": local, "wire": wired, "wire and own with faults": both,
	} {
		t.Run(name, func(t *testing.T) {
			group := rdma.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))
			a, b := attached(t, d, group), attached(t, d, group)
			b.recv(1, 0, 400)
			byA := startCapture(t, d, abi.CaptureReq{QPN: uint32(a.qp.QPN())})
			all := startCapture(t, d, abi.CaptureReq{Address: group})
			a.shout(group, "once")
			b.heard("once")
			b.shout(group, "not of a")
			b.ok()
			if list := byA.end(); len(list) != 1 || !hasPayload(list, []byte("once")) {
				t.Errorf("%d packets by their sender", len(list))
			}
			if n := len(all.end()); n != 2 {
				t.Errorf("%d packets of the group", n)
			}
		})
	}
}

func TestCapture_NICEnds_FileEndsWhole(t *testing.T) {
	d := startLocal(t)
	a, b := pair(t, d, 4096, true)
	c := startCapture(t, d, abi.CaptureReq{})
	a.write(b, 4096)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.wait() // whole blocks, however many packets were written yet
}

func TestCapture_WrongRequests_AreRefused(t *testing.T) {
	d := startLocal(t)
	client := dialRaw(t, d)
	refuse := func(op abi.Op, body []byte, errno syscall.Errno) {
		t.Helper()
		_, err := client.Do(op, body)
		var refusal *ctl.Error
		if !errors.As(err, &refusal) || !errors.Is(err, errno) {
			t.Errorf("%v: %v, not %v", op, err, errno)
		}
	}
	refuse(abi.OpEndCapture, nil, unix.EINVAL)
	refuse(abi.OpCapture, []byte{1}, unix.EINVAL)
	refuse(abi.OpCapture, ctl.Bytes(&abi.CaptureReq{BufferBytes: limits.MaxCaptureBytes + 1}),
		unix.EINVAL)
	for range limits.MaxCaptures {
		startCapture(t, d, abi.CaptureReq{})
	}
	refuse(abi.OpCapture, ctl.Bytes(&abi.CaptureReq{}), unix.EBUSY)
}

func TestCapture_ReaderDies_LeavesNothing(t *testing.T) {
	d := startLocal(t)
	a, b := pair(t, d, 1<<20, true)
	settled(t, func() {
		client := dialRaw(t, d)
		_, fds, err := ctl.CallFDs[struct{}](client, abi.OpCapture,
			ctl.Bytes(&abi.CaptureReq{BufferBytes: 64 << 10}), 1)
		if err != nil {
			t.Fatal(err)
		}
		a.write(b, 1<<20) // nobody reads
		_ = client.Close()
		_ = unix.Close(fds[0])
	})
	a.write(b, 1<<20)
}

// On a real network, with segmentation offload, the file has the ICRC and identification that the
// kernel puts on the wire.
func TestCapture_UDP_BothEndsSeeTheSamePackets(t *testing.T) {
	na, nb := netnstest.Pair(t, 9000)
	da := startIn(t, na, daemon.Config{Embedded: true})
	db := startIn(t, nb, daemon.Config{Embedded: true})
	a := newEnd(t, open(t, da), rdma.QPTypeRC, 200<<10, true)
	b := newEnd(t, open(t, db), rdma.QPTypeRC, 200<<10, true)
	connectOn(t, a, b, 0)
	fill(a.mr.Bytes(), 4)
	ca := startCapture(t, da, abi.CaptureReq{QPN: uint32(a.qp.QPN())})
	cb := startCapture(t, db, abi.CaptureReq{QPN: uint32(b.qp.QPN())})
	a.write(b, a.mr.Len())
	sent, received := ca.end(), cb.end()
	if !hasPayload(sent, a.mr.Bytes()) || !hasPayload(received, a.mr.Bytes()) {
		t.Errorf("%d packets at one end, %d at the other: other bytes", len(sent), len(received))
	}
	if to := dests(sent); to[b.qp.QPN()] < 50 || to[a.qp.QPN()] == 0 {
		t.Errorf("packets by destination: %v", to)
	}
}
