package nic

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

const (
	rnic0 = iota
	iwarp0
)

// newTwin is a bench with a device of each transport, both on the address 10.0.0.1. Its context is
// one of the device named by its place.
func newTwin(t *testing.T, device int) *bench {
	t.Helper()
	b := &bench{t: t, heap: new(arena)}
	b.n = New(Config{
		Devices: []DeviceConfig{{Name: "rnic0"}, {Name: "iwarp0", Transport: TransportIWARP}},
		Secret:  42, NodeGUID: 0x020304fffe050607, Memory: b.heap, Version: "test",
	})
	b.n.SetPort(0, rnic0, Port{MTU: rdma.MTU1024, Active: true, GIDs: []abi.GIDEntry{
		{GID: gid(1), Port: 1, Type: 2, IfIndex: stationIf},
	}})
	b.n.SetPort(0, iwarp0, Port{
		MTU: rdma.MTU1024, Active: true, GIDs: []abi.GIDEntry{{GID: macGID, Port: 1}},
		Addresses: []PortAddress{{Addr: ipOf("10.0.0.1"), Interface: stationIf}},
	})
	bells := bytesOf(make([]uint64, abi.DoorbellPageBytes/8))
	c, r := b.n.OpenContext(b.now, ContextConfig{Device: device, Name: "test", Doorbells: bells})
	b.granted(r)
	b.c, b.bells = c, bells
	b.pd, r = c.AllocPD()
	b.granted(r)
	return b
}

var macGID = [16]byte{2, 3, 4, 5, 6, 7}

func wantErrno(t *testing.T, what string, r *rdma.Refusal, errno syscall.Errno, words string) {
	t.Helper()
	if r == nil || r.Errno != errno || !strings.Contains(r.Reason, words) {
		t.Errorf("%s: %v, want %v with %q", what, r, errno, words)
	}
}

func TestNIC_Devices_AreListedInOrderWithGUIDsOfTheirOwn(t *testing.T) {
	b := newTwin(t, rnic0)
	list := b.n.DeviceInfo()
	if len(list) != 2 {
		t.Fatalf("%d devices", len(list))
	}
	for i, want := range []abi.DeviceInfo{
		{NodeGUID: 0x020304fffe050607, NodeType: 1, Transport: 0, Ports: 1, Index: 0},
		{NodeGUID: 0x020304ffff050607, NodeType: 4, Transport: 1, Ports: 1, Index: 1},
	} {
		copy(want.Name[:], []string{"rnic0", "iwarp0"}[i])
		if list[i] != want {
			t.Errorf("device %d is %+v, want %+v", i, list[i], want)
		}
	}
	other := newTwin(t, iwarp0)
	if a := other.c.DeviceAttr(); a.NodeGUID != list[1].NodeGUID ||
		a.SysImageGUID != list[0].NodeGUID {
		t.Errorf("GUIDs of iwarp0: node %#x, system image %#x", a.NodeGUID, a.SysImageGUID)
	}
	if a := b.c.DeviceAttr(); a.NodeGUID != list[0].NodeGUID {
		t.Errorf("GUID of rnic0: %#x", a.NodeGUID)
	}
}

func TestNIC_OpenContext_DeviceThatIsNotThere_IsRefused(t *testing.T) {
	b := newTwin(t, rnic0)
	for _, at := range []int{-1, 2} {
		_, r := b.n.OpenContext(0, ContextConfig{Device: at, Doorbells: b.bells})
		wantErrno(t, "open", r, syscall.ENODEV, "no device")
	}
}

func TestContext_OfIWARP_HasOnlyWhatTheTransportHas(t *testing.T) {
	b := newTwin(t, iwarp0)
	attr := b.c.DeviceAttr()
	if attr.MaxAH != 0 || attr.MaxMcastGrp != 0 || attr.CapFlags&capXRC != 0 || attr.ODPCapsUD != 0 ||
		attr.ODPCapsRC&odpRead == 0 || attr.ODPCapsRC&odpFlush != 0 || attr.MaxQP == 0 ||
		attr.MaxPKeys != 0 || attr.LocalCAAckDelay != 0 {
		t.Errorf("device attributes: %+v", attr)
	}
	port, r := b.c.PortAttr(1)
	b.granted(r)
	if port.LinkLayer != linkEthernet || port.GIDTableLen != 1 ||
		port.State != uint32(rdma.PortActive) {
		t.Errorf("port attributes: %+v", port)
	}
	if _, r := b.c.PKey(1, 0); port.PKeyTableLen != 0 || r == nil {
		t.Error("iWARP knows no partitions")
	}
	if table := b.c.GIDTable(); len(table) != 1 || table[0].GID != macGID {
		t.Errorf("GID table: %v", table)
	}
	cq := b.cq(8, 0)
	for _, kind := range []rdma.QPType{
		rdma.QPTypeUC, rdma.QPTypeUD, rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv,
	} {
		_, _, r := b.c.CreateQP(0, &abi.CreateQPReq{
			Type: uint32(kind), PD: b.pd, SendCQ: cq.handle, RecvCQ: cq.handle,
			MaxSendWR: 1, MaxRecvWR: 1,
		})
		wantErrno(t, kind.String(), r, syscall.EOPNOTSUPP, "iwarp")
	}
	_, r = b.c.OpenXRCD(nil, abi.XRCDCreate)
	wantErrno(t, "XRC domain", r, syscall.EOPNOTSUPP, "iwarp")
	_, r = b.c.CreateAH(&abi.CreateAHReq{
		PD: b.pd, Attr: abi.AHAttr{Port: 1, IsGlobal: 1, DGID: gid(2)},
	})
	wantErrno(t, "address handle", r, syscall.EOPNOTSUPP, "iwarp")
	r = b.c.AttachMulticast(&abi.AttachMulticastReq{QP: 1, GID: [16]byte{0: 0xff, 15: 1}})
	wantErrno(t, "multicast", r, syscall.EOPNOTSUPP, "iwarp")
}

func TestNIC_SetPort_TellsTheContextsOfThatDeviceOnly(t *testing.T) {
	b := newTwin(t, rnic0)
	bells := bytesOf(make([]uint64, abi.DoorbellPageBytes/8))
	second, r := b.n.OpenContext(0, ContextConfig{Device: iwarp0, Doorbells: bells})
	b.granted(r)
	for at, c := range []*Context{b.c, second} {
		p := b.n.devices[at].port.Port
		p.Active = false
		b.n.SetPort(0, at, p)
		var e Event
		if !b.n.PollEvent(&e) || e.Context != c || e.Type != rdma.EventPortErr {
			t.Errorf("device %d: event %+v", at, e)
		}
		if b.n.PollEvent(&e) {
			t.Errorf("device %d: one more event %+v", at, e)
		}
	}
}

func TestNIC_IsLocal_KnowsAddressesOfPacketsOnly(t *testing.T) {
	b := newTwin(t, rnic0)
	if !b.n.IsLocal(gid(1)) || b.n.IsLocal(macGID) {
		t.Error("packets go by GIDs of RoCE, and by no others")
	}
	p := b.n.devices[rnic0].port.Port
	p.GIDs = nil
	b.n.SetPort(0, rnic0, p)
	if b.n.IsLocal(gid(1)) {
		t.Error("an address that is gone is still local")
	}
}

func TestContext_Import_FromAnotherDevice_IsRefused(t *testing.T) {
	b := newTwin(t, rnic0)
	bells := bytesOf(make([]uint64, abi.DoorbellPageBytes/8))
	second, r := b.n.OpenContext(0, ContextConfig{Device: iwarp0, Doorbells: bells})
	b.granted(r)
	wantErrno(t, "import", second.Import(b.c), syscall.EINVAL, "rnic0")
}

// bound creates an identifier, binds it to an address and returns what it got.
func (b *bench) bound(device string, space portSpace, addr string) (abi.CMRoute, *rdma.Refusal) {
	b.t.Helper()
	s, r := b.n.OpenCM(0, CMConfig{Name: "test"})
	b.granted(r)
	channel, r := s.CreateEventChannel()
	b.granted(r)
	req := abi.CreateIDReq{Channel: channel, PortSpace: uint32(space)}
	copy(req.Device[:], device)
	id, r := s.CreateID(&req)
	if r != nil {
		return abi.CMRoute{}, r
	}
	at := sockaddr{addr: netip.MustParseAddr(addr)}
	return s.BindAddr(&abi.CMAddrReq{ID: id, Src: at.abi()})
}

func TestCMSession_Bind_TakesTheFirstDeviceThatCan(t *testing.T) {
	b := newTwin(t, rnic0)
	for _, c := range []struct {
		device string
		space  portSpace
		addr   string
		want   string
	}{
		{"", spaceTCP, "10.0.0.1", "rnic0"},
		{"rnic0", spaceTCP, "10.0.0.1", "rnic0"},
		{"iwarp0", spaceTCP, "10.0.0.1", "iwarp0"},
		{"iwarp0", spaceTCP, "127.0.0.1", "iwarp0"},
		{"", spaceUDP, "10.0.0.1", "rnic0"},
		{"", spaceTCP, "0.0.0.0", ""},
	} {
		route, r := b.bound(c.device, c.space, c.addr)
		if r != nil || text(route.Device[:]) != c.want {
			t.Errorf("%v: bound to %q: %v", c, text(route.Device[:]), r)
		}
		if c.want == "iwarp0" && route.SGID != macGID {
			t.Errorf("%v: source GID %x", c, route.SGID)
		}
	}
	_, r := b.bound("iwarp0", spaceTCP, "10.0.0.9")
	wantErrno(t, "foreign address", r, syscall.EADDRNOTAVAIL, "iwarp0")
}

func TestCMSession_CreateID_RefusesDevicesThatWillNotDo(t *testing.T) {
	b := newTwin(t, rnic0)
	_, r := b.bound("mlx5_0", spaceTCP, "10.0.0.1")
	wantErrno(t, "unknown device", r, syscall.ENODEV, "rnic0, iwarp0")
	_, r = b.bound("iwarp0", spaceUDP, "10.0.0.1")
	wantErrno(t, "UD on iWARP", r, syscall.EOPNOTSUPP, "iwarp0 has no UD")
	alone := &bench{t: t, heap: new(arena)}
	alone.n = New(Config{
		Devices:  []DeviceConfig{{Name: "iwarp0", Transport: TransportIWARP}},
		NodeGUID: 1, Memory: alone.heap,
	})
	_, r = alone.bound("", spaceUDP, "10.0.0.1")
	wantErrno(t, "UD where there is iWARP only", r, syscall.EOPNOTSUPP, "no device")
}

func TestNIC_AddressThatOnlyIWARPHas_ResolvesThere(t *testing.T) {
	b := newTwin(t, rnic0)
	p := b.n.devices[iwarp0].port.Port
	p.Addresses = append(p.Addresses, PortAddress{Addr: ipOf("10.0.0.7"), Interface: 9})
	b.n.SetPort(0, iwarp0, p)
	route, r := b.bound("", spaceTCP, "10.0.0.7")
	if r != nil || text(route.Device[:]) != "iwarp0" {
		t.Errorf("bound to %q: %v", text(route.Device[:]), r)
	}
}

func TestParseTransport_EveryNameAndNoOther(t *testing.T) {
	for i, name := range TransportNames() {
		got, ok := ParseTransport(name)
		if !ok || got != Transport(i) || got.String() != name {
			t.Errorf("%s is %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "RoCE", "ib", "none"} {
		if got, ok := ParseTransport(name); ok || got != TransportRoCE {
			t.Errorf("%q is %v", name, got)
		}
	}
}
