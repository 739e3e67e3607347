package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/test/netnstest"
)

// The cable between host and guest.
const (
	hostV4, guestV4 = "10.77.0.1", "10.77.0.2"
	hostV6, guestV6 = "fd77::1", "fd77::2"
	tapName         = "tap0"
	agentAddress    = guestV4 + ":2" // guest/main.go, agentPort
)

// guest is a virtual machine whose kernel has a software RDMA device.
type guest struct {
	driver  driver
	ns      *netnstest.Namespace // the host at the other end of the cable
	console string
}

// bootGuest starts a machine that ends with the test, and returns when it takes requests.
func bootGuest(t *testing.T, img image, mtu int) *guest {
	t.Helper()
	g := &guest{
		driver: img.driver, ns: netnstest.New(t), console: filepath.Join(t.TempDir(), "console"),
	}
	g.ns.Do(func() { addTap(t, mtu) })
	card := "virtio-net-pci,netdev=cable,romfile=,csum=off,guest_csum=off,gso=off," +
		"guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off," +
		fmt.Sprintf("host_mtu=%d", mtu)
	machine := exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "Nehalem",
		"-m", "1024", "-smp", "2", "-display", "none", "-no-reboot", "-nodefaults",
		"-no-user-config", "-kernel", img.kernel, "-initrd", img.initrd, "-append",
		fmt.Sprintf("console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on "+
			"guest.addr=%s/24,%s/64 guest.mtu=%d guest.driver=%s", guestV4, guestV6, mtu,
			img.driver.link),
		"-serial", "file:"+g.console, "-device", "virtio-rng-pci",
		"-netdev", "tap,id=cable,ifname="+tapName+",script=no,downscript=no", "-device", card)
	// It must not outlive a test that times out.
	machine.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	g.ns.Do(func() { err = machine.Start() })
	if err != nil {
		t.Fatalf("start QEMU: %v", err)
	}
	done := make(chan struct{})
	go func() {
		_ = machine.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = machine.Process.Kill()
		<-done
	})
	g.awaitAgent(t, done)
	return g
}

func addTap(t *testing.T, mtu int) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = tapName, mtu
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		t.Skipf("no tap device: %v", err)
	}
	link, err := netlink.LinkByName(tapName)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{hostV4 + "/24", hostV6 + "/64"} {
		address := &netlink.Addr{Flags: unix.IFA_F_NODAD}
		parsed, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		address.IPNet = parsed.IPNet
		if err := netlink.AddrAdd(link, address); err != nil {
			t.Fatalf("add %s: %v", text, err)
		}
	}
	for _, f := range []func() error{
		func() error { return netlink.LinkSetMTU(link, mtu) },
		func() error { return netlink.LinkSetUp(link) },
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

func (g *guest) awaitAgent(t *testing.T, done <-chan struct{}) {
	t.Helper()
	for range 600 {
		select {
		case <-done:
			t.Fatalf("the guest ended; its console:\n%s", g.consoleText())
		case <-time.After(100 * time.Millisecond):
		}
		if conn, err := g.dial(); err == nil {
			_ = conn.Close()
			return
		}
	}
	t.Fatalf("the guest does not answer; its console:\n%s", g.consoleText())
}

func (g *guest) consoleText() string {
	text, err := os.ReadFile(g.console)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (g *guest) dial() (conn net.Conn, err error) {
	g.ns.Do(func() {
		// Without a deadline of its own, Dialer would connect on this goroutine, too; the socket
		// is made here in any case, and belongs to this namespace.
		conn, err = net.DialTCP("tcp4", nil,
			net.TCPAddrFromAddrPort(netip.MustParseAddrPort(agentAddress)))
	})
	return conn, err
}

// result is how a program ended.
type result struct {
	Status int
	Output string
	Error  string
}

// program is one that runs in the guest or on the host.
type program struct {
	name string
	pid  int // on the host
	done chan result
	stop func()
}

// start runs a program in the guest; it is killed with the test.
func (g *guest) start(t *testing.T, args ...string) *program {
	t.Helper()
	conn, err := g.dial()
	if err != nil {
		t.Fatalf("ask the guest: %v", err)
	}
	if err := json.NewEncoder(conn).Encode(struct{ Args []string }{args}); err != nil {
		t.Fatalf("ask the guest: %v", err)
	}
	p := &program{
		name: "guest: " + strings.Join(args, " "), done: make(chan result, 1),
		stop: func() { _ = conn.Close() },
	}
	go func() {
		var r result
		if err := json.NewDecoder(conn).Decode(&r); err != nil {
			r = result{Status: -1, Error: err.Error()}
		}
		p.done <- r
	}()
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
		t.Fatalf("%s does not end", p.name)
		return result{}
	}
}
