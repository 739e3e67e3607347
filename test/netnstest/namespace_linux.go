package netnstest

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is one network namespace with its loopback interface up.
type Namespace struct {
	file *os.File
	// V4 and V6 are the addresses on the link to the other one of a Pair.
	V4, V6 netip.Addr
	// Link is the name of the interface to the other one of a Pair.
	Link string
}

// New returns a namespace that lives until the test ends.
func New(t testing.TB) *Namespace {
	t.Helper()
	file, err := unshare()
	if err != nil {
		t.Skipf("no network namespace for this test (it wants root): %v", err)
	}
	n := &Namespace{file: file}
	t.Cleanup(func() { _ = file.Close() })
	n.Do(func() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			t.Fatalf("set the loopback interface up: %v", err)
		}
	})
	return n
}

// unshare makes a namespace on a thread that dies at once, and keeps a descriptor of it.
func unshare() (*os.File, error) {
	type result struct {
		file *os.File
		err  error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			results <- result{nil, fmt.Errorf("unshare: %w", err)}
			return
		}
		file, err := os.Open("/proc/thread-self/ns/net")
		results <- result{file, err}
	}()
	r := <-results
	return r.file, r.err
}

// Do runs fn on this goroutine with its thread in the namespace. Sockets that fn opens stay there;
// goroutines that fn starts do not run there.
func (n *Namespace) Do(fn func()) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		panic(err)
	}
	defer func() {
		err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET)
		_ = home.Close()
		if err != nil {
			panic(err) // the thread stays locked, so that nobody else runs in the wrong place
		}
		runtime.UnlockOSThread()
	}()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(err)
	}
	fn()
}

// Pair returns two namespaces joined by a veth link of the given MTU, up and with addresses.
func Pair(t testing.TB, mtu int) (a, b *Namespace) {
	t.Helper()
	a, b = New(t), New(t)
	a.Link, b.Link = "eth0", "eth0"
	a.V4, b.V4 = netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")
	a.V6, b.V6 = netip.MustParseAddr("fd77::1"), netip.MustParseAddr("fd77::2")
	a.Do(func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = a.Link, mtu
		veth := &netlink.Veth{
			LinkAttrs:     attrs,
			PeerName:      b.Link,
			PeerMTU:       uint32(mtu),
			PeerNamespace: netlink.NsFd(b.file.Fd()),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Skipf("no veth link between namespaces: %v", err)
		}
	})
	for _, n := range []*Namespace{a, b} {
		n.Do(func() { n.configure(t) })
	}
	awaitCarrier(t, a)
	awaitCarrier(t, b)
	return a, b
}

func (n *Namespace) configure(t testing.TB) {
	link, err := netlink.LinkByName(n.Link)
	if err != nil {
		t.Fatalf("find the veth end: %v", err)
	}
	for _, text := range []string{n.V4.String() + "/24", n.V6.String() + "/64"} {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if n.V6.String()+"/64" == text {
			address.Flags = unix.IFA_F_NODAD // usable at once
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			if address.IP.To4() == nil {
				n.V6 = netip.Addr{} // a kernel without IPv6
				continue
			}
			t.Fatalf("add %s: %v", text, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatalf("set the veth end up: %v", err)
	}
}

func awaitCarrier(t testing.TB, n *Namespace) {
	n.Do(func() {
		for range 200 {
			link, err := netlink.LinkByName(n.Link)
			if err == nil && link.Attrs().RawFlags&unix.IFF_RUNNING != 0 {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatal("the veth link got no carrier")
	})
}
