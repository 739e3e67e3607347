package roce

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/wire/ib"
)

// Frame is a whole RoCE v2 packet as captures and frame ports hold it.
type Frame struct {
	Ethernet Ethernet
	Path     Path
	// UDPChecksum is the UDP checksum as it is on the wire; 0 means that there is none.
	UDPChecksum uint16
	// Payload is the UDP payload: BTH to ICRC. Parsing borrows it from the frame's bytes.
	Payload []byte
}

// ParseFrame reads an Ethernet II frame with at most one 802.1Q tag. What follows the IP packet is
// Ethernet padding and ignored. Checksums are not checked: a capture of an outgoing packet may not
// have them yet, and the ICRC is the stronger witness.
//
// It refuses what is not RoCE v2 with one of the package's sentinels.
func ParseFrame(b []byte) (Frame, error) {
	var f Frame
	var err error
	f.Ethernet, b, err = ParseEthernet(b)
	if err != nil {
		return f, err
	}
	datagram, err := f.parseIP(b)
	if err != nil {
		return f, err
	}
	udp := UDPView(datagram)
	switch {
	case !udp.IsComplete():
		return f, ErrTruncated
	case udp.DstPort() != Port:
		return f, ErrNotRoCE
	case udp.Len() != len(datagram):
		return f, ErrLength
	}
	f.Path.SrcPort = udp.SrcPort()
	f.UDPChecksum = udp.Checksum()
	f.Payload = datagram[UDPLen:]
	return f, nil
}

// parseIP reads the IP header into f.Path and returns its payload.
func (f *Frame) parseIP(b []byte) ([]byte, error) {
	switch f.Ethernet.Type {
	case EtherTypeIPv4:
		v := IPv4View(b)
		datagram, err := v.check()
		if err != nil {
			return nil, err
		}
		f.Path = Path{
			Src: v.Src(), Dst: v.Dst(), TrafficClass: v.TOS(), HopLimit: v.TTL(),
			IPID: v.ID(), DF: v.DF(),
		}
		return datagram, nil
	case EtherTypeIPv6:
		v := IPv6View(b)
		datagram, err := v.check()
		if err != nil {
			return nil, err
		}
		f.Path = Path{
			Src: v.Src(), Dst: v.Dst(), TrafficClass: v.TrafficClass(),
			HopLimit: v.HopLimit(), FlowLabel: v.FlowLabel(),
		}
		return datagram, nil
	}
	return nil, ErrNotRoCE
}

// Len returns the bytes that Append appends.
func (f *Frame) Len() int {
	n := f.Ethernet.Len() + UDPLen + len(f.Payload)
	if f.Ethernet.Type == EtherTypeIPv6 {
		return n + IPv6Len
	}
	return n + IPv4Len
}

// Append appends the frame to b, without Ethernet padding or frame check sequence: those are the
// port's. Ethernet.Type decides between IPv4 and IPv6 and must agree with the addresses of Path.
func (f *Frame) Append(b []byte) []byte {
	b = f.Ethernet.Append(b)
	if f.Ethernet.Type == EtherTypeIPv6 {
		b = AppendIPv6(b, &f.Path, len(f.Payload))
	} else {
		b = AppendIPv4(b, &f.Path, len(f.Payload))
	}
	b = AppendUDP(b, &f.Path, len(f.Payload), f.UDPChecksum)
	return append(b, f.Payload...)
}

// Packet returns the transport packet without its ICRC.
func (f *Frame) Packet() ib.Packet {
	return ib.Packet(f.Payload[:max(len(f.Payload)-ICRCLen, 0)])
}

// String prints the frame in one line, with the verdict on its ICRC.
func (f *Frame) String() string {
	return fmt.Sprintf("%s %s icrc=%s", f.Path, f.Packet(), CheckICRC(&f.Path, f.Payload))
}
