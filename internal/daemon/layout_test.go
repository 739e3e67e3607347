package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
)

// G05: each adapter orders its GIDs in a way of its own, and programs guess by it.
func TestGIDTable_Layout_G05_IsTheAdapters(t *testing.T) {
	addresses := []string{"10.0.0.1", "2001:db8::1", "fe80::1"}
	for _, c := range []struct {
		name, want string
		without    string // an address that is not there
	}{
		{name: "", want: "0:10.0.0.1/2 1:2001:db8::1/2 2:fe80::1/2"},
		{name: "rxe", want: "0:fe80::1/2 1:10.0.0.1/2 2:2001:db8::1/2"},
		{name: "irdma", without: "fe80::1", want: "1:10.0.0.1/2 2:2001:db8::1/2"},
		{
			name: "mlx5",
			want: "0:fe80::1/1 1:fe80::1/2 2:10.0.0.1/1 3:10.0.0.1/2 4:2001:db8::1/1 5:2001:db8::1/2",
		},
		{
			name: "bnxt", without: "fe80::1",
			want: "2:10.0.0.1/1 3:10.0.0.1/2 4:2001:db8::1/1 5:2001:db8::1/2",
		},
		{name: "ib", want: "0:10.0.0.1/0 1:2001:db8::1/0 2:fe80::1/0"},
	} {
		table := gidTable{layout: layouts[c.name]}
		var sources []gidSource
		for _, text := range addresses {
			if text != c.without {
				sources = append(sources, source(text))
			}
		}
		if left := table.update(sources); left != 0 {
			t.Errorf("%s: %d left out", c.name, left)
		}
		if got := table.text(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if p := table.portOf(sources, 0); p.InfiniBand != (c.name == "ib") {
			t.Errorf("%s: InfiniBand %v", c.name, p.InfiniBand)
		}
		if err := CheckLayout(c.name); err != nil {
			t.Error(err)
		}
	}
	if err := CheckLayout("mlx6"); err == nil || !strings.Contains(err.Error(), "mlx5") {
		t.Errorf("mlx6: %v", err)
	}
}

// text lists places, addresses and types.
func (t *gidTable) text() string {
	var s []string
	for _, e := range t.entries() {
		s = append(s, fmt.Sprintf("%d:%v/%d", e.Index, rdma.GID(e.GID).Addr(), e.Type))
	}
	return strings.Join(s, " ")
}

func TestGIDTable_LayoutOfPairs_TheyComeAndGoTogether(t *testing.T) {
	table := gidTable{layout: layouts["mlx5"]}
	check := func(want string, list ...string) {
		t.Helper()
		var sources []gidSource
		for _, text := range list {
			sources = append(sources, gidSource{addr: netip.MustParseAddr(text), ifIndex: 2})
		}
		table.update(sources)
		if got := table.text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("2:10.0.0.1/1 3:10.0.0.1/2 4:10.0.0.2/1 5:10.0.0.2/2", "10.0.0.1", "10.0.0.2")
	check("4:10.0.0.2/1 5:10.0.0.2/2", "10.0.0.2")
	check("0:fe80::1/1 1:fe80::1/2 2:10.0.0.3/1 3:10.0.0.3/2 4:10.0.0.2/1 5:10.0.0.2/2",
		"10.0.0.2", "10.0.0.3", "fe80::1")
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("10.2.0.%d", i+1))
	}
	check(table.text(), "10.0.0.2", "10.0.0.3", "fe80::1")
	var sources []gidSource
	for _, text := range many {
		sources = append(sources, source(text))
	}
	if left := table.update(sources); left == 0 || len(table.entries())%2 != 0 {
		t.Errorf("%d left out, %d entries", left, len(table.entries()))
	}
}
