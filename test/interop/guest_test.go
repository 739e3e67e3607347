package interop

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/test/vmtest"
)

// The cable between host and guest.
const (
	hostV4, guestV4 = vmtest.HostV4, vmtest.GuestV4
	hostV6, guestV6 = vmtest.HostV6, vmtest.GuestV6
	tapName         = vmtest.TapName
)

// guest is a virtual machine whose kernel has a software RDMA device.
type guest struct {
	driver  driver
	ns      *netnstest.Namespace // the host at the other end of the cable
	machine *vmtest.Machine
	locked  bool // found so
}

// isLockedUp reports that Soft-iWARP has locked its kernel up: now and then, and more often under
// loss, it does so, with both processors busy and nothing that answers.
func (g *guest) isLockedUp() bool {
	g.locked = g.locked || g.driver.link == siw.link && !g.machine.IsAlive()
	return g.locked
}

const lockedUp = "the kernel's driver has locked up its machine"

// bootGuest starts a machine that ends with the test, and returns when it takes requests.
func bootGuest(t *testing.T, img image, mtu int) *guest {
	t.Helper()
	m := vmtest.Boot(t, img.vm, mtu)
	return &guest{driver: img.driver, ns: m.Host, machine: m}
}

func (g *guest) consoleText() string { return g.machine.ConsoleText() }

// result is how a program ended.
type result = vmtest.Result

// program is one that runs in the guest or on the host.
type program struct {
	name string
	pid  int // on the host
	done chan result
	stop func()
	// peer is the guest, which it runs in or talks to; nil where that does not matter.
	peer *guest
}

// start runs a program in the guest; it is killed with the test.
func (g *guest) start(t *testing.T, args ...string) *program {
	t.Helper()
	inside, err := g.machine.Start(args...)
	if err != nil {
		if g.isLockedUp() {
			t.Skip(lockedUp)
		}
		t.Fatal(err)
	}
	p := &program{
		name: "guest: " + strings.Join(args, " "), done: inside.Done, stop: inside.Stop, peer: g,
	}
	t.Cleanup(p.stop)
	return p
}

func (g *guest) device() string { return g.driver.device }

func (g *guest) awaitTCP(t *testing.T, p *program, port int) {
	t.Helper()
	g.await(t, p, "tcp", fmt.Sprint(port))
}

func (g *guest) awaitCM(t *testing.T, p *program) {
	t.Helper()
	g.await(t, p, "cm")
}

// awaitGroup waits for the Ethernet address to which the kernel's driver listens for a group.
func (g *guest) awaitGroup(t *testing.T, p *program, group netip.Addr) {
	t.Helper()
	b := group.As16()
	g.await(t, p, "group", net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}.String())
}

// await waits until something is true in the guest, by what the program p does.
func (g *guest) await(t *testing.T, p *program, what ...string) {
	t.Helper()
	r := g.start(t, append([]string{"guest", "await"}, what...)...).end(t)
	if r.Status != 0 {
		p.stop()
		t.Fatalf("%s is not ready: %s\n%s", p.name, r.Error, p.end(t).Output)
	}
}

// patience is how long a program may take, and patientTimeout the local ACK timeout of its queue
// pairs, 4.096 µs × 2^18 ≈ 1 s: an emulated processor is slow.
const (
	patience       = time.Minute
	patientTimeout = 18
)

// end waits for a program.
func (p *program) end(t *testing.T) result {
	t.Helper()
	select {
	case r := <-p.done:
		return r
	case <-time.After(patience):
		p.stop()
		if p.peer != nil && p.peer.isLockedUp() {
			t.Skip(lockedUp)
		}
		t.Fatalf("%s does not end", p.name)
		return result{}
	}
}
