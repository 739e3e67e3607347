package pcap

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// file writes packets with headers made to match. It buffers.
type file struct {
	writer *pcapgo.NgWriter
	frame  []byte // scratch: one frame
}

// newFile writes the head.
func newFile(out io.Writer, device string) (*file, error) {
	options := pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{Application: "SoftRNIC", OS: "Linux"},
	}
	writer, err := pcapgo.NewNgWriterInterface(out, pcapgo.NgInterface{
		Name:                device,
		LinkType:            layers.LinkTypeEthernet,
		TimestampResolution: 9, // 10^-9 s
	}, options)
	if err == nil {
		err = writer.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("pcap: write the head of the capture file: %w", err)
	}
	return &file{writer: writer}, nil
}

// canHold reports whether a UDP payload, ICRC included, can be a frame with these addresses.
func canHold(path *roce.Path, payload int) bool {
	return path.Src.IsValid() && path.Dst.IsValid() &&
		path.Src.Unmap().Is4() == path.Dst.Unmap().Is4() &&
		payload >= ib.BTHLen+roce.ICRCLen && payload <= roce.PayloadLenMax
}

// write adds a frame.
//
// Preconditions: canHold.
func (f *file) write(path roce.Path, payload []byte, at time.Time, way pcapgo.NgEpbFlag) error {
	src, dst := path.Src.Unmap(), path.Dst.Unmap()
	frame := roce.Frame{
		Ethernet: roce.Ethernet{Src: macOf(src), Dst: macOf(dst), Type: roce.EtherTypeIPv6},
		Path:     path,
		Payload:  payload,
	}
	if src.Is4() {
		frame.Ethernet.Type = roce.EtherTypeIPv4
	}
	frame.UDPChecksum = roce.UDPChecksum(&frame.Path, payload)
	f.frame = frame.Append(f.frame[:0])
	info := gopacket.CaptureInfo{
		Timestamp: at, CaptureLength: len(f.frame), Length: len(f.frame),
	}
	options := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: way}}
	return f.writer.WritePacketWithOptions(info, f.frame, options)
}

// macOf makes up the Ethernet address of a host.
func macOf(addr netip.Addr) roce.MAC {
	ip := addr.As16()
	return roce.MAC{2, 0, ip[12], ip[13], ip[14], ip[15]}
}
