package daemon_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/netio/loop"
	"github.com/softrnic/softrnic/test/netnstest"
)

// Events of rdma_cm (enum rdma_cm_event_type) and port spaces.
const (
	cmAddrResolved    = 0
	cmAddrError       = 1
	cmRouteResolved   = 2
	cmConnectRequest  = 4
	cmConnectResponse = 5
	cmUnreachable     = 7
	cmRejected        = 8
	cmEstablished     = 9
	cmDisconnected    = 10
	cmDeviceRemoval   = 11
	cmMulticastJoin   = 12

	spaceTCP = 0x0106
	spaceUDP = 0x0111
)

// manager is a program that manages connections, without a library.
type manager struct {
	*ctl.Client
	t       testing.TB
	channel uint32
	events  int // descriptor of the channel's pipe
}

func newManager(t testing.TB, d *daemon.Daemon) *manager {
	t.Helper()
	sock, err := d.Connect()
	if err != nil {
		t.Fatal(err)
	}
	m := &manager{Client: ctl.NewClient(sock), t: t}
	t.Cleanup(func() { _ = m.Close() })
	_, lane, err := m.Hello("manager")
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(lane)
	m.must(abi.OpOpenCM, nil)
	m.channel, m.events = m.newChannel()
	return m
}

func (m *manager) newChannel() (uint32, int) {
	m.t.Helper()
	h, fds, err := ctl.CallFDs[abi.HandleMsg](m.Client, abi.OpCreateEventChannel, nil, 1)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = unix.Close(fds[0]) })
	return h.Handle, fds[0]
}

func (m *manager) must(op abi.Op, body []byte) []byte {
	m.t.Helper()
	reply, err := m.Do(op, body)
	if err != nil {
		m.t.Fatal(err)
	}
	return reply.Body
}

// read takes one event off the pipe; ok is false at its end.
func (m *manager) read(wait time.Duration) (e abi.CMEvent, ok bool) {
	m.t.Helper()
	fds := []unix.PollFd{{Fd: int32(m.events), Events: unix.POLLIN}}
	for deadline := time.Now().Add(wait); ; {
		n, err := unix.Poll(fds, int(max(time.Until(deadline), 0)/time.Millisecond))
		if err == nil && n == 1 {
			break
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("no event within %v", wait)
		}
	}
	b := ctl.Bytes(&e)
	n, err := unix.Read(m.events, b)
	if err != nil || n != 0 && n != len(b) {
		m.t.Fatalf("read %d bytes: %v", n, err)
	}
	return e, n != 0
}

func (m *manager) expect(kind, id uint32) abi.CMEvent {
	m.t.Helper()
	e, ok := m.read(testTimeout)
	if !ok || e.Event != kind || id != 0 && e.ID != id {
		m.t.Fatalf("event %d about %d, status %d (%v); want %d about %d", e.Event, e.ID, e.Status, ok,
			kind, id)
	}
	return e
}

func cmAddr(ip netip.Addr, port uint16) abi.CMAddr {
	a := abi.CMAddr{Family: unix.AF_INET6, Port: port}
	if ip.Is4() {
		a.Family = unix.AF_INET
	}
	copy(a.Addr[:], ip.AsSlice())
	return a
}

func (m *manager) id(space uint32) uint32 {
	m.t.Helper()
	req := abi.CreateIDReq{Channel: m.channel, PortSpace: space, QPType: 2}
	var h abi.HandleMsg
	if !ctl.Decode(m.must(abi.OpCreateID, ctl.Bytes(&req)), &h) {
		m.t.Fatal("reply of another size")
	}
	return h.Handle
}

func (m *manager) listen(space uint32, ip string, port uint16) uint32 {
	m.t.Helper()
	id := m.id(space)
	m.must(abi.OpBindAddr, ctl.Bytes(&abi.CMAddrReq{
		ID: id, Src: cmAddr(netip.MustParseAddr(ip), port),
	}))
	m.must(abi.OpListen, ctl.Bytes(&abi.CMListenReq{ID: id, Backlog: 10}))
	return id
}

func (m *manager) resolve(id uint32, ip netip.Addr, port uint16) {
	m.t.Helper()
	req := abi.CMAddrReq{ID: id, TimeoutMS: 2000, Dst: cmAddr(ip, port)}
	m.must(abi.OpResolveAddr, ctl.Bytes(&req))
	m.expect(cmAddrResolved, id)
	m.must(abi.OpResolveRoute, ctl.Bytes(&req))
	m.expect(cmRouteResolved, id)
}

func (m *manager) ask(op abi.Op, id, qpn uint32) {
	m.t.Helper()
	m.must(op, ctl.Bytes(&abi.CMConnReq{
		ID: id, Param: abi.CMParam{QPN: qpn, RetryCount: 7, RNRRetryCount: 7},
	}))
}

func (m *manager) do(op abi.Op, handle uint32) {
	m.t.Helper()
	m.must(op, ctl.Bytes(&abi.HandleMsg{Handle: handle}))
}

var testQPN uint32 = 0x1000 // no two connections of a test have one in common

// dial connects to a listener of peer, and returns both ends.
func (m *manager) dial(peer *manager, ip netip.Addr, port uint16) (active, passive uint32) {
	m.t.Helper()
	testQPN += 2
	active = m.id(spaceTCP)
	m.resolve(active, ip, port)
	m.ask(abi.OpConnect, active, testQPN)
	passive = peer.expect(cmConnectRequest, 0).ID
	peer.ask(abi.OpAccept, passive, testQPN+1)
	m.expect(cmConnectResponse, active)
	m.do(abi.OpEstablish, active)
	peer.expect(cmEstablished, passive)
	return active, passive
}

// C03 and C04: two programs of one NIC meet at loopback addresses and at own ones.
func TestConnections_OneNIC_C03_C04_ConnectByAnyOwnAddress(t *testing.T) {
	d := startLocal(t)
	a, b := newManager(t, d), newManager(t, d)
	b.listen(spaceTCP, "::", 7471)
	for _, ip := range []string{"127.0.0.1", "::1", "0.0.0.0"} {
		id, child := a.dial(b, netip.MustParseAddr(ip), 7471)
		s, _ := d.Status()
		if len(s.CMIDs) < 3 || s.CMIDs[1].Program != "manager" || s.CMIDs[1].State != "established" ||
			s.CMIDs[1].Remote == "" || s.CMIDs[1].QPN == 0 {
			t.Fatalf("status %+v", s.CMIDs)
		}
		a.do(abi.OpDisconnect, id)
		a.expect(cmDisconnected, id)
		b.expect(cmDisconnected, child)
		a.do(abi.OpDestroyID, id)
		b.do(abi.OpDestroyID, child)
	}
}

func TestConnections_TwoNICs_OverTheWire(t *testing.T) {
	da, db := startWired(t, "")
	a, b := newManager(t, da), newManager(t, db)
	b.listen(spaceTCP, "::", 7471)
	for _, ip := range []string{"192.0.2.2", "2001:db8::2"} {
		id, child := a.dial(b, netip.MustParseAddr(ip), 7471)
		a.do(abi.OpDisconnect, id)
		b.expect(cmDisconnected, child)
		a.expect(cmDisconnected, id)
		a.do(abi.OpDestroyID, id)
		b.do(abi.OpDestroyID, child)
	}
}

// A program that ends closes its connections: the peer hears of it at once.
func TestConnections_ProgramEnds_PeerDisconnected(t *testing.T) {
	d := startLocal(t)
	settled(t, func() {
		a, b := newManager(t, d), newManager(t, d)
		b.listen(spaceTCP, "127.0.0.1", 7471)
		id, _ := a.dial(b, netip.MustParseAddr("127.0.0.1"), 7471)
		_ = b.Close()
		a.expect(cmDisconnected, id)
		other := a.id(spaceTCP)
		a.resolve(other, netip.MustParseAddr("127.0.0.1"), 7471)
		eventually(t, "the listener gone", func() bool {
			s, _ := d.Status()
			return len(s.CMIDs) == 2
		})
		a.ask(abi.OpConnect, other, 5)
		if e := a.expect(cmRejected, other); e.Status != 8 {
			t.Fatalf("status %d", e.Status)
		}
		_, _ = a.Close(), unix.Close(a.events)
		_ = unix.Close(b.events)
		a.events, b.events = -1, -1
	})
}

// The NIC ends: programs read DEVICE_REMOVAL and then the end, and peers on other hosts hear that
// the connections are over.
func TestConnections_NICEnds_DeviceRemovalAndDisconnect(t *testing.T) {
	da, db := startWired(t, "")
	a, b := newManager(t, da), newManager(t, db)
	b.listen(spaceTCP, "192.0.2.2", 7471)
	id, child := a.dial(b, netip.MustParseAddr("192.0.2.2"), 7471)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b.expect(cmDeviceRemoval, 0) // the listener has a specific address
	b.expect(cmDeviceRemoval, child)
	if e, more := b.read(testTimeout); more {
		t.Fatalf("event %+v after the end", e)
	}
	a.expect(cmDisconnected, id)
}

func TestConnections_NoWay_AddressErrorSaysWhy(t *testing.T) {
	d := startLocal(t)
	m := newManager(t, d)
	id := m.id(spaceTCP)
	req := abi.CMAddrReq{ID: id, Dst: cmAddr(netip.MustParseAddr("192.0.2.99"), 1)}
	m.must(abi.OpResolveAddr, ctl.Bytes(&req))
	if e := m.expect(cmAddrError, id); e.Status != -int32(unix.ENETUNREACH) {
		t.Fatalf("status %d", e.Status)
	}
	// A NIC that has no IPv6 on its wire.
	hub := loop.NewHub(loop.Config{})
	own := netip.MustParseAddr("192.0.2.1")
	port, err := hub.Open("a", own)
	if err != nil {
		t.Fatal(err)
	}
	m = newManager(t, start(t, daemon.Config{
		Embedded: true, Wire: &daemon.Wire{Port: port, Addresses: []netip.Addr{own}},
	}))
	id = m.id(spaceTCP)
	req = abi.CMAddrReq{ID: id, Dst: cmAddr(netip.MustParseAddr("2001:db8::9"), 1)}
	m.must(abi.OpResolveAddr, ctl.Bytes(&req))
	if e := m.expect(cmAddrError, id); e.Status != -int32(unix.ENETUNREACH) {
		t.Fatalf("status %d", e.Status)
	}
}

// C14: addresses are resolved in the NIC's own network namespace, over the host's routes and UDP.
func TestConnections_TwoNamespaces_C14_ResolveAndConnect(t *testing.T) {
	na, nb := netnstest.Pair(t, 1500)
	da := startIn(t, na, daemon.Config{Embedded: true})
	a := newManager(t, da)
	id := a.id(spaceTCP)
	for _, ip := range []string{"198.51.100.1", "2001:db8::1"} {
		req := abi.CMAddrReq{ID: id, Dst: cmAddr(netip.MustParseAddr(ip), 1)}
		if ip[0] == '2' {
			id = a.id(spaceTCP)
			req.ID = id
		}
		a.must(abi.OpResolveAddr, ctl.Bytes(&req))
		if e := a.expect(cmAddrError, id); e.Status != -int32(unix.ENETUNREACH) {
			t.Fatalf("%s: status %d", ip, e.Status)
		}
	}
	// There is a host, but no NIC on it yet: its port unreachable ends the attempt.
	id = a.id(spaceTCP)
	a.resolve(id, nb.V4, 7471)
	a.ask(abi.OpConnect, id, 5)
	if e := a.expect(cmUnreachable, id); e.Status != -int32(unix.ECONNREFUSED) {
		t.Fatalf("status %d", e.Status)
	}
	// Nor does it take a minute to learn that there is no host: its neighbours know.
	id = a.id(spaceTCP)
	a.resolve(id, nb.V4.Next().Next(), 7471)
	a.ask(abi.OpConnect, id, 5)
	if e := a.expect(cmUnreachable, id); e.Status != -int32(unix.EHOSTUNREACH) {
		t.Fatalf("status %d", e.Status)
	}
	db := startIn(t, nb, daemon.Config{Embedded: true})
	b := newManager(t, db)
	b.listen(spaceTCP, "::", 7471)
	for _, ip := range []netip.Addr{nb.V4, nb.V6} {
		id, child := a.dial(b, ip, 7471)
		var r abi.CMRoute
		if !ctl.Decode(a.must(abi.OpQueryID, ctl.Bytes(&abi.HandleMsg{Handle: id})), &r) ||
			r.PathMTU != 3 {
			t.Fatalf("route %+v", r)
		}
		a.do(abi.OpDisconnect, id)
		b.expect(cmDisconnected, child)
		a.expect(cmDisconnected, id)
		a.do(abi.OpDestroyID, id)
		b.do(abi.OpDestroyID, child)
	}
}

func TestConnections_BeforeOpenCM_Refused(t *testing.T) {
	d := startLocal(t)
	sock, err := d.Connect()
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{Client: ctl.NewClient(sock), t: t}
	defer func() { _ = c.Close() }()
	_, lane, err := c.Hello("manager")
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(lane)
	refused := func(op abi.Op, body []byte, errno unix.Errno) {
		t.Helper()
		if _, err := c.Do(op, body); !errors.Is(err, errno) {
			t.Errorf("%v: %v, want %v", op, err, errno)
		}
	}
	for op := abi.OpCreateEventChannel; op <= abi.OpLeaveMulticast; op++ {
		refused(op, nil, unix.EPROTO)
	}
	refused(abi.OpAttachMulticast, nil, unix.EPROTO)
	refused(abi.OpOpenCM, []byte("x"), unix.EINVAL)
	if _, err := c.Do(abi.OpOpenCM, nil); err != nil {
		t.Fatal(err)
	}
	refused(abi.OpOpenCM, nil, unix.EBUSY)
	device := abi.OpenDeviceReq{Name: [64]byte{'r', 'n', 'i', 'c', '0'}}
	refused(abi.OpOpenDevice, ctl.Bytes(&device), unix.EBUSY)
	refused(abi.OpAllocPD, nil, unix.EPROTO)
	for op := abi.OpCreateEventChannel; op <= abi.OpLeaveMulticast; op++ {
		refused(op, []byte("a body of no size that any takes"), unix.EINVAL)
	}
	for op := abi.OpDestroyEventChannel; op <= abi.OpLeaveMulticast; op++ {
		refused(op, nil, unix.EINVAL)
	}
}

// A program that starts things and never reads its events is stopped, not the NIC filled up; when
// it reads, everything is there in order.
func TestConnections_EventsUnread_ProgramIsStopped(t *testing.T) {
	m := newManager(t, startLocal(t))
	id := m.id(spaceUDP)
	own := netip.MustParseAddr("127.0.0.1")
	m.must(abi.OpBindAddr, ctl.Bytes(&abi.CMAddrReq{ID: id, Src: cmAddr(own, 0)}))
	req := abi.CMMulticastReq{ID: id, Flags: 2, Addr: cmAddr(netip.MustParseAddr("239.1.1.1"), 0)}
	started := 0
	for ; started < 3*limits.MaxEventBacklog; started++ {
		reply, err := m.Do(abi.OpJoinMulticast, ctl.Bytes(&req))
		if errors.Is(err, unix.ENOBUFS) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		m.must(abi.OpLeaveMulticast, reply.Body)
	}
	if started <= limits.MaxEventBacklog || started >= 2*limits.MaxEventBacklog {
		t.Fatalf("stopped after %d", started)
	}
	last := uint32(0)
	for range started {
		e := m.expect(cmMulticastJoin, id)
		if e.Join <= last {
			t.Fatalf("event of join %d after that of %d", e.Join, last)
		}
		last = e.Join
	}
	m.must(abi.OpJoinMulticast, ctl.Bytes(&req))
	m.expect(cmMulticastJoin, id)
}

func TestConnections_RandomRequests_OthersUndisturbed(t *testing.T) {
	s := startWithBystander(t)
	a, b := newManager(t, s.d), newManager(t, s.d)
	b.listen(spaceTCP, "127.0.0.1", 7471)
	r := rand.New(rand.NewPCG(5, 6))
	const first = abi.OpCreateEventChannel
	sizes := map[abi.Op]int{}
	for op, n := range map[abi.Op]int{
		abi.OpCreateID:      len(ctl.Bytes(&abi.CreateIDReq{})),
		abi.OpBindAddr:      len(ctl.Bytes(&abi.CMAddrReq{})),
		abi.OpListen:        len(ctl.Bytes(&abi.CMListenReq{})),
		abi.OpConnect:       len(ctl.Bytes(&abi.CMConnReq{})),
		abi.OpNotify:        len(ctl.Bytes(&abi.CMNotifyReq{})),
		abi.OpSetOption:     len(ctl.Bytes(&abi.CMOptionReq{})),
		abi.OpJoinMulticast: len(ctl.Bytes(&abi.CMMulticastReq{})),
	} {
		sizes[op] = n
	}
	sizes[abi.OpResolveAddr], sizes[abi.OpResolveRoute] = sizes[abi.OpBindAddr], sizes[abi.OpBindAddr]
	sizes[abi.OpAccept], sizes[abi.OpReject] = sizes[abi.OpConnect], sizes[abi.OpConnect]
	for range 3 {
		m := newManager(t, s.d)
		for range 2000 {
			op := first + abi.Op(r.IntN(int(abi.OpLeaveMulticast-first)+1))
			n := sizes[op]
			if n == 0 && op != abi.OpCreateEventChannel {
				n = 8
			}
			body := make([]byte, n)
			for i := range body {
				if r.IntN(4) == 0 {
					body[i] = byte(r.Uint32())
				}
			}
			if n >= 8 && r.IntN(4) > 0 { // handles are small numbers
				body[0], body[1], body[2], body[3] = byte(r.IntN(200)), 0, 0, 0
			}
			reply, err := m.Do(op, body)
			if err == nil {
				reply.CloseFDs()
			} else if refused := new(ctl.Error); !errors.As(err, &refused) {
				t.Fatalf("%v: %v", op, err)
			}
		}
		_ = m.Close()
		a.dial(b, netip.MustParseAddr("127.0.0.1"), 7471)
		s.check()
	}
}

func TestConnections_ManyInParallel_AllConnect(t *testing.T) {
	const parallel = 100
	d := startLocal(t)
	a, b := newManager(t, d), newManager(t, d)
	id := b.id(spaceTCP)
	local := netip.MustParseAddr("127.0.0.1")
	b.must(abi.OpBindAddr, ctl.Bytes(&abi.CMAddrReq{ID: id, Src: cmAddr(local, 7471)}))
	b.must(abi.OpListen, ctl.Bytes(&abi.CMListenReq{ID: id}))
	for i := range uint32(parallel) {
		id := a.id(spaceTCP)
		a.resolve(id, local, 7471)
		a.ask(abi.OpConnect, id, 0x10000+i)
	}
	for i := range uint32(parallel) {
		child := b.expect(cmConnectRequest, 0).ID
		b.ask(abi.OpAccept, child, 0x20000+i)
	}
	for range parallel {
		a.do(abi.OpEstablish, a.expect(cmConnectResponse, 0).ID)
	}
	for range parallel {
		b.expect(cmEstablished, 0)
	}
}

func TestConnections_Multicast_JoinsOnTheInterface(t *testing.T) {
	na, _ := netnstest.Pair(t, 1500)
	d := startIn(t, na, daemon.Config{Embedded: true})
	m := newManager(t, d)
	for _, row := range []struct {
		own   netip.Addr
		group string
	}{{na.V4, "239.1.2.3"}, {na.V6, "ff05::1234"}} {
		id := m.id(spaceUDP)
		m.must(abi.OpBindAddr, ctl.Bytes(&abi.CMAddrReq{ID: id, Src: cmAddr(row.own, 0)}))
		group := netip.MustParseAddr(row.group)
		var h abi.HandleMsg
		if !ctl.Decode(m.must(abi.OpJoinMulticast, ctl.Bytes(&abi.CMMulticastReq{
			ID: id, Flags: 1, Addr: cmAddr(group, 0),
		})), &h) {
			t.Fatal("reply of another size")
		}
		if e := m.expect(cmMulticastJoin, id); e.Join != h.Handle || e.Param.QPN != 0xffffff {
			t.Fatalf("event %+v", e)
		}
		if !memberOf(t, na, row.group) {
			t.Fatalf("the host is no member of %s", row.group)
		}
		m.do(abi.OpLeaveMulticast, h.Handle)
		if memberOf(t, na, row.group) {
			t.Fatalf("the host is still a member of %s", row.group)
		}
	}
}

// memberOf looks into the kernel's lists of groups.
func memberOf(t *testing.T, n *netnstest.Namespace, group string) (found bool) {
	t.Helper()
	ip := netip.MustParseAddr(group)
	file, want := "/proc/thread-self/net/igmp6", fmt.Sprintf("%x", ip.AsSlice())
	if ip.Is4() {
		b := ip.As4()
		file = "/proc/thread-self/net/igmp"
		want = fmt.Sprintf("%02X%02X%02X%02X", b[3], b[2], b[1], b[0]) // little-endian
	}
	n.Do(func() {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found = strings.Contains(string(text), want)
	})
	return found
}
