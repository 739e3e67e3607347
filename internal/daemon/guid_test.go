package daemon_test

import (
	"path/filepath"
	"testing"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/test/netnstest"
)

// TestDaemon_NodeGUIDs_DifferInANamespaceAndSurviveRestarts: the NIC that has the network is named
// after the adapter, those beside it after their sockets.
func TestDaemon_NodeGUIDs_DifferInANamespaceAndSurviveRestarts(t *testing.T) {
	n := netnstest.New(t)
	dir := t.TempDir()
	guid := func(d *daemon.Daemon) string {
		s, _ := d.Status()
		return s.Devices[0].NodeGUID
	}
	seen := map[string]bool{}
	see := func(d *daemon.Daemon) (devices int) {
		s, _ := d.Status()
		for i := range s.Devices {
			seen[s.Devices[i].NodeGUID] = true
		}
		return len(s.Devices)
	}
	at := func(name string) daemon.Config {
		return daemon.Config{SocketPath: filepath.Join(dir, name)}
	}
	first := startIn(t, n, at("first"))
	second := startIn(t, n, at("second"))
	third := startIn(t, n, daemon.Config{SocketPath: filepath.Join(dir, "third"), NoNetwork: true})
	fourth := startIn(t, n, daemon.Config{
		SocketPath: filepath.Join(dir, "fourth"), Devices: []string{"rnic0=none"},
	})
	devices := see(first) + see(second) + see(third) + see(fourth)
	if len(seen) != devices || devices != 6 {
		t.Errorf("%d devices of four NICs have the node GUIDs %v", devices, seen)
	}
	for _, d := range []*daemon.Daemon{second, first} {
		name := filepath.Base(d.SocketPath())
		before := guid(d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if after := guid(startIn(t, n, at(name))); after != before {
			t.Errorf("%s: %s before a restart, %s after", name, before, after)
		}
	}
}
