package daemon

import (
	"net/netip"
	"slices"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/hostnet"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// headroom is what the longest headers take of an interface's MTU: IPv6, UDP, BTH, XRCETH,
// AtomicETH and ICRC. It is the rule of the Linux kernel, so that both ends of a link agree: 1500
// gives 1024, and 4200 is the least for 4096.
const headroom = 40 + 8 + 12 + 4 + 28 + 4

// gidTable gives every address a place that it keeps as long as it lives: programs hold indices.
// A place that becomes free is used again. Lane.
type gidTable struct {
	layout layout
	slots  [limits.MaxGIDs]abi.GIDEntry
	used   [limits.MaxGIDs]bool
}

// gidSource is one address that wants to be in the table.
type gidSource struct {
	addr      netip.Addr
	ifIndex   int
	ifName    string
	ifMTU     int
	mac       hostnet.MAC
	scope     hostnet.Scope
	isRunning bool
}

func (s *gidSource) entry(t rdma.GIDType) abi.GIDEntry {
	e := abi.GIDEntry{
		GID: rdma.GIDFromAddr(s.addr), Port: 1, Type: uint32(t), IfIndex: uint32(s.ifIndex),
	}
	copy(e.IfName[:len(e.IfName)-1], s.ifName)
	return e
}

// update makes the table hold exactly the sources, as far as there is room, and returns how many
// found none. New ones take the lowest free places in the order given.
func (t *gidTable) update(sources []gidSource) (left int) {
	sources = t.layout.arrange(sources)
	wanted := make(map[abi.GIDEntry]bool, len(sources))
	for i := range sources {
		for _, e := range t.layout.entries(&sources[i]) {
			wanted[e] = true
		}
	}
	for i := range t.slots {
		e := t.slots[i]
		e.Index = 0
		if t.used[i] && !wanted[e] {
			t.used[i] = false
		}
		if t.used[i] {
			delete(wanted, e)
		}
	}
	for i := range sources {
		if !t.place(&sources[i], wanted) {
			left++
		}
	}
	return left
}

// place gives a source's entries, as far as they are wanted, places in a row: they come and go
// together, so that the first is always where a row can begin.
func (t *gidTable) place(s *gidSource, wanted map[abi.GIDEntry]bool) bool {
	entries := t.layout.entries(s)
	if !wanted[entries[0]] {
		return true
	}
	at := t.layout.from(s)
	for at+len(entries) <= len(t.slots) && t.used[at] {
		at += len(entries)
	}
	if at+len(entries) > len(t.slots) {
		return false
	}
	for i, e := range entries {
		delete(wanted, e)
		e.Index = uint32(at + i)
		t.slots[at+i], t.used[at+i] = e, true
	}
	return true
}

// entries lists the table by index.
func (t *gidTable) entries() []abi.GIDEntry {
	var out []abi.GIDEntry
	for i := range t.slots {
		if t.used[i] {
			out = append(out, t.slots[i])
		}
	}
	return out
}

// ifIndexOf returns the interface of a GID, or 0.
func (t *gidTable) ifIndexOf(gid rdma.GID) uint32 {
	for i := range t.slots {
		if t.used[i] && t.slots[i].GID == gid {
			return t.slots[i].IfIndex
		}
	}
	return 0
}

// sourcesOf lists what a snapshot of the host offers, filtered, in GID order.
func (c *Config) sourcesOf(s hostnet.Snapshot) []gidSource {
	var out []gidSource
	for _, a := range s.Addresses {
		link, _ := s.InterfaceByIndex(a.Interface)
		if !c.admits(a.Addr(), link.Name) {
			continue
		}
		out = append(out, gidSource{
			addr: a.Addr(), ifIndex: a.Interface, ifName: link.Name, ifMTU: link.MTU,
			mac:   link.MAC,
			scope: a.Scope, isRunning: link.Running || link.Loopback,
		})
	}
	return out
}

func (c *Config) admits(addr netip.Addr, link string) bool {
	if len(c.Addresses) > 0 && !slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool {
		return a.Unmap().WithZone("") == addr
	}) {
		return false
	}
	return len(c.Interfaces) == 0 || slices.Contains(c.Interfaces, link)
}

// loopbackSources stand in on a host without any address: programs on one NIC can talk all the
// same, since their packets go by memory.
func loopbackSources() []gidSource {
	var out []gidSource
	for _, text := range []string{"127.0.0.1", "::1"} {
		out = append(out, gidSource{
			addr: netip.MustParseAddr(text), ifIndex: 1, ifName: "lo", ifMTU: loopbackMTU,
			scope: hostnet.ScopeHost, isRunning: true,
		})
	}
	return out
}

const loopbackMTU = 65536

func (w *Wire) sources() []gidSource {
	mtu := w.MTU
	if mtu == 0 {
		mtu = rdma.MTU4096
	}
	var out []gidSource
	for _, a := range w.Addresses {
		out = append(out, gidSource{
			addr: a, ifIndex: 1, ifName: "wire", ifMTU: mtu.Bytes() + headroom, isRunning: true,
		})
	}
	return out
}

// portOf describes the port. Its MTU is what the interfaces of the farthest-reaching addresses all
// carry: the program chooses a path MTU before it knows the path, and a packet that is too long for
// one interface would never arrive. The loopback interface decides only where it is alone, so that
// a host at MTU 1500 shows 1024 as rdma_rxe does.
func (t *gidTable) portOf(sources []gidSource, override rdma.MTU) nic.Port {
	p := nic.Port{GIDs: t.entries(), MTU: rdma.MTU4096, InfiniBand: t.layout.infiniband}
	scope := hostnet.ScopeHost
	for i := range sources {
		scope = min(scope, sources[i].scope)
		p.Active = p.Active || sources[i].isRunning
	}
	for i := range sources {
		if sources[i].scope == scope {
			p.MTU = min(p.MTU, rdma.MTUFromBytes(sources[i].ifMTU-headroom))
		}
	}
	// An interface below 352 bytes carries no RoCE, but same-host traffic still works.
	p.MTU = max(p.MTU, rdma.MTU256)
	if override != 0 {
		p.MTU = override
	}
	return p
}
