package tcp

import (
	"bytes"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/test/netnstest"
)

// choose makes it a namespace's congestion control.
func choose(t *testing.T, n *netnstest.Namespace, name string) {
	t.Helper()
	n.Do(func() {
		const path = "/proc/sys/net/ipv4/tcp_congestion_control"
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Skipf("this kernel has no %s, or does not let a namespace choose it: %v", name, err)
		}
	})
}

// congestionOf connects two hosts, sends something, and returns what either end has then.
func congestionOf(t *testing.T, a, b *netnstest.Namespace, c Config) (client, server string) {
	t.Helper()
	var from, to *host
	var at netip.AddrPort
	var s *stream
	b.Do(func() { to = newHost(t, c); at = to.listen(b.V4) })
	a.Do(func() { from = newHost(t, c); s = from.connect(1, at) })
	until(t, "connected", func() bool { return s.connected != nil && to.lastID != 1000 }, from, to)
	s.out = pattern(100_000, 1)
	sent := bytes.Clone(s.out)
	id, peer := to.latest()
	until(t, "all has come", func() bool { return len(peer.in) == len(sent) }, from, to)
	if !bytes.Equal(peer.in, sent) {
		t.Error("other bytes have come")
	}
	var names [2]string
	for i, fd := range [2]int{from.port.byID[1].fd, to.port.byID[id].fd} {
		var err error
		if names[i], err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			t.Fatal(err)
		}
	}
	for i, h := range []*host{from, to} {
		isLong := names[i] == "bbr" && !c.HostCongestion
		if n := h.port.Counters().Get(LongPaths); (n == 1) != isLong {
			t.Errorf("%s: %d long paths counted", names[i], n)
		}
	}
	return names[0], names[1]
}

func TestPort_CongestionControlIsBBR_OnlyLongPathsHaveIt(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	choose(t, a, "bbr")
	choose(t, b, "bbr")
	// The round trip of a handshake is longer where the machine has no time for it.
	isPlain := false
	for range 20 {
		client, server := congestionOf(t, a, b, Config{})
		if isPlain = client == plainCongestion && server == plainCongestion; isPlain {
			break
		}
		t.Logf("short path: %s and %s", client, server)
	}
	if !isPlain {
		t.Error("never without BBR on a short path")
	}
	if client, server := congestionOf(t, a, b, Config{HostCongestion: true}); client != "bbr" ||
		server != "bbr" {
		t.Errorf("the host's is wanted: %s and %s", client, server)
	}
	// To the configuration every path is longer than this.
	long := Config{ShortPath: time.Nanosecond}
	if client, server := congestionOf(t, a, b, long); client != "bbr" || server != "bbr" {
		t.Errorf("long path: %s and %s", client, server)
	}
}

func TestPort_CongestionControlIsNotBBR_IsLeftAlone(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	choose(t, a, "reno")
	choose(t, b, "reno")
	for _, c := range []Config{{}, {ShortPath: time.Nanosecond}, {HostCongestion: true}} {
		if client, server := congestionOf(t, a, b, c); client != "reno" || server != "reno" {
			t.Errorf("%+v: %s and %s", c, client, server)
		}
	}
}
