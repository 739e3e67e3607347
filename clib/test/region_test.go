package clibtest

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/softrnic/softrnic/internal/daemon"
)

// startNIC starts a real NIC without a network.
func startNIC(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nic.sock")
	d, err := daemon.Start(t.Context(), daemon.Config{
		SocketPath: socket, NoNetwork: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return socket
}

// TestVerbs_Memory runs what needs the NIC's judgement: regions that change, windows, paging on
// demand, device memory.
func TestVerbs_Memory(t *testing.T) {
	bin, lib := compileVerbs(t, "region_test.c")
	for _, name := range []string{"rereg", "window_1", "window_2", "paging", "device", "cycles"} {
		t.Run(name, func(t *testing.T) {
			checkCase(t, run(t, libraryEnv(lib, startNIC(t)), bin, name))
		})
	}
}
