package interop

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// requireInterop returns the image of a guest with a driver, or skips the test with the reason.
func requireInterop(t *testing.T, d driver) image {
	t.Helper()
	if os.Getenv("RNIC_INTEROP") == "" {
		t.Skip("boots a virtual machine: make interop")
	}
	if runtime.GOARCH != "amd64" || os.Geteuid() != 0 {
		t.Skip("the virtual machine is an amd64 one, and its cable needs root")
	}
	img, err := buildImage(t.TempDir(), d)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// newLink boots a guest and starts a NIC, with options of "rnic up", at the other end of its cable.
func newLink(t *testing.T, img image, mtu, path int, up ...string) *link {
	t.Helper()
	l := &link{guest: bootGuest(t, img, mtu), path: path, port: 20000, gids: map[string]string{}}
	l.host = newHost(t, l.guest.ns, img, up...)
	l.host.peer = l.guest
	l.tap = newWiretap(t, l.guest)
	return l
}

// TestKernel_EveryProgram_BothWays runs programs between the kernel's device and ours, each
// being the server once. Path MTUs are those of Ethernet with and without jumbo frames. Which
// size, address family and way to connect meet which program is a sample, unless RNIC_INTEROP=all
// wants each with each.
func TestKernel_EveryProgram_BothWays(t *testing.T) {
	img := requireInterop(t, rxe)
	for _, m := range []struct{ mtu, path, every, everyOther int }{
		{1500, 1024, 1, 3},
		{9000, 4096, 2, 5},
	} {
		if os.Getenv("RNIC_INTEROP") == "all" {
			m.every, m.everyOther = 1, 1
		}
		t.Run(fmt.Sprint(m.mtu), func(t *testing.T) {
			l := newLink(t, img, m.mtu, m.path)
			t.Run("Verbs", func(t *testing.T) { l.run(t, verbsRows()) })
			t.Run("Windows", func(t *testing.T) { l.run(t, windowRows()) })
			t.Run("CM", func(t *testing.T) { l.run(t, cmRows()) })
			t.Run("Sizes", func(t *testing.T) { l.run(t, sizeRows("", m.every)) })
			t.Run("SizesIPv6", func(t *testing.T) { l.run(t, overV6(sizeRows("", m.everyOther))) })
			t.Run("SizesCM", func(t *testing.T) { l.run(t, sizeRows("-R ", m.everyOther)) })
			t.Run("SizesCMIPv6", func(t *testing.T) {
				requirePerftestV6(t)
				l.run(t, overV6(sizeRows("-R ", m.everyOther)))
			})
		})
	}
}

// requirePerftestV6 skips what connects by rdma_cm and IPv6 where perftest cannot.
func requirePerftestV6(t *testing.T) {
	t.Helper()
	help, _ := exec.Command("ib_send_bw", "--help").CombinedOutput()
	if !strings.Contains(string(help), "--ipv6-addr") {
		t.Skip("this perftest connects by IPv4 only; rping and others have rows of their own for IPv6")
	}
}

// TestKernel_Ping_WithRping lets rnic ping and rping measure each other.
func TestKernel_Ping_WithRping(t *testing.T) {
	img := requireInterop(t, rxe)
	l := newLink(t, img, 1500, 1024)
	pingRows(t, l)
}

// pingRows runs rnic ping against rping and the other way round.
func pingRows(t *testing.T, l *link) {
	t.Helper()
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{23, 64, 4097, 65535} {
			name, bind := fmt.Sprint(size), " "
			if v6 {
				name, bind = name+" IPv6", " -a ADDR "
			}
			t.Run(name+"/KernelServes", func(t *testing.T) {
				l.try(t, row{
					server: fmt.Sprintf("rping -s%s-p PORT -C 5 -V -S %d", bind, size),
					client: fmt.Sprintf("rnic ping -V -c 5 -i 1ms -s %d -p PORT ADDR", size),
					meet:   byCM, v6: v6, clientWants: "5 verified, 0 damaged",
				}, l.guest, l.host)
			})
			t.Run(name+"/WeServe", func(t *testing.T) {
				l.try(t, row{
					server: "rnic ping --listen -p PORT", endless: true,
					client: fmt.Sprintf("rping -c -a ADDR -p PORT -C 5 -V -v -S %d", size),
					meet:   byCM, v6: v6, clientWants: "rdma-ping-4",
				}, l.host, l.guest)
			})
		}
	}
}

// TestKernel_LossyLink_Recovers lets the cable lose, double and reorder packets both ways. The
// kernel's driver takes seconds to notice some losses, so the runs are short.
func TestKernel_LossyLink_Recovers(t *testing.T) {
	img := requireInterop(t, rxe)
	l := newLink(t, img, 1500, 1024)
	p := l.guest.start(t, "guest", "disturb", "1")
	p.check(t, p.end(t))
	l.run(t, lossyRows())
}
