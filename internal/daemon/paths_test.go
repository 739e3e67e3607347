package daemon

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// What was found out about a path must not outlive the addresses of the host.
func TestLane_AddressesChange_PathsAreLookedAtAnew(t *testing.T) {
	l := newTestLane(t)
	d := &Daemon{lane: l, devices: []nic.DeviceConfig{{Name: "rnic0"}}}
	ours, peer := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	at := func(addr netip.Addr) []gidSource {
		return []gidSource{{addr: addr, ifIndex: 1, ifMTU: 1500, isRunning: true}}
	}
	h := ib.Headers{BTH: ib.BTH{Opcode: ib.RCAcknowledge, DestQPN: 99}}
	datagram := netio.Datagram{Buf: h.Append(nil), Path: roce.Path{Src: peer, Dst: ours, SrcPort: 7}}
	l.tx.Address = addressOf(&datagram.Path)

	d.setPorts(0, at(ours))
	for range 3 {
		l.handleDatagram(0, &datagram, false)
	}
	if l.departure(); l.paths.out.isLocal != true {
		t.Error("a packet to our own address would leave the host")
	}
	d.setPorts(0, at(peer))
	for range 2 {
		l.handleDatagram(0, &datagram, false)
	}
	if l.departure(); l.paths.out.isLocal != false {
		t.Error("a packet to an address that was ours would stay")
	}
	d.setPorts(0, append(at(ours), at(peer)...))
	l.handleDatagram(0, &datagram, false)

	noQP := l.nic.Status().Counters["no_such_qp"]
	if noQP != 3 || l.stats.notForUs != 2 || l.stats.spoofed != 1 {
		t.Errorf("%d handled, %d for others, %d from ourselves", noQP, l.stats.notForUs,
			l.stats.spoofed)
	}
}

// A path is known by all that its packets have in common.
func TestPaths_AnotherFieldDiffers_IsAnotherPath(t *testing.T) {
	var p paths
	path := roce.Path{
		Src: netip.MustParseAddr("fe80::1"), Dst: netip.MustParseAddr("fe80::2"), FlowLabel: 1,
		SrcPort: 2, TrafficClass: 3, HopLimit: 4, IPID: 5,
	}
	address := addressOf(&path)
	if p.arrival(&path) != nil {
		t.Error("nothing is known yet")
	}
	p.learn(&path, &address)
	path.IPID++
	if known := p.arrival(&path); known == nil || *known != address {
		t.Errorf("another identification: %v", known)
	}
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], 0xfe80_0000_0000_0000)
	for i, change := range []func(*roce.Path){
		func(q *roce.Path) { q.Src = netip.AddrFrom16(raw) },
		func(q *roce.Path) { q.Dst = netip.AddrFrom16(raw) },
		func(q *roce.Path) { q.FlowLabel++ },
		func(q *roce.Path) { q.SrcPort++ },
		func(q *roce.Path) { q.TrafficClass |= roce.ECNCongestionExperienced << 4 },
		func(q *roce.Path) { q.HopLimit++ },
	} {
		q := path
		change(&q)
		if p.arrival(&q) != nil {
			t.Errorf("change %d goes unnoticed", i)
		}
	}
}
