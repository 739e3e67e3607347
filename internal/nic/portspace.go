package nic

import (
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/rdma"
)

// portSpace separates the ports of services; values of enum rdma_port_space.
type portSpace uint32

// Port spaces.
const (
	spaceIPoIB portSpace = 0x0002
	spaceTCP   portSpace = 0x0106
	spaceUDP   portSpace = 0x0111
	spaceIB    portSpace = 0x013f
)

func (p portSpace) String() string {
	switch p {
	case spaceIPoIB:
		return "IPOIB"
	case spaceTCP:
		return "TCP"
	case spaceUDP:
		return "UDP"
	case spaceIB:
		return "IB"
	}
	return "unknown"
}

// service returns the service ID of a port (IBTA annex A11.4.1).
func (p portSpace) service(port uint16) uint64 { return uint64(p)<<16 | uint64(port) }

// splitService is the inverse of service.
func splitService(id uint64) (portSpace, uint16) { return portSpace(id >> 16), uint16(id) }

// Ports that are chosen where none is asked for, as Linux has them by default.
const (
	portAnyMin = 32768
	portAnyMax = 60999
)

// portTable knows who has which port. Several identifiers may own one, under the rules of
// conflict.
type portTable struct {
	owners map[uint64][]*identifier // by service ID
	last   uint16                   // chosen for somebody who asked for none
}

// claim gives a port to an identifier, whose source address names it, or one that is free where
// that is 0. rover is where the search begins.
func (t *portTable) claim(i *identifier, rover uint32) *rdma.Refusal {
	if i.src.port != 0 {
		if r := t.check(i, i.options.reuse); r != nil {
			return r
		}
		t.enter(i)
		return nil
	}
	const count = portAnyMax - portAnyMin + 1
	for n := range uint32(count) {
		port := uint16(portAnyMin + (rover+n)%count)
		if port == t.last {
			continue // a port that was given back just now may have late packets
		}
		if _, errno := conflict(i, t.owners[i.space.service(port)], false); errno == 0 {
			t.last, i.src.port, i.isPortChosen = port, port, true
			t.enter(i)
			return nil
		}
	}
	return refusef(syscall.EADDRNOTAVAIL, "all ports of port space %v are taken", i.space)
}

// enter makes an identifier an owner of its port.
func (t *portTable) enter(i *identifier) {
	key := i.space.service(i.src.port)
	i.ownsPort = true
	t.owners[key] = append(t.owners[key], i)
}

// check refuses a port that others own and that cannot be shared.
func (t *portTable) check(i *identifier, reuse bool) *rdma.Refusal {
	o, errno := conflict(i, t.owners[i.space.service(i.src.port)], reuse)
	if errno == 0 {
		return nil
	}
	return refusef(errno, "port %d of port space %v is bound to %v by %s[%d]", i.src.port, i.space,
		o.src.addr, o.program(), o.pid())
}

// release gives the port of an identifier back.
func (t *portTable) release(i *identifier) {
	if !i.ownsPort {
		return
	}
	i.ownsPort = false
	key := i.space.service(i.src.port)
	left := slices.DeleteFunc(t.owners[key], func(o *identifier) bool { return o == i })
	if len(left) == 0 {
		delete(t.owners, key)
		return
	}
	t.owners[key] = left
}

// conflict finds an owner with whom an identifier may not share a port: a wildcard meets every
// address of its family, and of the other one unless both keep to their own. The errors are those
// of the Linux kernel.
func conflict(i *identifier, owners []*identifier, reuse bool) (*identifier, syscall.Errno) {
	for _, o := range owners {
		switch {
		case o == i, reuse && o.options.reuse:
		case i.options.afOnly && o.options.afOnly && !i.src.isSameFamily(o.src):
		case i.src.isWildcard() || o.src.isWildcard():
			return o, syscall.EADDRNOTAVAIL
		case i.src.addr == o.src.addr && i.src.scope == o.src.scope:
			return o, syscall.EADDRINUSE
		}
	}
	return nil, 0
}
