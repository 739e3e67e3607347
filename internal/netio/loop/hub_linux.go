package loop

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
)

// Config says what the wire is like.
type Config struct {
	QueuePackets int // per port, waiting to be received; 0 means queueDefault
	PacketBytes  int // longest UDP payload; 0 means that any is carried
}

// queueDefault is as many packets as a window of each of a few queue pairs.
const queueDefault = 8192

// Hub joins ports.
type Hub struct {
	config Config

	mu      sync.Mutex // guards everything below, and the inbox of every port
	hosts   map[netip.Addr]*Port
	refused map[netip.Addr]bool
	groups  map[netip.Addr][]*Port
	mirror  *Port // hears what is sent to addresses of nobody; nil but for OpenMirror
}

// NewHub returns a wire without ports.
func NewHub(config Config) *Hub {
	if config.QueuePackets <= 0 {
		config.QueuePackets = queueDefault
	}
	return &Hub{
		config:  config,
		hosts:   map[netip.Addr]*Port{},
		refused: map[netip.Addr]bool{},
		groups:  map[netip.Addr][]*Port{},
	}
}

// Open attaches a port with its addresses.
func (h *Hub) Open(name string, addrs ...netip.Addr) (*Port, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("loop: open an event descriptor: %w", err)
	}
	p := &Port{hub: h, name: name, event: fd, fds: []int{fd}}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, addr := range addrs {
		if h.hosts[addr] != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("loop: %v belongs to %s: %w", addr, h.hosts[addr].name,
				netio.ErrPortTaken)
		}
	}
	for _, addr := range addrs {
		h.hosts[addr] = p
	}
	return p, nil
}

// Refuse makes an address that of a host without a NIC: what is sent to it is answered by a
// report that nobody listens. Other unknown addresses swallow packets.
func (h *Hub) Refuse(addr netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused[addr] = true
}

// carry copies a packet to whom it is for, and reports whether the destination refuses it.
func (h *Hub) carry(from *Port, d *netio.Datagram, packet []byte) (refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	dst := d.Path.Dst.WithZone("")
	if dst.IsMulticast() && h.mirror == nil {
		for _, p := range h.groups[dst] {
			if p != from {
				p.enqueueLocked(d, packet)
			}
		}
		return false
	}
	p := h.hosts[dst]
	if p == nil {
		p = h.mirror
	}
	if p != nil {
		p.enqueueLocked(d, packet)
		return false
	}
	return h.refused[dst]
}

func (h *Hub) detach(p *Port) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for addr, other := range h.hosts {
		if other == p {
			delete(h.hosts, addr)
		}
	}
	for group := range h.groups {
		h.leaveLocked(group, p)
	}
}

func (h *Hub) leaveLocked(group netip.Addr, p *Port) {
	h.groups[group] = slices.DeleteFunc(h.groups[group], func(q *Port) bool { return q == p })
}
