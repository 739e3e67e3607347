package e2e

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/softrnic/softrnic/test/netnstest"
)

// TestRDMACM_DifferentMTU_AgreeOnTheSmaller joins hosts whose ports carry packets of different
// sizes: unmodified programs connect from either side, and data get through.
func TestRDMACM_DifferentMTU_AgreeOnTheSmaller(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("two hosts need namespaces, and those need root")
	}
	a, b := netnstest.Pair(t, vethMTU)
	b.Do(func() {
		link, err := netlink.LinkByName(b.Link)
		if err == nil {
			err = netlink.LinkSetMTU(link, 1500)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	large, small := newMachine(t, a, 0), newMachine(t, b, 0)
	large.startNIC(t)
	small.startNIC(t)
	if x, y := large.device(t).MTU, small.device(t).MTU; x != 4096 || y != 1024 {
		t.Fatalf("active MTUs %d and %d", x, y)
	}
	rows := []cmRow{
		{
			server: "rping -s -p PORT -C 5 -V -S 65535", noisy: true,
			client: "rping -c -a ADDR -p PORT -C 5 -V -S 65535",
		},
		{
			server: "ucmatose -p PORT -C 20 -S 70000 -t 0",
			client: "ucmatose -s ADDR -p PORT -C 20 -S 70000 -t 0", wants: "return status 0\n",
		},
	}
	for _, row := range rows {
		row.test(t, pair{server: large, client: small, address: a.V4.String()})
		row.test(t, pair{server: small, client: large, address: b.V4.String()})
	}
}
