package udp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

const (
	// receiveMessages is how many messages one call takes. With GRO each may hold 64 KiB, and a
	// megabyte is what a lane can work through while it stays in the cache.
	receiveMessages = 16
	// receiveBytesGRO is the largest UDP message.
	receiveBytesGRO = 64 << 10
	// idleTurns is in how many calls a receiver is asked once that had nothing last.
	idleTurns = 4
	// receiveBytesPlain is twice the longest RoCE packet; longer ones are none.
	receiveBytesPlain = 8 << 10
)

// receiver owns the buffers of a receiving socket, and the place in them up to which packets have
// been handed over.
type receiver struct {
	fd       int
	messages []mmsghdr
	iovecs   []unix.Iovec
	names    [][nameBytes]byte
	controls [][controlBytes]byte
	buffers  [][]byte

	count    int    // messages of the last call
	next     int    // first of them that has not been begun
	rest     []byte // what is left of the one begun
	current  netio.Datagram
	flow     roce.Flow // of packets of the one begun
	segment  int       // bytes of each packet in rest but the last
	overflow uint32    // the kernel's count of dropped packets, last seen
}

func (r *receiver) init(v6, coalesced bool) {
	size := receiveBytesPlain
	if coalesced {
		size = receiveBytesGRO
	}
	r.messages = make([]mmsghdr, receiveMessages)
	r.iovecs = make([]unix.Iovec, receiveMessages)
	r.names = make([][nameBytes]byte, receiveMessages)
	r.controls = make([][controlBytes]byte, receiveMessages)
	r.buffers = make([][]byte, receiveMessages)
	for i := range r.messages {
		r.buffers[i] = make([]byte, size)
		r.iovecs[i].Base = &r.buffers[i][0]
		r.iovecs[i].SetLen(size)
		h := &r.messages[i].hdr
		h.Name = &r.names[i][0]
		h.Iov = &r.iovecs[i]
		h.SetIovlen(1)
		h.Control = &r.controls[i][0]
	}
	r.current.Path.DF = !v6
}

// isDrained reports that all packets of the last call have been handed over.
func (r *receiver) isDrained() bool { return len(r.rest) == 0 && r.next == r.count }

// Receive implements netio.Port.
func (p *Port) Receive(batch []netio.Datagram) (int, error) {
	if p.closed {
		return 0, netio.ErrClosed
	}
	n := 0
	for i := range p.families {
		r := &p.families[(p.turn+i)%len(p.families)].receive
		if !p.isDue(r) {
			continue
		}
		// What a fill brings may all be bad, and then 0 would tell the lane that nothing more
		// is there: epoll says so again, for the socket stays readable.
		if n < len(batch) && r.isDrained() {
			if err := p.fill(r); err != nil {
				return n, err
			}
		}
		n += p.deliver(r, batch[n:])
	}
	p.turn++
	return n, nil
}

// isDue reports that a receiver is to be asked now. Of the two IP versions mostly one is in use, so
// the one that had something last is asked in each call, and the other, since that costs 300 ns, in
// some only. Who waits for its socket is told all the same that it is readable, and calls again.
func (p *Port) isDue(r *receiver) bool {
	return r == p.busy || p.busy == nil || !r.isDrained() || p.turn%idleTurns == 0
}

// fill asks the kernel for messages. Their buffers must be free.
func (p *Port) fill(r *receiver) error {
	r.count, r.next = 0, 0
	for i := range r.messages {
		h := &r.messages[i].hdr
		h.Namelen = nameBytes
		h.SetControllen(controlBytes)
		h.Flags = 0
	}
	n, errno := recvMessages(r.fd, r.messages)
	switch errno {
	case 0:
		r.count, p.busy = n, r
		p.counters.Add(netio.RxBatches, uint64(n))
	case unix.EAGAIN:
	case unix.EBADF, unix.ENOTSOCK, unix.EFAULT, unix.EINVAL:
		return fmt.Errorf("udp: receive from socket %d: %w", r.fd, errno)
	default:
		// The socket survives an interrupted call, a reported network error and want of memory.
		p.counters.Add(netio.RxErrors, 1)
	}
	return nil
}

// deliver hands over packets until the batch is full or the messages are used up.
func (p *Port) deliver(r *receiver, batch []netio.Datagram) int {
	n := 0
	var bytes uint64
	for n < len(batch) {
		if len(r.rest) == 0 {
			if r.next == r.count {
				break
			}
			p.begin(r, r.next)
			r.next++
			continue
		}
		size := min(r.segment, len(r.rest))
		packet := r.rest[:size:size]
		r.rest = r.rest[size:]
		if p.verify(r, packet) {
			d := &batch[n]
			*d = r.current
			d.Buf = packet[:size-roce.ICRCLen]
			bytes += uint64(size)
			n++
		}
		r.current.Path.IPID++ // only a guess for the next one; unused on IPv6
	}
	if n > 0 {
		p.counters.Add(netio.RxPackets, uint64(n))
		p.counters.Add(netio.RxBytes, bytes)
	}
	return n
}

// begin starts with message i: it reads what is common to its packets.
func (p *Port) begin(r *receiver, i int) {
	m := &r.messages[i]
	var control inControl
	control.parse(r.controls[i][:m.hdr.Controllen])
	if control.hasCount {
		p.counters.Add(netio.RxSocketDropped, uint64(control.overflow-r.overflow))
		r.overflow = control.overflow
	}
	d := &r.current
	r.flow = roce.Flow{}
	d.Path.Src, d.Path.SrcPort = getName(r.names[i][:m.hdr.Namelen])
	d.Path.Dst = control.dst
	if m.hdr.Flags&unix.MSG_TRUNC != 0 || !d.Path.Src.IsValid() || !d.Path.Dst.IsValid() {
		// Longer than any packet; or the kernel did not say between whom, and nothing can be
		// checked.
		p.counters.Add(netio.RxICRCBad, 1)
		r.rest = nil
		return
	}
	d.Path.TrafficClass = control.class
	d.Path.HopLimit = control.hopLimit
	d.Path.FlowLabel = control.flowLabel
	d.Path.IPID = 0
	d.Interface = control.ifindex
	r.rest = r.buffers[i][:m.len]
	r.segment = control.segment
	if r.segment <= 0 {
		r.segment = len(r.rest)
	}
	if len(r.rest) == 0 {
		p.counters.Add(netio.RxShort, 1)
	}
}

// verify checks the ICRC of one packet. The identification is hidden from a UDP socket, but a
// sender like ours numbers the packets of a segmented send from 0, which the path has as a guess;
// where it is wrong, the check does without.
func (p *Port) verify(r *receiver, packet []byte) bool {
	if len(packet) < roce.PayloadLenMin {
		p.counters.Add(netio.RxShort, 1)
		return false
	}
	path := &r.current.Path
	if n := len(packet) - roce.ICRCLen; !r.flow.Fits(n) {
		r.flow = roce.NewFlow(path, n)
	}
	switch r.flow.Check(path.IPID, packet) {
	case roce.Good:
		return true
	case roce.GoodUpToIPID:
		p.counters.Add(netio.RxICRCPartial, 1)
		return true
	default:
		p.counters.Add(netio.RxICRCBad, 1)
		return false
	}
}

// setICRC writes the ICRC of a packet into the spare bytes behind it, and returns both.
func setICRC(d *netio.Datagram, flow *roce.Flow) []byte {
	n := len(d.Buf)
	packet := d.Buf[:n+roce.ICRCLen]
	binary.LittleEndian.PutUint32(packet[n:], flow.ICRC(d.Path.IPID, d.Buf))
	if d.Flip != 0 {
		bit := int(d.Flip-1) % (8 * len(packet))
		packet[bit/8] ^= 1 << (bit % 8)
	}
	return packet
}
