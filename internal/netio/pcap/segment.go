package pcap

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// segmentBytesMax is the payload of the longest segment in a file: a little less than an IPv4
// packet holds, and a multiple of what Ethernet carries. The kernel cuts it to what the path takes.
const segmentBytesMax = 45 * 1448

// segment is what the header of TCP says of a record.
type segment struct {
	src, dst netip.AddrPort
	seq, ack uint32
	flags    segmentFlags
}

// segmentFlags are bits of the header of TCP (RFC 9293 §3.1).
type segmentFlags uint8

// Flags.
const (
	flagFIN segmentFlags = 1 << iota
	flagSYN
	flagRST
	flagPSH
	flagACK
)

// windowShown is the window that made-up segments offer: the true ones are the kernel's.
const windowShown = 65535

// writeSegment adds a frame of TCP.
func (f *file) writeSegment(s *segment, payload []byte, at time.Time, way pcapgo.NgEpbFlag) error {
	src, dst := s.src.Addr().Unmap(), s.dst.Addr().Unmap()
	from, to := macOf(src), macOf(dst)
	ethernet := layers.Ethernet{SrcMAC: from[:], DstMAC: to[:], EthernetType: layers.EthernetTypeIPv4}
	tcp := layers.TCP{
		SrcPort: layers.TCPPort(s.src.Port()), DstPort: layers.TCPPort(s.dst.Port()),
		Seq: s.seq, Ack: s.ack, Window: windowShown,
		FIN: s.flags&flagFIN != 0, SYN: s.flags&flagSYN != 0, RST: s.flags&flagRST != 0,
		PSH: s.flags&flagPSH != 0, ACK: s.flags&flagACK != 0,
	}
	var ip gopacket.SerializableLayer
	if src.Is4() {
		v4 := &layers.IPv4{
			Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, Flags: layers.IPv4DontFragment,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
		}
		_ = tcp.SetNetworkLayerForChecksum(v4) // an IP layer is no error
		ip = v4
	} else {
		v6 := &layers.IPv6{
			Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
		}
		ethernet.EthernetType = layers.EthernetTypeIPv6
		_ = tcp.SetNetworkLayerForChecksum(v6)
		ip = v6
	}
	if f.serial == nil {
		f.serial = gopacket.NewSerializeBuffer()
	}
	err := gopacket.SerializeLayers(f.serial, gopacket.SerializeOptions{
		FixLengths: true, ComputeChecksums: true,
	}, &ethernet, ip, &tcp, gopacket.Payload(payload))
	if err != nil {
		return fmt.Errorf("pcap: make a segment of TCP: %w", err)
	}
	frame := f.serial.Bytes()
	info := gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(frame), Length: len(frame)}
	options := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: way}}
	return f.writer.WritePacketWithOptions(info, frame, options)
}
