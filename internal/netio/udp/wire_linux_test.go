package udp

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/roce"
	"github.com/softrnic/softrnic/test/netnstest"
)

func mustLink(t testing.TB, n *netnstest.Namespace) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(n.Link)
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// tap opens a packet socket that sees every frame that arrives on the link of a namespace.
func tap(t *testing.T, n *netnstest.Namespace) int {
	t.Helper()
	fd := -1
	n.Do(func() {
		var err error
		protocol := int(binary.BigEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			protocol = unix.ETH_P_ALL << 8 // network order
		}
		fd, err = unix.Socket(unix.AF_PACKET,
			unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// captured returns the RoCE frames that a tap has seen, until it has n or a second passed.
func captured(t *testing.T, fd, n int) []roce.Frame {
	t.Helper()
	var frames []roce.Frame
	buf := make([]byte, 128<<10)
	for range 1000 {
		k, err := unix.Read(fd, buf)
		if err != nil {
			if len(frames) >= n {
				return frames
			}
			time.Sleep(time.Millisecond)
			continue
		}
		f, err := roce.ParseFrame(append([]byte(nil), buf[:k]...))
		if err == nil {
			frames = append(frames, f)
		}
	}
	return frames
}

// The frames on the wire have the identifications that the ICRC was computed with, and the ICRC
// stands the check of somebody who sees all of the frame. T07: byte-exact ICRC; T09: IPv6 too.
func TestPort_FramesOnWire_T07_T09_ICRCRightWithIPIDSeen(t *testing.T) {
	a, b := netnstest.Pair(t, 4200)
	a.Do(func() {
		// One segment a packet: the kernel must cut segmented sends before the frames reach the
		// link, as it would for an adapter without that offload.
		if err := netlink.LinkSetGSOMaxSegs(mustLink(t, a), 1); err != nil {
			t.Skipf("cannot make the kernel segment: %v", err)
		}
	})
	for _, addrs := range [][2]netip.Addr{{a.V4, b.V4}, {a.V6, b.V6}} {
		if !addrs[0].IsValid() {
			continue
		}
		fd := tap(t, b)
		p, q := openIn(t, a, Config{}), openIn(t, b, Config{})
		path := roce.Path{
			Src: addrs[0], Dst: addrs[1], SrcPort: 0xc001, HopLimit: 33,
			TrafficClass: 0x82,
		}
		list := message(path)
		sent := clone(list)
		sendAll(t, p, sent)
		frames := captured(t, fd, len(list))
		if len(frames) != len(list) {
			t.Fatalf("%d frames on the wire, want %d", len(frames), len(list))
		}
		highest := uint16(0)
		for i, f := range frames {
			if v := roce.CheckICRC(&f.Path, f.Payload); v != roce.Good {
				t.Errorf("frame %d: ICRC %v; %v", i, v, f.Path)
			}
			if f.Path.HopLimit != 33 || f.Path.TrafficClass != 0x82 || f.Path.Is4() && !f.Path.DF ||
				f.Path.SrcPort != sent[i].Path.SrcPort {
				t.Errorf("frame %d: %v", i, f.Path)
			}
			if f.Path.Is4() && f.Path.IPID != sent[i].Path.IPID {
				t.Errorf("frame %d: identification %d, Send reported %d", i, f.Path.IPID,
					sent[i].Path.IPID)
			}
			highest = max(highest, f.Path.IPID)
		}
		if addrs[0].Is4() && p.Features().SegmentSend && highest != 61 {
			// 100 packets of 1044 bytes: 62 of them fit into one send.
			t.Errorf("highest identification is %d: were sends segmented?", highest)
		}
		checkSame(t, withPorts(list, sent), receiveN(t, q, len(list)))
		_, _ = p.Close(), q.Close()
	}
}

// With every mix of offloads on the two sides the bytes are the same.
func TestPort_TwoHosts_OffloadMixes_SameBytesArrive(t *testing.T) {
	a, b := netnstest.Pair(t, 4200)
	for mask := range 4 {
		p := openIn(t, a, Config{DisableGSO: mask&1 != 0})
		q := openIn(t, b, Config{DisableGRO: mask&2 != 0})
		for _, addrs := range [][2]netip.Addr{{a.V4, b.V4}, {a.V6, b.V6}} {
			if !addrs[0].IsValid() {
				continue
			}
			list := message(roce.Path{Src: addrs[0], Dst: addrs[1], SrcPort: 7, HopLimit: 64})
			sent := clone(list)
			sendAll(t, p, sent)
			checkSame(t, withPorts(list, sent), receiveN(t, q, len(list)))
		}
		if bad := q.Counters().Get(netio.RxICRCBad); bad != 0 {
			t.Errorf("mix %d: %d bad ICRCs", mask, bad)
		}
		_, _ = p.Close(), q.Close()
	}
}

func TestPort_NoNICOnPeer_UnreachableReportedOthersUnharmed(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	p := openIn(t, a, Config{SourcePorts: 1})
	for _, addrs := range [][2]netip.Addr{{a.V4, b.V4}, {a.V6, b.V6}} {
		if !addrs[0].IsValid() {
			continue
		}
		sendAll(t, p, []netio.Datagram{
			packet(roce.Path{Src: addrs[0], Dst: addrs[1], HopLimit: 64}, 64, 1),
		})
		report := awaitUnreachable(t, p)
		if report.Addr != addrs[1] || !report.NoPort || report.Reporter != addrs[1] {
			t.Errorf("report %+v, want no port at %v", report, addrs[1])
		}
		// Not fetched in time, a report surfaces as the error of the next send. That one goes
		// to somebody else and must arrive.
		sendAll(t, p, []netio.Datagram{
			packet(roce.Path{Src: addrs[0], Dst: addrs[1], HopLimit: 64}, 64, 2),
		})
		time.Sleep(20 * time.Millisecond)
		own := []netio.Datagram{
			packet(roce.Path{Src: addrs[0], Dst: addrs[0], HopLimit: 64}, 64, 3),
		}
		sendAll(t, p, own)
		checkSame(t, own, receiveN(t, p, 1))
		if report := awaitUnreachable(t, p); report.Addr != addrs[1] {
			t.Errorf("second report %+v", report)
		}
	}
	if n := p.Counters().Get(netio.Unreachables); n < 2 {
		t.Errorf("%d reports counted", n)
	}
	// Epoll must not be woken any more.
	if n, _ := pollNow(p.errors.polled); n != 0 {
		t.Errorf("%d descriptors still have an error", n)
	}
}

func awaitUnreachable(t *testing.T, p *Port) netio.Unreachable {
	t.Helper()
	for range 1000 {
		if list := p.Unreachable(); len(list) > 0 {
			return list[0]
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("no report within a second")
	return netio.Unreachable{}
}

func TestPort_NoRouteOrTooLong_DroppedAndCounted(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	p, q := openIn(t, a, Config{}), openIn(t, b, Config{})
	path := roce.Path{Src: a.V4, Dst: b.V4, HopLimit: 64}
	nowhere := path
	nowhere.Dst = netip.MustParseAddr("198.51.100.1")
	list := []netio.Datagram{
		packet(path, 1400, 0), packet(path, 4000, 1), packet(path, 4000, 2), packet(path, 4000, 3),
		packet(path, 300, 4), packet(nowhere, 64, 5), packet(nowhere, 64, 6), packet(path, 64, 7),
	}
	sent := clone(list)
	sendAll(t, p, sent)
	withPorts(list, sent)
	checkSame(t, []netio.Datagram{list[0], list[4], list[7]}, receiveN(t, q, 3))
	c := p.Counters()
	if c.Get(netio.TxTooLong) != 3 || c.Get(netio.TxUnreachable) != 2 ||
		c.Get(netio.TxPackets) != 3 {
		c.Each(func(i netio.CounterInfo, v uint64) { t.Logf("%s = %d", i.Name, v) })
		t.Error("counts differ")
	}
	if !p.Features().SegmentSend {
		t.Error("segmented send was blamed for packets that are too long")
	}
	for range 4 {
		p.Unreachable() // local errors are in the queue as well, and are no reports
	}
	if c.Get(netio.Unreachables) != 0 {
		t.Error("a local error was reported as a peer's")
	}
}

func TestPort_LinkLocalAddress_NeedsAndUsesInterface(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	if !a.V6.IsValid() {
		t.Skip("this kernel has no IPv6")
	}
	src, dst := linkLocal(t, a), linkLocal(t, b)
	p, q := openIn(t, a, Config{}), openIn(t, b, Config{})
	d := packet(roce.Path{Src: src, Dst: dst, HopLimit: 64}, 64, 1)
	var index int
	a.Do(func() { index = mustLink(t, a).Attrs().Index })
	d.Interface = uint32(index)
	list := []netio.Datagram{d}
	sendAll(t, p, list)
	got := receiveN(t, q, 1)
	checkSame(t, list, got)
	var peer int
	b.Do(func() { peer = mustLink(t, b).Attrs().Index })
	if got[0].Interface != uint32(peer) {
		t.Errorf("arrived on interface %d, want %d", got[0].Interface, peer)
	}
}

// linkLocal waits until duplicate detection is done with the link-local address.
func linkLocal(t *testing.T, n *netnstest.Namespace) netip.Addr {
	t.Helper()
	var found netip.Addr
	for range 500 {
		n.Do(func() {
			list, err := netlink.AddrList(mustLink(t, n), netlink.FAMILY_V6)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range list {
				ip, _ := netip.AddrFromSlice(a.IP)
				if ip.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0 {
					found = ip
				}
			}
		})
		if found.IsValid() {
			return found
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("no link-local address")
	return found
}

func TestPort_Multicast_OnlyJoinedGroupsArrive(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	p, q := openIn(t, a, Config{}), openIn(t, b, Config{})
	var out, in int
	a.Do(func() { out = mustLink(t, a).Attrs().Index })
	b.Do(func() { in = mustLink(t, b).Attrs().Index })
	for _, c := range []struct {
		src           netip.Addr
		group, absent string
	}{{a.V4, "239.1.2.3", "239.1.2.4"}, {a.V6, "ff15::7", "ff15::8"}} {
		if !c.src.IsValid() {
			continue
		}
		group := netip.MustParseAddr(c.group)
		for range 2 { // twice is once
			if err := q.JoinGroup(group, in); err != nil {
				t.Fatal(err)
			}
		}
		send := func() []netio.Datagram {
			path := roce.Path{Src: c.src, Dst: group, HopLimit: 3}
			other := path
			other.Dst = netip.MustParseAddr(c.absent)
			list := []netio.Datagram{packet(other, 64, 1), packet(path, 64, 2)}
			for i := range list {
				list[i].Interface = uint32(out)
			}
			sendAll(t, p, list)
			return list[1:]
		}
		checkSame(t, send(), receiveN(t, q, 1))
		for range 2 {
			if err := q.LeaveGroup(group, in); err != nil {
				t.Fatal(err)
			}
		}
		send()
		time.Sleep(20 * time.Millisecond)
		if n := receiveQuick(t, q); n != 0 {
			t.Errorf("%d datagrams after leaving", n)
		}
		if n := receiveQuick(t, p); n != 0 {
			t.Errorf("%d of our own multicasts came back", n)
		}
	}
	if err := q.JoinGroup(b.V4, in); err == nil {
		t.Error("joined a unicast address")
	}
}

// A link slower than the sender fills the socket: Send takes a part, and the rest later.
func TestPort_SlowLink_SendTakesPartThenRest(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	a.Do(func() {
		tbf := &netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: mustLink(t, a).Attrs().Index,
				Handle:    netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
			},
			// The bucket is given in ticks of 64 ns at this rate: 100 KiB.
			Rate: 4 << 20, Limit: 64 << 20, Buffer: 400_000,
		}
		if err := netlink.QdiscAdd(tbf); err != nil {
			t.Skipf("no token bucket filter in this kernel: %v", err)
		}
	})
	p, q := openIn(t, a, Config{SourcePorts: 1}), openIn(t, b, Config{})
	if err := unix.SetsockoptInt(p.v4.senders[0].fd, unix.SOL_SOCKET, unix.SO_SNDBUF,
		64<<10); err != nil {
		t.Fatal(err)
	}
	path := roce.Path{Src: a.V4, Dst: b.V4, HopLimit: 64}
	var list []netio.Datagram
	for i := range 1000 {
		list = append(list, packet(path, 1000, uint32(i)))
	}
	sent := clone(list)
	n, err := p.Send(sent)
	if err != nil || n == len(sent) || p.Counters().Get(netio.TxFull) != 1 {
		t.Fatalf("Send took %d of %d, error %v, full %d times", n, len(sent), err,
			p.Counters().Get(netio.TxFull))
	}
	got := receiveN(t, q, n)
	for rest := sent[n:]; len(rest) > 0; {
		if n, err = p.Send(rest); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		time.Sleep(time.Millisecond)
		got = append(got, receiveQuickly(t, q)...)
	}
	got = append(got, receiveN(t, q, len(list)-len(got))...)
	checkSame(t, withPorts(list, sent), got)
}

func receiveQuickly(t *testing.T, p *Port) []netio.Datagram {
	t.Helper()
	batch := make([]netio.Datagram, 1024)
	n, err := p.Receive(batch)
	if err != nil {
		t.Fatal(err)
	}
	return clone(batch[:n])
}
