package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/bench"
)

const (
	// segmentedFrom is the length from which datagrams go many at a time, as packets of bulk data
	// do, with a checksum each if that is wanted; shorter ones go one by one.
	segmentedFrom = 512
	checksumBytes = 4
	// burstBytes and burstSegments bound what the kernel takes as one send (UDP_MAX_SEGMENTS).
	burstBytes    = 65000
	burstSegments = 64
	// windowBursts are under way at first: a socket of an ordinary user holds few.
	windowBursts = 4
	bufferBytes  = 8 << 20 // the kernel gives what it allows
	quiet        = 50 * time.Millisecond
	answerBytes  = 8
)

// burst is how many datagrams of a length go at once.
func burst(segment int) int {
	if segment < segmentedFrom {
		return 1
	}
	return min(burstBytes/segment, burstSegments)
}

// udpTotals is what a receiver found.
type udpTotals struct {
	Datagrams, Bytes, Damaged uint64
	Nanoseconds               int64
}

// serveUDP receives until its client has said that this was all, and tells what came.
func serveUDP(_ context.Context, args []string) (bench.Sample, error) {
	var segment, count, checks int
	address, err := pairNumbers(args, &segment, &count, &checks)
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	fd, err := udpSocket(at)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		return nil, fmt.Errorf("bind %v: %w", at, err)
	}
	if segment >= segmentedFrom {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1); err != nil {
			return nil, bench.Missing("the kernel has no UDP_GRO: %w", err)
		}
	}
	control, err := acceptOne(address)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	var isOver atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, control)
		isOver.Store(true)
	}()
	totals, err := receiveAll(fd, segment, checks > 0, &isOver)
	if err != nil {
		return nil, err
	}
	return nil, binary.Write(control, binary.BigEndian, totals)
}

// receiveAll counts datagrams, and acknowledges what is segmented.
func receiveAll(fd, segment int, hasChecks bool, isOver *atomic.Bool) (t udpTotals, err error) {
	buffer, control := make([]byte, 1<<17), make([]byte, unix.CmsgSpace(4))
	var first, last time.Time
	for {
		n, _, _, from, err := unix.Recvmsg(fd, buffer, control, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			if isOver.Load() {
				break
			}
			continue
		}
		if err != nil {
			return t, fmt.Errorf("recvmsg: %w", err)
		}
		last = time.Now()
		if first.IsZero() {
			first = last
		}
		if segment < segmentedFrom {
			t.Datagrams++
			t.Bytes += uint64(n)
			continue
		}
		if hasChecks {
			t.check(buffer[:n], segment)
		} else {
			t.Datagrams += uint64((n + segment - 1) / segment)
			t.Bytes += uint64(n)
		}
		var answer [answerBytes]byte
		binary.BigEndian.PutUint64(answer[:], t.Bytes)
		_ = unix.Sendto(fd, answer[:], 0, from) // the sender goes on after a while without
	}
	t.Nanoseconds = last.Sub(first).Nanoseconds()
	return t, nil
}

// check looks at the checksum of each of the datagrams that came as one.
func (t *udpTotals) check(b []byte, segment int) {
	for len(b) > checksumBytes {
		piece := b[:min(segment, len(b))]
		b = b[len(piece):]
		body := piece[:len(piece)-checksumBytes]
		if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(piece[len(body):]) {
			t.Damaged++
			continue
		}
		t.Datagrams++
		t.Bytes += uint64(len(piece))
	}
}

// sendUDP sends so many datagrams as fast as it can.
func sendUDP(_ context.Context, args []string) (bench.Sample, error) {
	var segment, count, checks int
	address, err := pairNumbers(args, &segment, &count, &checks)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	control, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := udpSocket(to)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(to)); err != nil {
		return nil, fmt.Errorf("connect to %v: %w", to, err)
	}
	if segment >= segmentedFrom {
		err = sendBursts(fd, segment, count, checks > 0)
	} else {
		err = sendSingly(fd, segment, count)
	}
	if err != nil {
		return nil, err
	}
	if err := control.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, err
	}
	var t udpTotals
	if err := binary.Read(control, binary.BigEndian, &t); err != nil {
		return nil, fmt.Errorf("read what came: %w", err)
	}
	if t.Damaged > 0 || t.Nanoseconds <= 0 {
		return nil, fmt.Errorf("%d datagrams came, %d of them damaged", t.Datagrams, t.Damaged)
	}
	return bench.Sample{
		bench.Bandwidth: float64(t.Bytes) / float64(t.Nanoseconds),
		bench.Rate:      float64(t.Datagrams) * 1e3 / float64(t.Nanoseconds),
		bench.CPUCost:   float64(t.Bytes) / 1e9,
	}, nil
}

// sendBursts computes the checksums, if they are wanted, and sends, with a few bursts under way.
func sendBursts(fd, segment, count int, hasChecks bool) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment); err != nil {
		return bench.Missing("the kernel has no UDP_SEGMENT: %w", err)
	}
	buffer := make([]byte, burst(segment)*segment)
	var sent, acknowledged, lost uint64
	window := uint64(windowBursts * len(buffer))
	for done := 0; done < count; done += burst(segment) {
		if hasChecks {
			sign(buffer, segment, sent)
		}
		if err := sendWhole(fd, buffer); err != nil {
			return err
		}
		sent += uint64(len(buffer))
		for sent-acknowledged-lost > window {
			n, err := receiveAnswer(fd)
			switch {
			case err != nil:
				return err
			case n > 0:
				acknowledged = max(acknowledged, n)
			default: // something was lost, for the receiver's socket holds less
				lost = sent - acknowledged
				window = max(window/2, uint64(len(buffer)))
			}
		}
	}
	return nil
}

// receiveAnswer returns how many bytes the receiver has, or 0 when it says nothing for a while.
func receiveAnswer(fd int) (uint64, error) {
	for {
		var answer [answerBytes]byte
		n, _, err := unix.Recvfrom(fd, answer[:], 0)
		switch {
		case err == nil && n == answerBytes:
			return binary.BigEndian.Uint64(answer[:]), nil
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, fmt.Errorf("recvfrom: %w", err)
		}
	}
}

// sign changes each datagram of a burst, so that no two are alike, and ends it with its checksum.
func sign(buffer []byte, segment int, from uint64) {
	for at := 0; at < len(buffer); at += segment {
		body := buffer[at : at+segment-checksumBytes]
		binary.LittleEndian.PutUint64(body, from+uint64(at))
		binary.LittleEndian.PutUint32(buffer[at+len(body):], crc32.ChecksumIEEE(body))
	}
}

// sendSingly sends without looking back. What the receiver cannot take is lost, and not counted.
func sendSingly(fd, segment, count int) error {
	buffer := make([]byte, segment)
	for range count {
		if err := sendWhole(fd, buffer); err != nil {
			return err
		}
	}
	return nil
}

func sendWhole(fd int, b []byte) error {
	for {
		_, err := unix.Write(fd, b)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// udpSocket makes a socket with large buffers that does not wait for ever.
func udpSocket(at netip.AddrPort) (int, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferBytes)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, bufferBytes)
	timeout := unix.NsecToTimeval(quiet.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bound the time of receiving: %w", err)
	}
	return fd, nil
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}
