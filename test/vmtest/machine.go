package vmtest

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/test/netnstest"
)

// The cable between host and guest.
const (
	HostV4, GuestV4 = "10.77.0.1", "10.77.0.2"
	HostV6, GuestV6 = "fd77::1", "fd77::2"
	TapName         = "tap0"
	agentAddress    = GuestV4 + ":2" // guest/main.go, agentPort
)

// Machine is a virtual machine whose kernel has a software RDMA device.
type Machine struct {
	// Host is the namespace at the other end of the cable.
	Host    *netnstest.Namespace
	console string
}

// Boot starts a machine that ends with the test, and returns when it takes requests.
func Boot(t testing.TB, img Image, mtu int) *Machine {
	t.Helper()
	m := &Machine{Host: netnstest.New(t), console: filepath.Join(t.TempDir(), "console")}
	m.Host.Do(func() { addTap(t, mtu) })
	card := "virtio-net-pci,netdev=cable,romfile=,csum=off,guest_csum=off,gso=off," +
		"guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off," +
		fmt.Sprintf("host_mtu=%d", mtu)
	machine := exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "Nehalem",
		"-m", "1024", "-smp", "2", "-display", "none", "-no-reboot", "-nodefaults",
		"-no-user-config", "-kernel", img.kernel, "-initrd", img.initrd, "-append",
		fmt.Sprintf("console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on "+
			"guest.addr=%s/24,%s/64 guest.mtu=%d guest.driver=%s", GuestV4, GuestV6, mtu,
			img.driver.Link),
		"-serial", "file:"+m.console, "-device", "virtio-rng-pci",
		"-netdev", "tap,id=cable,ifname="+TapName+",script=no,downscript=no", "-device", card)
	// It must not outlive a test that times out.
	machine.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	m.Host.Do(func() { err = machine.Start() })
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
	m.awaitAgent(t, done)
	return m
}

func addTap(t testing.TB, mtu int) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = TapName, mtu
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		t.Skipf("no tap device: %v", err)
	}
	link, err := netlink.LinkByName(TapName)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{HostV4 + "/24", HostV6 + "/64"} {
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

func (m *Machine) awaitAgent(t testing.TB, done <-chan struct{}) {
	t.Helper()
	for range 600 {
		select {
		case <-done:
			t.Fatalf("the guest ended; its console:\n%s", m.ConsoleText())
		case <-time.After(100 * time.Millisecond):
		}
		if conn, err := m.dial(); err == nil {
			_ = conn.Close()
			return
		}
	}
	t.Fatalf("the guest does not answer; its console:\n%s", m.ConsoleText())
}

// ConsoleText is what the kernel and its first process have said.
func (m *Machine) ConsoleText() string {
	text, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (m *Machine) dial() (conn net.Conn, err error) {
	m.Host.Do(func() {
		// To one address a Dialer makes its socket on this goroutine, so that it belongs to this
		// namespace. A machine that is stuck must not take the kernel's two minutes each time.
		d := net.Dialer{Timeout: dialPatience}
		conn, err = d.Dial("tcp4", agentAddress)
	})
	return conn, err
}

// dialPatience is how long a machine may take to answer at all.
const dialPatience = 10 * time.Second

// IsAlive reports that the machine still does what it is asked for: a driver may lock its kernel
// up, which accepts connections for its first process even then.
func (m *Machine) IsAlive() bool {
	p, err := m.Start("guest", "await", "nothing")
	if err != nil {
		return false
	}
	defer p.Stop()
	select {
	case r := <-p.Done:
		return r.Status == 1 // it does not know how to await that
	case <-time.After(alivePatience):
		return false
	}
}

// alivePatience is how long a machine may take to say that it does not understand.
const alivePatience = 20 * time.Second

// Result is how a program ended. Status is −1 when it did not start or was killed.
type Result struct {
	Status int
	Output string
	Error  string
}

// Program is one that runs in the machine.
type Program struct {
	// Done gets how it ended.
	Done chan Result
	conn net.Conn
}

// Stop kills it, if it still runs.
func (p *Program) Stop() { _ = p.conn.Close() }

// Start runs a program in the machine; "guest" for its name is the machine's first process itself.
func (m *Machine) Start(args ...string) (*Program, error) {
	conn, err := m.dial()
	if err != nil {
		return nil, fmt.Errorf("ask the guest: %w", err)
	}
	if err := json.NewEncoder(conn).Encode(struct{ Args []string }{args}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("ask the guest: %w", err)
	}
	done := make(chan Result, 1)
	go func() {
		var r Result
		if err := json.NewDecoder(conn).Decode(&r); err != nil {
			r = Result{Status: -1, Error: err.Error()}
		}
		done <- r
	}()
	return &Program{Done: done, conn: conn}, nil
}
