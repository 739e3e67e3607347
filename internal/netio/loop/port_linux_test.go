package loop

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
	group = netip.MustParseAddr("239.0.0.9")
)

func pair(t *testing.T, config Config) (hub *Hub, a, b *Port) {
	t.Helper()
	hub = NewHub(config)
	open := func(name string, addr netip.Addr) *Port {
		p, err := hub.Open(name, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	return hub, open("a", addrA), open("b", addrB)
}

func datagram(dst netip.Addr, n int, fill byte) netio.Datagram {
	b := bytes.Repeat([]byte{fill}, n)
	return netio.Datagram{
		Buf:  append(make([]byte, 0, n+netio.TrailerBytes), b...),
		Path: roce.Path{Src: addrA, Dst: dst, SrcPort: 0xc000, HopLimit: 64},
	}
}

func isReadable(t *testing.T, p *Port) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(p.FDs()[0]), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestPort_Pair_CarriesInOrderAndSignals(t *testing.T) {
	_, a, b := pair(t, Config{})
	if isReadable(t, b) {
		t.Error("readable before anything was sent")
	}
	list := []netio.Datagram{datagram(addrB, 20, 1), datagram(addrB, 4108, 2), datagram(addrB, 12, 3)}
	list[1].Flip = 100
	if n, err := a.Send(list); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if !isReadable(t, b) {
		t.Error("not readable although packets wait")
	}
	batch := make([]netio.Datagram, 8)
	n, err := b.Receive(batch)
	if err != nil || n != 2 || !bytes.Equal(batch[0].Buf, list[0].Buf) ||
		!bytes.Equal(batch[1].Buf, list[2].Buf) || batch[0].Path != list[0].Path {
		t.Fatalf("received %d, %v: %v", n, err, batch[:n])
	}
	if b.Counters().Get(netio.RxICRCBad) != 1 || isReadable(t, b) {
		t.Error("the damaged packet was not counted, or the descriptor stays readable")
	}
}

func TestPort_Destinations_RefusedUnknownMulticastFull(t *testing.T) {
	hub, a, b := pair(t, Config{QueuePackets: 2, PacketBytes: 100})
	nobody := netip.MustParseAddr("192.0.2.3")
	hub.Refuse(nobody)
	for _, p := range []*Port{a, b} {
		if err := p.JoinGroup(group, 1); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = a.Send([]netio.Datagram{
		datagram(nobody, 20, 1), datagram(netip.MustParseAddr("192.0.2.4"), 20, 1),
		datagram(group, 20, 7), datagram(addrB, 97, 0), datagram(addrB, 20, 1),
		datagram(addrB, 20, 2), datagram(netip.IPv6Loopback(), 20, 0),
	})
	if u := a.Unreachable(); len(u) != 1 || u[0].Addr != nobody || !u[0].NoPort {
		t.Errorf("reports %+v", u)
	}
	if len(a.Unreachable()) != 0 {
		t.Error("a report comes twice")
	}
	batch := make([]netio.Datagram, 8)
	if n, _ := a.Receive(batch); n != 0 {
		t.Errorf("%d multicasts came back", n)
	}
	n, _ := b.Receive(batch)
	if n != 2 || batch[0].Path.Dst != group || batch[1].Buf[0] != 1 {
		t.Errorf("received %d: %v", n, batch[:n])
	}
	if b.Counters().Get(netio.RxSocketDropped) != 1 || a.Counters().Get(netio.TxTooLong) != 1 ||
		a.Counters().Get(netio.TxOtherErrors) != 1 {
		t.Error("counts differ")
	}
	if err := b.LeaveGroup(group, 1); err != nil {
		t.Fatal(err)
	}
	_, _ = a.Send([]netio.Datagram{datagram(group, 20, 7)})
	if n, _ := b.Receive(batch); n != 0 {
		t.Error("received after leaving")
	}
}

func TestHub_AddressTwice_IsErrPortTaken(t *testing.T) {
	hub, a, _ := pair(t, Config{})
	if _, err := hub.Open("c", addrA); !errors.Is(err, netio.ErrPortTaken) {
		t.Errorf("Open: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := hub.Open("c", addrA)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := c.Send(nil); !errors.Is(err, netio.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
}

func TestPort_SteadyState_NoAllocation(t *testing.T) {
	_, a, b := pair(t, Config{})
	list := []netio.Datagram{datagram(addrB, 20, 1), datagram(addrB, 4108, 2)}
	batch := make([]netio.Datagram, 8)
	if allocs := testing.AllocsPerRun(100, func() {
		_, _ = a.Send(list)
		if n, _ := b.Receive(batch); n != 2 {
			t.Fatal(n)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
