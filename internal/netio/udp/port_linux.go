package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// Config says how to open a port. The zero value is right outside tests.
type Config struct {
	UDPPort     uint16 // to receive on and to send to; 0 means 4791
	SourcePorts int    // per IP version; 0 means sourcePortsDefault
	// MulticastLoop makes the kernel hand multicast that this port sends back to it. A NIC
	// copies multicast between its own queue pairs itself and leaves it off.
	MulticastLoop bool
	DisableGSO    bool
	DisableGRO    bool
}

const (
	// sourcePortsDefault is enough to spread over the members of a link aggregate.
	sourcePortsDefault = 8
	// sourcePortsMax bounds the descriptors that a port takes.
	sourcePortsMax = 64
)

// family is the half of a port that speaks one IP version.
type family struct {
	v6      bool
	receive receiver
	senders []sender // one per source port
}

// sender is a socket that only sends.
type sender struct {
	fd   int
	port uint16
}

// Port implements netio.Port.
type Port struct {
	config   Config
	families []*family // those that the kernel supports, IPv4 first
	v4, v6   *family   // nil when absent
	out      outgoing
	errors   errorQueue
	features netio.Features
	counters netio.Counters
	notices  []netio.Notice // not yet fetched
	fds      []int
	turn     int       // which family Receive asks first, so that neither starves the other
	busy     *receiver // that had something last; nil before there was anything
	closed   bool
}

var _ netio.Port = (*Port)(nil)

// Open opens the port in the network namespace of the calling thread. It returns an error that
// is netio.ErrPortTaken when another NIC has UDP port 4791.
func Open(config Config) (*Port, error) {
	config = config.withDefaults()
	p := &Port{config: config}
	for _, v6 := range []bool{false, true} {
		f, err := p.openFamily(v6)
		if isUnsupported(err) {
			p.notice(familyFeature(v6), err)
			continue
		}
		if err != nil {
			_ = p.Close()
			return nil, err
		}
		p.families = append(p.families, f)
		if v6 {
			p.v6 = f
		} else {
			p.v4 = f
		}
	}
	if len(p.families) == 0 {
		return nil, fmt.Errorf("udp: neither IPv4 nor IPv6 sockets can be opened here: %w",
			unix.EAFNOSUPPORT)
	}
	p.probe()
	p.out.init()
	p.errors.init(p.families)
	for _, f := range p.families {
		f.receive.init(f.v6, p.features.CoalesceRecv)
		p.fds = append(p.fds, f.receive.fd)
		for _, s := range f.senders {
			p.fds = append(p.fds, s.fd)
		}
	}
	return p, nil
}

func (c Config) withDefaults() Config {
	if c.UDPPort == 0 {
		c.UDPPort = roce.Port
	}
	if c.SourcePorts <= 0 {
		c.SourcePorts = sourcePortsDefault
	}
	c.SourcePorts = min(c.SourcePorts, sourcePortsMax)
	c.DisableGSO = c.DisableGSO || os.Getenv("RNIC_DISABLE_GSO") == "1"
	c.DisableGRO = c.DisableGRO || os.Getenv("RNIC_DISABLE_GRO") == "1"
	return c
}

func familyFeature(v6 bool) netio.Feature {
	if v6 {
		return netio.FeatureIPv6
	}
	return netio.FeatureIPv4
}

// errDisabled is the cause of a notice about what the user has turned off.
var errDisabled = errors.New("disabled by the user")

// probe finds out which offloads the kernel has. The sockets of both families get the same
// answer, for the code that provides them is the same.
func (p *Port) probe() {
	p.features.IPv4, p.features.IPv6 = p.v4 != nil, p.v6 != nil
	p.features.SourcePorts = p.config.SourcePorts
	p.features.SegmentSend = true
	p.features.CoalesceRecv = true
	if p.config.DisableGSO {
		p.disableGSO(fmt.Errorf("%w (RNIC_DISABLE_GSO)", errDisabled))
	} else if _, err := unix.GetsockoptInt(
		p.families[0].senders[0].fd, unix.SOL_UDP, unix.UDP_SEGMENT); err != nil {
		p.disableGSO(fmt.Errorf("probe of the socket option: %w", err))
	}
	if p.config.DisableGRO {
		p.features.CoalesceRecv = false
		p.notice(netio.FeatureCoalesceRecv, fmt.Errorf("%w (RNIC_DISABLE_GRO)", errDisabled))
	}
	for _, f := range p.families {
		if !p.features.CoalesceRecv {
			break
		}
		err := unix.SetsockoptInt(f.receive.fd, unix.SOL_UDP, unix.UDP_GRO, 1)
		if err != nil {
			p.features.CoalesceRecv = false
			p.notice(netio.FeatureCoalesceRecv, fmt.Errorf("set the socket option: %w", err))
		}
	}
	p.features.ReceiveBuffer = bufferSize(p.families[0].receive.fd, unix.SO_RCVBUF)
	p.features.SendBuffer = bufferSize(p.families[0].senders[0].fd, unix.SO_SNDBUF)
}

func (p *Port) disableGSO(cause error) {
	if p.features.SegmentSend {
		p.features.SegmentSend = false
		p.notice(netio.FeatureSegmentSend, cause)
	}
}

func (p *Port) notice(feature netio.Feature, cause error) {
	p.notices = append(p.notices, netio.Notice{Feature: feature, Cause: cause})
}

// Name implements netio.Port.
func (p *Port) Name() string { return "udp" }

// Poll implements netio.Port. Sockets hold nothing back.
func (p *Port) Poll(clock.Time) {}

// NextDeadline implements netio.Port.
func (p *Port) NextDeadline() clock.Time { return clock.Never }

// FDs implements netio.Port.
func (p *Port) FDs() []int { return p.fds }

// Features implements netio.Port.
func (p *Port) Features() netio.Features { return p.features }

// Counters implements netio.Port.
func (p *Port) Counters() *netio.Counters { return &p.counters }

// Notices implements netio.Port.
func (p *Port) Notices() []netio.Notice {
	notices := p.notices
	p.notices = nil
	return notices
}

// Close implements netio.Port.
func (p *Port) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	for _, f := range p.families {
		err = errors.Join(err, f.close())
	}
	return err
}

func (f *family) close() error {
	err := unix.Close(f.receive.fd)
	for _, s := range f.senders {
		err = errors.Join(err, unix.Close(s.fd))
	}
	return err
}

// JoinGroup implements netio.Port.
func (p *Port) JoinGroup(group netip.Addr, ifindex int) error {
	return p.changeGroup(group, ifindex, true)
}

// LeaveGroup implements netio.Port.
func (p *Port) LeaveGroup(group netip.Addr, ifindex int) error {
	return p.changeGroup(group, ifindex, false)
}
