package daemon_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/verbs"
)

func startIn(t *testing.T, n *netnstest.Namespace, c daemon.Config) (d *daemon.Daemon) {
	t.Helper()
	n.Do(func() { d = start(t, c) })
	return d
}

func TestDaemon_TwoNamespaces_AllOperationsOverUDP(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		na, nb := netnstest.Pair(t, mtu)
		da := startIn(t, na, daemon.Config{Embedded: true})
		db := startIn(t, nb, daemon.Config{Embedded: true})
		for _, n := range []int{1, 1500, 1 << 20} {
			a := newEnd(t, open(t, da), rdma.QPTypeRC, n, true)
			b := newEnd(t, open(t, db), rdma.QPTypeRC, n, false)
			for index := range 2 {
				connectOn(t, a, b, index)
				exchange(t, a, b)
				if err := errors.Join(a.qp.ToReset(), b.qp.ToReset()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := da.Close(), db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The kernel's rule, so that both ends of a link with rdma_rxe agree: 1500 → 1024, 9000 → 4096;
// the loopback interface alone gives 4096.
func TestDaemon_InterfaceMTU_DecidesActiveMTU(t *testing.T) {
	for mtu, want := range map[int]verbs.MTU{
		1280: rdma.MTU1024, 1500: rdma.MTU1024, 2200: rdma.MTU2048, 4200: rdma.MTU4096,
		9000: rdma.MTU4096,
	} {
		n, _ := netnstest.Pair(t, mtu)
		checkMTU(t, startIn(t, n, daemon.Config{Embedded: true}), want)
	}
	checkMTU(t, startIn(t, netnstest.New(t), daemon.Config{Embedded: true}), rdma.MTU4096)
	over := daemon.Config{Embedded: true, NoNetwork: true, MTU: rdma.MTU512}
	checkMTU(t, start(t, over), rdma.MTU512)
}

func checkMTU(t *testing.T, d *daemon.Daemon, want verbs.MTU) {
	t.Helper()
	p, err := open(t, d).Port(1)
	if err != nil || p.ActiveMTU != want {
		t.Errorf("active MTU %v, %v; want %v", p.ActiveMTU, err, want)
	}
}

// A peer without a NIC answers with a port unreachable: the program learns it at once, and not
// after 8 × 67 ms.
func TestDaemon_PeerWithoutNIC_FailsFast(t *testing.T) {
	na, nb := netnstest.Pair(t, 1500)
	for name, d := range map[string]*daemon.Daemon{
		"no NIC":     startIn(t, na, daemon.Config{Embedded: true}),
		"no network": startLocal(t),
	} {
		a := newEnd(t, open(t, d), rdma.QPTypeRC, 64, true)
		peer := firstIPv4(t, a)
		peer.GID = rdma.GIDFromAddr(nb.V4)
		if err := a.qp.ConnectTo(peer); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		a.post(verbs.SendWR{Opcode: rdma.WRSend, SGE: a.mr.SGE(0, 64)})
		wc := a.await()
		if wc.Status != rdma.WCRetryExcErr ||
			!strings.Contains(wc.Evidence.String(), "no NIC at the peer's address") {
			t.Errorf("%s: %v, %v", name, wc.Status, wc.Evidence)
		}
		if took := time.Since(begin); took > 300*time.Millisecond {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// firstIPv4 is the endpoint of e on its first IPv4 GID.
func firstIPv4(t *testing.T, e *end) verbs.Endpoint {
	t.Helper()
	gids, err := e.ctx.GIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gids {
		if g.GID.Addr().Is4() {
			p, err := e.qp.EndpointOn(g)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatalf("no IPv4 GID in %v", gids)
	return verbs.Endpoint{}
}

// A second NIC of a namespace cannot have the port; it says so and serves its own programs.
func TestDaemon_PortTaken_LocalOnlyWithReason(t *testing.T) {
	n := netnstest.New(t)
	first := startIn(t, n, daemon.Config{Embedded: true})
	second := startIn(t, n, daemon.Config{Embedded: true})
	s1, _ := first.Status()
	s2, _ := second.Status()
	if s1.LocalOnly != "" || !strings.Contains(s2.LocalOnly, "4791") || s2.Network != nil {
		t.Errorf("first %q, second %q", s1.LocalOnly, s2.LocalOnly)
	}
	if s1.Devices[0].NodeGUID == s2.Devices[0].NodeGUID {
		t.Errorf("two NICs have the node GUID %s", s1.Devices[0].NodeGUID)
	}
	a, b := pair(t, second, 4096, true)
	exchange(t, a, b)
}

func gidsOf(t *testing.T, c *verbs.Context) map[string]uint32 {
	t.Helper()
	list, err := c.GIDs()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint32{}
	for _, g := range list {
		out[g.GID.Addr().String()] = g.Index
	}
	return out
}

// G01, G09: the table is right when the NIC is ready, follows addresses, keeps the places of those
// that stay, and a GID that is gone is refused with a hint.
func TestDaemon_AddressesChange_G01_G09_TableFollows(t *testing.T) {
	n, _ := netnstest.Pair(t, 1500)
	d := startIn(t, n, daemon.Config{Embedded: true})
	c := open(t, d)
	before := gidsOf(t, c)
	if before[n.V4.String()] != 0 || len(before) < 4 {
		t.Fatalf("at start: %v, want %v first", before, n.V4)
	}
	if lo, ok := before["127.0.0.1"]; !ok || lo <= before[n.V6.String()] {
		t.Errorf("loopback not after routable: %v", before)
	}
	change := func(text string, do func(netlink.Link, *netlink.Addr) error) {
		n.Do(func() {
			link, err := netlink.LinkByName(n.Link)
			if err != nil {
				t.Fatal(err)
			}
			addr, err := netlink.ParseAddr(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := do(link, addr); err != nil {
				t.Fatal(err)
			}
		})
	}
	change("10.78.0.9/24", netlink.AddrAdd)
	eventually(t, "the new address in the table", func() bool {
		_, ok := gidsOf(t, c)["10.78.0.9"]
		return ok
	})
	after := gidsOf(t, c)
	for addr, index := range before {
		if after[addr] != index {
			t.Errorf("%s moved from %d to %d", addr, index, after[addr])
		}
	}
	if event, err := c.NextEvent(t.Context()); err != nil || event.Type != rdma.EventGIDChange {
		t.Errorf("event %v, %v; want GID change", event, err)
	}
	change(n.V4.String()+"/24", netlink.AddrDel)
	eventually(t, "the old address gone", func() bool {
		_, ok := gidsOf(t, c)[n.V4.String()]
		return !ok
	})
	a := newEnd(t, c, rdma.QPTypeRC, 64, true)
	peer, err := a.qp.EndpointOn(verbs.GIDEntry{GID: rdma.GIDFromAddr(n.V4), Index: 0, Port: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = a.qp.ConnectTo(peer)
	if err == nil || !strings.Contains(err.Error(), "sgid_index 0") {
		t.Errorf("stale GID: %v", err)
	}
	change("10.79.0.9/24", netlink.AddrAdd)
	eventually(t, "the free place used again", func() bool {
		index, ok := gidsOf(t, c)["10.79.0.9"]
		return ok && index == 0
	})
}

func TestDaemon_Filter_RestrictsTheTable(t *testing.T) {
	n, _ := netnstest.Pair(t, 1500)
	byLink := startIn(t, n, daemon.Config{Embedded: true, Interfaces: []string{"lo"}})
	if got := gidsOf(t, open(t, byLink)); len(got) != 2 {
		t.Errorf("interface lo: %v", got)
	}
	_ = byLink.Close()
	byAddr := startIn(t, n, daemon.Config{Embedded: true, Addresses: []netip.Addr{n.V4}})
	if got := gidsOf(t, open(t, byAddr)); len(got) != 1 {
		t.Errorf("address %v: %v", n.V4, got)
	}
	n.Do(func() {
		_, err := daemon.Start(t.Context(), daemon.Config{Embedded: true, Interfaces: []string{"nope"}})
		if err == nil || !strings.Contains(err.Error(), "nope") {
			t.Errorf("unknown interface: %v", err)
		}
	})
}

func TestDaemon_Socket_OneNICAPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	d := start(t, daemon.Config{SocketPath: path, NoNetwork: true})
	if d.SocketPath() != path {
		t.Errorf("socket %q", d.SocketPath())
	}
	_, err := daemon.Start(t.Context(), daemon.Config{SocketPath: path, NoNetwork: true})
	if !errors.Is(err, ctl.ErrRunning) {
		t.Errorf("second NIC: %v", err)
	}
	c, err := verbs.Open(t.Context(), "", verbs.WithSocket(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Dead():
	case <-time.After(testTimeout):
		t.Error("the program does not notice the end of its NIC")
	}
	start(t, daemon.Config{SocketPath: path, NoNetwork: true})
}

func TestDaemon_IdleExit_AfterTheLastProgram(t *testing.T) {
	d := start(t, daemon.Config{
		SocketPath: filepath.Join(t.TempDir(), "nic.sock"), NoNetwork: true,
		IdleExit: 300 * time.Millisecond,
	})
	c, err := verbs.Open(t.Context(), "", verbs.WithSocket(d.SocketPath()))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Wait() }()
	select {
	case <-ended:
		t.Fatal("ended under a program")
	case <-time.After(500 * time.Millisecond):
	}
	_ = c.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("still there long after its last program")
	}
}

func TestDaemon_BadConfig_NamesTheRemedy(t *testing.T) {
	for want, c := range map[string]daemon.Config{
		"fault profile": {Fault: "loss=200%"},
		"device name":   {Devices: []string{strings.Repeat("x", 64)}},
		"MTU":           {MTU: 9},
		"socket path":   {Group: "users"},
	} {
		c.Embedded = c.Group == ""
		if _, err := daemon.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestDaemon_StartFails_LeaksNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nic.sock")
	start(t, daemon.Config{SocketPath: path, NoNetwork: true})
	free := filepath.Join(t.TempDir(), "nic.sock")
	settled(t, func() {
		for _, c := range []daemon.Config{
			{SocketPath: path, NoNetwork: true},
			{SocketPath: free, NoNetwork: true, Interfaces: []string{"no such interface"}},
			{SocketPath: free + "/no/such/directory", NoNetwork: true},
			{SocketPath: free, Group: "no such group", NoNetwork: true},
			{Embedded: true, Fault: "nonsense"},
		} {
			if d, err := daemon.Start(t.Context(), c); err == nil {
				_ = d.Close()
				t.Errorf("started with %+v", c)
			}
		}
	})
	if _, err := os.Lstat(free); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a socket of a NIC that did not start: %v", err)
	}
}

// The context given to Start ends the NIC, too.
func TestDaemon_ContextCancelled_Ends(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d, err := daemon.Start(ctx, daemon.Config{Embedded: true, NoNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := d.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := d.Connect(); !errors.Is(err, ctl.ErrGone) {
		t.Errorf("connect to a NIC that has ended: %v", err)
	}
	if _, ok := d.Status(); ok {
		t.Error("status of a NIC that has ended")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// Link-local addresses mean something on one link only; the GID's interface says which.
func TestDaemon_LinkLocalGIDs_Work(t *testing.T) {
	na, nb := netnstest.Pair(t, 1500)
	a := newEnd(t, open(t, startIn(t, na, daemon.Config{Embedded: true})), rdma.QPTypeRC, 5000, true)
	b := newEnd(t, open(t, startIn(t, nb, daemon.Config{Embedded: true})), rdma.QPTypeRC, 5000, true)
	find := func(e *end) (found verbs.GIDEntry, ok bool) {
		gids, err := e.ctx.GIDs()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range gids {
			if g.GID.Addr().IsLinkLocalUnicast() {
				return g, true
			}
		}
		return found, false
	}
	// Duplicate address detection takes a second or two.
	eventually(t, "link-local GIDs on both sides", func() bool {
		_, okA := find(a)
		_, okB := find(b)
		return okA && okB
	})
	ga, _ := find(a)
	gb, _ := find(b)
	toA, err1 := a.qp.EndpointOn(ga)
	toB, err2 := b.qp.EndpointOn(gb)
	if err := errors.Join(err1, err2, a.qp.ConnectTo(toB), b.qp.ConnectTo(toA)); err != nil {
		t.Fatal(err)
	}
	exchange(t, a, b)
}
