package nic

import (
	"testing"

	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestServiceLevel_OfADatagram_TellsItsIPVersion where the port is one of RoCE; that of InfiniBand
// has levels.
func TestServiceLevel_OfADatagram_TellsItsIPVersion(t *testing.T) {
	d := &device{}
	q := &qp{device: d}
	p := &ibt.Packet{Address: ibt.Address{SL: 3}}
	for addr, want := range map[string]uint8{"10.0.0.1": 10, "fd00::1": 9} {
		p.DGID = rdma.GIDFromAddr(ipOf(addr))
		d.port.InfiniBand = false
		if got := q.ServiceLevel(p); got != want {
			t.Errorf("%s: %d, want %d", addr, got, want)
		}
		d.port.InfiniBand = true
		if got := q.ServiceLevel(p); got != 3 {
			t.Errorf("%s on InfiniBand: %d", addr, got)
		}
	}
}
