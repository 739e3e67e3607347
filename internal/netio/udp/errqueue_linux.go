package udp

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
)

// unreachableMax bounds the reports of one call; the next call returns the rest.
const unreachableMax = 64

// ICMP types and codes (RFC 792, RFC 4443 §3.1).
const (
	icmpUnreachable     = 3
	icmpPortUnreachable = 3
	icmpFragNeeded      = 4
	icmp6Unreachable    = 1
	icmp6PortUnreach    = 4
)

// errorQueue reads what IP_RECVERR queues on the sending sockets.
type errorQueue struct {
	polled  []unix.PollFd
	reports []netio.Unreachable
	message unix.Msghdr
	name    [nameBytes]byte
	control [controlBytes]byte
}

func (q *errorQueue) init(families []*family) {
	for _, f := range families {
		for _, s := range f.senders {
			q.polled = append(q.polled, unix.PollFd{Fd: int32(s.fd)})
		}
	}
	q.reports = make([]netio.Unreachable, 0, unreachableMax)
	q.message.Name = &q.name[0]
	q.message.Control = &q.control[0]
}

// Unreachable implements netio.Port. It costs one system call when there is nothing.
func (p *Port) Unreachable() []netio.Unreachable {
	q := &p.errors
	q.reports = q.reports[:0]
	if p.closed {
		return nil
	}
	if n, errno := pollNow(q.polled); n <= 0 || errno != 0 {
		return nil
	}
	for i := range q.polled {
		if q.polled[i].Revents&unix.POLLERR != 0 {
			q.drain(int(q.polled[i].Fd))
		}
	}
	p.counters.Add(netio.Unreachables, uint64(len(q.reports)))
	return q.reports
}

func (q *errorQueue) drain(fd int) {
	for range unreachableMax {
		if len(q.reports) == cap(q.reports) {
			return
		}
		q.message.Namelen = nameBytes
		q.message.SetControllen(controlBytes)
		q.message.Flags = 0
		if recvError(fd, &q.message) != 0 {
			// The queue is empty. An error may be left that is not in the queue; asking for it
			// clears it, so that nobody is woken for it again.
			_, _ = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			return
		}
		dst, _ := getName(q.name[:min(q.message.Namelen, nameBytes)])
		if report, ok := parseError(q.control[:q.message.Controllen]); ok && dst.IsValid() {
			report.Addr = dst
			q.reports = append(q.reports, report)
		}
	}
}

// parseError reads struct sock_extended_err and the address behind it.
func parseError(control []byte) (netio.Unreachable, bool) {
	var report netio.Unreachable
	for len(control) >= unix.SizeofCmsghdr {
		hdr, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		control = rest
		isError := hdr.Level == unix.IPPROTO_IP && hdr.Type == unix.IP_RECVERR ||
			hdr.Level == unix.IPPROTO_IPV6 && hdr.Type == unix.IPV6_RECVERR
		if isError && len(data) >= 16 {
			return parseExtendedError(data)
		}
	}
	return report, false
}

func parseExtendedError(data []byte) (netio.Unreachable, bool) {
	origin, kind, code := data[4], data[5], data[6]
	var report netio.Unreachable
	switch {
	case origin == unix.SO_EE_ORIGIN_ICMP && kind == icmpUnreachable && code != icmpFragNeeded:
		report.NoPort = code == icmpPortUnreachable
	case origin == unix.SO_EE_ORIGIN_ICMP6 && kind == icmp6Unreachable:
		report.NoPort = code == icmp6PortUnreach
	default:
		// Path MTU reports, which the kernel remembers itself, and local errors, which Send saw.
		return report, false
	}
	if name := data[16:]; len(name) >= nameBytesIPv4 {
		report.Reporter, _ = getName(name)
		if report.Reporter.Is6() && len(name) >= nameBytes {
			report.Interface = binary.NativeEndian.Uint32(name[24:])
		}
	}
	if report.Reporter == (netip.Addr{}) || report.Reporter.IsUnspecified() {
		report.Reporter = netip.Addr{}
	}
	return report, true
}
