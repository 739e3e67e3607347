package interop

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// requireInterop returns the image of the guest, or skips the test with the reason.
func requireInterop(t *testing.T) image {
	t.Helper()
	if os.Getenv("RNIC_INTEROP") == "" {
		t.Skip("boots a virtual machine: make interop")
	}
	if runtime.GOARCH != "amd64" || os.Geteuid() != 0 {
		t.Skip("the virtual machine is an amd64 one, and its cable needs root")
	}
	img, err := buildImage(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// newLink boots a guest and starts a NIC at the other end of its cable.
func newLink(t *testing.T, img image, mtu, path int) *link {
	t.Helper()
	l := &link{guest: bootGuest(t, img, mtu), path: path, port: 20000, gids: map[string]string{}}
	l.host = newHost(t, l.guest.ns)
	l.tap = newWiretap(t, l)
	return l
}

// all asks for the whole list rather than that of continuous integration.
func all() bool { return os.Getenv("RNIC_INTEROP") == "all" }

// TestKernel_EveryProgram_BothWays runs programs between the kernel's device and ours, each
// being the server once. Path MTUs are those of Ethernet with and without jumbo frames.
func TestKernel_EveryProgram_BothWays(t *testing.T) {
	img := requireInterop(t)
	for _, m := range []struct{ mtu, path int }{{1500, 1024}, {9000, 4096}} {
		t.Run(fmt.Sprint(m.mtu), func(t *testing.T) {
			l := newLink(t, img, m.mtu, m.path)
			t.Run("Verbs", func(t *testing.T) { l.run(t, verbsRows()) })
			t.Run("Sizes", func(t *testing.T) { l.run(t, sizeRows("", false)) })
			t.Run("SizesIPv6", func(t *testing.T) { l.run(t, overV6(sizeRows("", !all()))) })
			t.Run("CM", func(t *testing.T) { l.run(t, cmRows()) })
			t.Run("SizesCM", func(t *testing.T) { l.run(t, sizeRows("-R ", !all())) })
			t.Run("SizesCMIPv6", func(t *testing.T) { l.run(t, overV6(sizeRows("-R ", !all()))) })
		})
	}
}
