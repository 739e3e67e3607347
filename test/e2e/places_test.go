package e2e

import (
	"os"
	"testing"

	"github.com/softrnic/softrnic/test/netnstest"
)

// pair is a server and a client that are to talk, and how the client calls the server.
type pair struct {
	server, client *machine
	address        string
	place, places  int // which of how many places of the test this is
}

// vethMTU is that of an Ethernet with jumbo frames, which lets every path MTU of RDMA through.
const vethMTU = 9000

// atPlaces runs a test in each place that the issue of unmodified programs names: as root and as
// an ordinary user, on one host and between two hosts.
func atPlaces(t *testing.T, test func(t *testing.T, p pair)) {
	me := uint32(os.Geteuid())
	if me != 0 {
		t.Run("OneHost/User", func(t *testing.T) {
			m := newMachine(t, nil, me)
			test(t, pair{server: m, client: m, address: "127.0.0.1", places: 1})
		})
		t.Run("TwoHosts", func(t *testing.T) {
			t.Skip("two network namespaces need root")
		})
		return
	}
	for i, place := range []struct {
		name string
		make func(*testing.T, uint32) pair
		uid  uint32
	}{
		{"OneHost/Root", oneHost, 0},
		{"TwoHosts/Root", twoHosts, 0},
		{"OneHost/User", oneHost, userOne},
		{"TwoHosts/User", twoHosts, userOne},
	} {
		t.Run(place.name, func(t *testing.T) {
			p := place.make(t, place.uid)
			p.place, p.places = i, 4
			test(t, p)
		})
	}
}

// oneHost is a host with an Ethernet address and nobody else on it.
func oneHost(t *testing.T, uid uint32) pair {
	t.Helper()
	ns, _ := netnstest.Pair(t, vethMTU)
	m := newMachine(t, ns, uid)
	return pair{server: m, client: m, address: "127.0.0.1"}
}

// twoHosts are joined by a link.
func twoHosts(t *testing.T, uid uint32) pair {
	t.Helper()
	a, b := netnstest.Pair(t, vethMTU)
	return pair{
		server:  newMachine(t, a, uid),
		client:  newMachine(t, b, uid),
		address: a.V4.String(),
	}
}

// anyMachine is for tests that need one host and care about neither its network nor its user.
func anyMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		return newMachine(t, nil, uint32(os.Geteuid()))
	}
	ns, _ := netnstest.Pair(t, vethMTU)
	return newMachine(t, ns, userOne)
}
