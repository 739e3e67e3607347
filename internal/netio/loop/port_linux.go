package loop

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// reportsMax bounds reports that nobody fetches.
const reportsMax = 256

// Port implements netio.Port.
type Port struct {
	hub      *Hub
	name     string
	event    int // readable while the inbox is not empty
	fds      []int
	counters netio.Counters
	reports  []netio.Unreachable // since the last Unreachable
	fetched  []netio.Unreachable // given out by it
	lent     []parcel            // given out by Receive
	closed   bool

	// Guarded by hub.mu.
	inbox   []parcel
	free    [][]byte
	dropped uint64
	word    [8]byte // what is written to event and read from it
}

// parcel is a packet in the inbox, with its ICRC.
type parcel struct {
	buffer []byte
	path   roce.Path
}

var _ netio.Port = (*Port)(nil)

// Send implements netio.Port. A hub is never full: what finds no room is lost at the receiver.
func (p *Port) Send(batch []netio.Datagram) (int, error) {
	if p.closed {
		return 0, netio.ErrClosed
	}
	for i := range batch {
		p.sendOne(&batch[i])
	}
	return len(batch), nil
}

func (p *Port) sendOne(d *netio.Datagram) {
	n := len(d.Buf)
	src, dst := d.Path.Src, d.Path.Dst
	if n < ib.BTHLen || cap(d.Buf)-n < netio.TrailerBytes || !src.IsValid() || !dst.IsValid() ||
		src.Unmap().Is4() != dst.Unmap().Is4() {
		p.counters.Add(netio.TxOtherErrors, 1)
		return
	}
	if limit := p.hub.config.PacketBytes; limit > 0 && n+netio.TrailerBytes > limit {
		p.counters.Add(netio.TxTooLong, 1)
		return
	}
	d.Path.DF, d.Path.IPID = true, 0
	packet := d.Buf[:n+netio.TrailerBytes]
	binary.LittleEndian.PutUint32(packet[n:], roce.ICRC(&d.Path, d.Buf))
	if d.Flip != 0 {
		bit := int(d.Flip-1) % (8 * len(packet))
		packet[bit/8] ^= 1 << (bit % 8)
	}
	p.counters.Add(netio.TxPackets, 1)
	p.counters.Add(netio.TxBytes, uint64(len(packet)))
	if p.hub.carry(p, d, packet) && len(p.reports) < reportsMax {
		p.reports = append(p.reports, netio.Unreachable{Addr: dst, Reporter: dst, NoPort: true})
	}
}

func (p *Port) enqueueLocked(d *netio.Datagram, packet []byte) {
	if len(p.inbox) >= p.hub.config.QueuePackets {
		p.dropped++
		return
	}
	var buffer []byte
	if n := len(p.free); n > 0 {
		buffer, p.free = p.free[n-1], p.free[:n-1]
	}
	p.inbox = append(p.inbox, parcel{append(buffer[:0], packet...), d.Path})
	if len(p.inbox) == 1 {
		p.signal()
	}
}

// signal makes the descriptor readable. An eventfd of one process has room for one more always.
func (p *Port) signal() {
	binary.NativeEndian.PutUint64(p.word[:], 1)
	_, _ = unix.Write(p.event, p.word[:])
}

func (p *Port) clearSignal() {
	_, _ = unix.Read(p.event, p.word[:])
}

// Receive implements netio.Port.
func (p *Port) Receive(batch []netio.Datagram) (int, error) {
	if p.closed {
		return 0, netio.ErrClosed
	}
	p.take(len(batch))
	n := 0
	for i := range p.lent {
		whole := p.lent[i].buffer
		path := p.lent[i].path
		if roce.CheckICRC(&path, whole) != roce.Good {
			p.counters.Add(netio.RxICRCBad, 1)
			continue
		}
		batch[n] = netio.Datagram{
			Buf: whole[:len(whole)-netio.TrailerBytes], Path: path, Interface: 1,
		}
		n++
		p.counters.Add(netio.RxPackets, 1)
		p.counters.Add(netio.RxBytes, uint64(len(whole)))
	}
	return n, nil
}

// take gives the last call's buffers back and moves the next parcels to lent.
func (p *Port) take(limit int) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	for i := range p.lent {
		p.free = append(p.free, p.lent[i].buffer)
	}
	k := min(limit, len(p.inbox))
	p.lent = append(p.lent[:0], p.inbox[:k]...)
	rest := copy(p.inbox, p.inbox[k:])
	p.inbox = p.inbox[:rest]
	if k > 0 && rest == 0 {
		p.clearSignal()
	}
	p.counters.Add(netio.RxSocketDropped, p.dropped)
	p.dropped = 0
}

// Name implements netio.Port.
func (p *Port) Name() string { return "loop:" + p.name }

// Poll implements netio.Port.
func (p *Port) Poll(clock.Time) {}

// NextDeadline implements netio.Port.
func (p *Port) NextDeadline() clock.Time { return clock.Never }

// FDs implements netio.Port.
func (p *Port) FDs() []int { return p.fds }

// Unreachable implements netio.Port.
func (p *Port) Unreachable() []netio.Unreachable {
	p.fetched, p.reports = p.reports, p.fetched[:0]
	p.counters.Add(netio.Unreachables, uint64(len(p.fetched)))
	return p.fetched
}

// Notices implements netio.Port.
func (p *Port) Notices() []netio.Notice { return nil }

// Features implements netio.Port.
func (p *Port) Features() netio.Features {
	return netio.Features{IPv4: true, IPv6: true, SourcePorts: 1 << 14}
}

// Counters implements netio.Port.
func (p *Port) Counters() *netio.Counters { return &p.counters }

// JoinGroup implements netio.Port.
func (p *Port) JoinGroup(group netip.Addr, _ int) error {
	group = group.Unmap().WithZone("")
	if !group.IsMulticast() {
		return fmt.Errorf("loop: %v is no multicast group: %w", group, unix.EINVAL)
	}
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.hub.leaveLocked(group, p)
	p.hub.groups[group] = append(p.hub.groups[group], p)
	return nil
}

// LeaveGroup implements netio.Port.
func (p *Port) LeaveGroup(group netip.Addr, _ int) error {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.hub.leaveLocked(group.Unmap().WithZone(""), p)
	return nil
}

// Close implements netio.Port.
func (p *Port) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	p.hub.detach(p)
	return unix.Close(p.event)
}
