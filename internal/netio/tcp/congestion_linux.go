package tcp

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// plainCongestion is what every Linux has, and lets everybody choose.
	plainCongestion = "reno"
	// pacedCongestion begins the names of what sends by timers: bbr, bbr2, …
	pacedCongestion = "bbr"
	// shortPathDefault is the round trip from which on a path is none within a data centre.
	shortPathDefault = 2 * time.Millisecond
)

// leavePacing lets a socket that connects or listens begin without the timers by which BBR sends,
// where that is the host's congestion control (ADR 0030). It has to be before there is a
// connection, since the kernel never ends pacing again. It remembers what the host has.
func (p *Port) leavePacing(fd int) {
	if p.config.HostCongestion {
		return
	}
	name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil || !strings.HasPrefix(name, pacedCongestion) {
		return
	}
	if unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, plainCongestion) == nil {
		p.hostCongestion = name
	}
}

// settleCongestion gives a new connection what the host has for it, where its path is long.
func (p *Port) settleCongestion(fd int) {
	if p.hostCongestion == "" {
		return
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err == nil && time.Duration(info.Rtt)*time.Microsecond < p.config.ShortPath {
		return
	}
	err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, p.hostCongestion)
	if err == nil {
		p.counters.add(LongPaths, 1)
	}
}
