package udp

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

const (
	// sendMessagesMax and sendPacketsMax bound one system call, and with it the time for which
	// the lane's thread is away.
	sendMessagesMax = 32
	sendPacketsMax  = 512
	// fullTriesMax bounds how often in a row a packet is put off because a device queue refuses
	// it: a device that never takes any must not stop traffic to others.
	fullTriesMax = 64
)

// outgoing is the scratch space of Send.
type outgoing struct {
	messages [sendMessagesMax]mmsghdr
	names    [sendMessagesMax][nameBytes]byte
	controls [sendMessagesMax][controlBytes]byte
	packets  [sendMessagesMax]int // packets of each message
	bytes    [sendMessagesMax]int // bytes of each message
	iovecs   [sendPacketsMax]unix.Iovec
	count    int // messages
	used     int // iovecs

	fullTries int
}

func (o *outgoing) init() {
	for i := range o.messages {
		h := &o.messages[i].hdr
		h.Name = &o.names[i][0]
		h.Control = &o.controls[i][0]
	}
}

func (o *outgoing) reset() { o.count, o.used = 0, 0 }

func (o *outgoing) hasRoom() bool {
	return o.count < len(o.messages) && o.used < len(o.iovecs)
}

// Send implements netio.Port.
func (p *Port) Send(batch []netio.Datagram) (int, error) {
	if p.closed {
		return 0, netio.ErrClosed
	}
	done := 0
	for done < len(batch) {
		n, full, err := p.sendSome(batch[done:])
		done += n
		if err != nil {
			return done, err
		}
		if full {
			p.counters.Add(netio.TxFull, 1)
			break
		}
	}
	return done, nil
}

// sendSome sends a prefix of the batch, which is not empty, by one system call, or drops the first
// datagram. It returns how many datagrams are done with and whether the socket is full.
func (p *Port) sendSome(batch []netio.Datagram) (int, bool, error) {
	s := p.senderOf(&batch[0])
	if s == nil {
		p.counters.Add(netio.TxOtherErrors, 1)
		return 1, false, nil
	}
	o := &p.out
	o.reset()
	taken := 0
	for taken < len(batch) && o.hasRoom() && p.senderOf(&batch[taken]) == s {
		n := p.groupLen(batch[taken:], min(netio.GroupDatagramsMax, len(o.iovecs)-o.used))
		p.putGroup(batch[taken:taken+n], s)
		taken += n
	}
	sent, errno := 0, unix.Errno(0)
	for sent < o.count && errno == 0 {
		var n int
		n, errno = sendMessages(s.fd, o.messages[sent:o.count])
		if errno == 0 {
			sent += n
		}
	}
	if sent == 0 {
		return p.sendFailed(batch, s, errno)
	}
	// Where a message in the middle failed for another reason than a full socket, it is the first
	// one of the next call, which deals with it.
	o.fullTries = 0
	return p.countSent(sent), isFull(errno), nil
}

// senderOf returns the socket for a datagram, or nil when no socket can carry it.
func (p *Port) senderOf(d *netio.Datagram) *sender {
	if len(d.Buf) < ib.BTHLen || cap(d.Buf)-len(d.Buf) < netio.TrailerBytes ||
		len(d.Buf)+netio.TrailerBytes > netio.GroupBytesMax {
		return nil
	}
	src, dst := d.Path.Src, d.Path.Dst
	f := p.v4
	if src.Is6() && !src.Is4In6() {
		f = p.v6
	}
	// An unspecified destination would reach the loopback interface, and an unspecified source
	// leaves the ICRC without one of its inputs.
	if f == nil || !src.IsValid() || src.IsUnspecified() || !dst.IsValid() ||
		dst.IsUnspecified() || f.v6 == (dst.Is4() || dst.Is4In6()) {
		return nil
	}
	return &f.senders[int(d.Path.SrcPort)%len(f.senders)]
}

// groupLen returns how many datagrams from the first on can be one segmented send: same path, same
// length, only the last shorter.
func (p *Port) groupLen(batch []netio.Datagram, limit int) int {
	if !p.features.SegmentSend {
		return 1
	}
	first := &batch[0]
	size := len(first.Buf)
	total := size + roce.ICRCLen
	n := 1
	for n < min(limit, len(batch)) {
		d := &batch[n]
		total += len(d.Buf) + roce.ICRCLen
		if len(d.Buf) > size || len(d.Buf) < ib.BTHLen || total > netio.GroupBytesMax ||
			cap(d.Buf)-len(d.Buf) < netio.TrailerBytes || !isSamePath(first, d) {
			break
		}
		n++
		if len(d.Buf) < size {
			break
		}
	}
	return n
}

// isSamePath compares all that the headers of a segmented send have in common. The source port
// is compared as the caller gave it, before Send replaces it.
func isSamePath(a, b *netio.Datagram) bool {
	return a.Path.Dst == b.Path.Dst && a.Path.Src == b.Path.Src &&
		a.Path.SrcPort == b.Path.SrcPort && a.Path.TrafficClass == b.Path.TrafficClass &&
		a.Path.HopLimit == b.Path.HopLimit && a.Interface == b.Interface
}

// putGroup appends the group as one message: ICRCs, iovecs, address and ancillary data.
func (p *Port) putGroup(group []netio.Datagram, s *sender) {
	o := &p.out
	i := o.count
	path := &group[0].Path
	src, dst := path.Src.Unmap(), path.Dst.Unmap()
	bytes := p.putPackets(group, s)
	h := &o.messages[i].hdr
	h.Namelen = putName(&o.names[i], dst, p.config.UDPPort, group[0].Interface)
	control := outControl{src: src, ifindex: group[0].Interface, class: path.TrafficClass}
	if path.HopLimit != defaultHopLimit || dst.IsMulticast() {
		control.hopLimit = path.HopLimit
	}
	if len(group) > 1 {
		control.segment = uint16(len(group[0].Buf) + roce.ICRCLen)
	}
	h.SetControllen(control.put(&o.controls[i]))
	o.packets[i], o.bytes[i] = len(group), bytes
	o.count++
}

// putPackets adds the packets of the next message and returns their bytes. Those that lie one
// behind the other, as a lane has them, are one iovec: the kernel spends some 20 ns on each.
func (p *Port) putPackets(group []netio.Datagram, s *sender) (bytes int) {
	o := &p.out
	first := o.used
	var flow roce.Flow
	var last []byte
	for k := range group {
		d := &group[k]
		d.Path.SrcPort = s.port
		d.Path.DF = true
		d.Path.IPID = uint16(k)
		if !flow.Fits(len(d.Buf)) {
			flow = roce.NewFlow(&d.Path, len(d.Buf))
		}
		packet := setICRC(d, &flow)
		bytes += len(packet)
		if k > 0 && isBehind(last, packet) {
			v := &o.iovecs[o.used-1]
			v.SetLen(int(v.Len) + len(packet))
		} else {
			v := &o.iovecs[o.used]
			v.Base = &packet[0]
			v.SetLen(len(packet))
			o.used++
		}
		last = packet
	}
	h := &o.messages[o.count].hdr
	h.Iov = &o.iovecs[first]
	h.SetIovlen(o.used - first)
	return bytes
}

// countSent counts the first n messages and returns their datagrams.
func (p *Port) countSent(n int) int {
	o := &p.out
	packets, bytes, segmented := 0, 0, 0
	for i := range n {
		packets += o.packets[i]
		bytes += o.bytes[i]
		if o.packets[i] > 1 {
			segmented++
		}
	}
	p.counters.Add(netio.TxBatches, uint64(n))
	p.counters.Add(netio.TxPackets, uint64(packets))
	p.counters.Add(netio.TxBytes, uint64(bytes))
	p.counters.Add(netio.TxSegmentedSends, uint64(segmented))
	return packets
}

// sendFailed deals with the error of the first message that sendSome built.
func (p *Port) sendFailed(batch []netio.Datagram, s *sender, errno unix.Errno) (int, bool, error) {
	if isFatal(errno) {
		return 0, false, fmt.Errorf("udp: send on socket %d: %w", s.fd, errno)
	}
	o := &p.out
	if !isFull(errno) {
		// An ICMP message about an earlier packet to somebody else surfaces as the error of
		// whatever is sent next, and is gone then: only a second failure is this message's own.
		var sent int
		if sent, errno = sendMessages(s.fd, o.messages[:1]); errno == 0 {
			return p.countSent(sent), false, nil
		}
	}
	if isFull(errno) {
		o.fullTries++
		if o.fullTries < fullTriesMax || errno == unix.EAGAIN {
			return 0, true, nil
		}
	}
	o.fullTries = 0
	n := o.packets[0]
	if n > 1 && (errno == unix.EINVAL || errno == unix.EIO || errno == unix.EMSGSIZE) {
		return p.sendSingly(batch[:n], s, errno), false, nil
	}
	p.counters.Add(dropCounter(errno), uint64(n))
	return n, false, nil
}

func isFull(errno unix.Errno) bool {
	return errno == unix.EAGAIN || errno == unix.ENOBUFS || errno == unix.ENOMEM ||
		errno == unix.EINTR
}

func isFatal(errno unix.Errno) bool {
	return errno == unix.EBADF || errno == unix.ENOTSOCK || errno == unix.EFAULT
}

// dropCounter names the count for a packet that the kernel refuses to send.
func dropCounter(errno unix.Errno) netio.Counter {
	switch errno {
	case unix.EMSGSIZE:
		return netio.TxTooLong
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.EADDRNOTAVAIL,
		unix.ENODEV, unix.ECONNREFUSED:
		return netio.TxUnreachable
	case unix.EPERM, unix.EACCES:
		return netio.TxForbidden
	}
	return netio.TxOtherErrors
}

// sendSingly sends what could not go as one segmented message packet by packet, and finds out
// whether segmentation was to blame.
func (p *Port) sendSingly(group []netio.Datagram, s *sender, cause unix.Errno) int {
	o := &p.out
	wentThrough := false
	for k := range group {
		o.reset()
		p.putGroup(group[k:k+1], s)
		_, errno := sendMessages(s.fd, o.messages[:1])
		if errno == 0 {
			p.countSent(1)
			wentThrough = true
			continue
		}
		if isFull(errno) {
			return k
		}
		p.counters.Add(dropCounter(errno), 1)
	}
	// EIO: the device cannot checksum, which segmentation asks of it. EINVAL of a message whose
	// packets are fine one by one: a kernel or sandbox that does not know the option.
	if cause == unix.EIO || cause == unix.EINVAL && wentThrough {
		p.disableGSO(fmt.Errorf("segmented send: %w", cause))
	}
	return len(group)
}
