package nictest

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
)

// Patience bounds what must happen.
const Patience = time.Minute

// Start starts a NIC in this program that ends with the test.
func Start(t testing.TB, c softrnic.Config) *softrnic.NIC {
	t.Helper()
	nic, err := softrnic.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nic.Close(); err != nil {
			t.Errorf("close the NIC: %v", err)
		}
	})
	return nic
}

// Hosts starts two NICs on one wire, at 10.0.0.1 and fd00::1, and at 10.0.0.2 and fd00::2, with
// faults as the text says.
func Hosts(t testing.TB, fault string) (a, b *softrnic.NIC) {
	t.Helper()
	wire := softrnic.NewNetwork()
	at := func(v4, v6 string) *softrnic.NIC {
		return Start(t, softrnic.Config{
			Network: wire, Devices: []string{"rnic-" + v4}, Fault: fault,
			Addresses: []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)},
		})
	}
	return at("10.0.0.1", "fd00::1"), at("10.0.0.2", "fd00::2")
}

// Soon returns a context that ends with the test's patience.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Settles waits until a count is back at what it was.
func Settles(t testing.TB, what string, want int, count func() int) {
	t.Helper()
	for limit := time.Now().Add(Patience); count() > want; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d %s, %d before\n%s", count(), what, want, buf[:runtime.Stack(buf, true)])
		}
	}
}

// Descriptors is how many descriptors this process has open.
func Descriptors() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}
