package pcap

import (
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// flushInterval is how late somebody who follows the file sees a packet.
const flushInterval = 200 * time.Millisecond

// Config says what goes into the file.
type Config struct {
	Writer io.Writer
	// Now gives the time stamps; nil means time.Now.
	Now func() time.Time
	// Device is the name of the adapter, which the file shows as the interface's.
	Device string
}

// Port is a port that is watched. When the file can no longer be written, it goes on without.
type Port struct {
	netio.Port // the port below

	writer  *pcapgo.NgWriter
	now     func() time.Time
	frame   []byte // scratch: one frame
	payload []byte // scratch: one UDP payload
	broken  error  // why nothing is written any more
	notices []netio.Notice

	time    clock.Time // of the last Poll
	flushed clock.Time
	dirty   bool
}

var _ netio.Port = (*Port)(nil)

// New decorates a port and writes the head of the file.
func New(below netio.Port, config Config) (*Port, error) {
	if config.Now == nil {
		config.Now = time.Now
	}
	options := pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{Application: "SoftRNIC", OS: "Linux"},
	}
	writer, err := pcapgo.NewNgWriterInterface(config.Writer, pcapgo.NgInterface{
		Name:                config.Device,
		LinkType:            layers.LinkTypeEthernet,
		TimestampResolution: 9, // 10^-9 s
	}, options)
	if err == nil {
		err = writer.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("pcap: write the head of the capture file: %w", err)
	}
	return &Port{Port: below, writer: writer, now: config.Now}, nil
}

// Name implements netio.Port.
func (p *Port) Name() string { return "pcap(" + p.Port.Name() + ")" }

// Send implements netio.Port.
func (p *Port) Send(batch []netio.Datagram) (int, error) {
	sent, err := p.Port.Send(batch)
	if sent > 0 {
		at := p.now()
		for i := range batch[:sent] {
			p.sent(&batch[i], at)
		}
	}
	return sent, err
}

// sent writes a datagram that Send is done with: the port below has left the ICRC behind it.
func (p *Port) sent(d *netio.Datagram, at time.Time) {
	n := len(d.Buf)
	if cap(d.Buf)-n < netio.TrailerBytes {
		return // refused below: there is no packet
	}
	p.write(d, d.Buf[:n+netio.TrailerBytes], at, pcapgo.NgEpbFlagDirectionOutbound)
}

// Receive implements netio.Port.
func (p *Port) Receive(batch []netio.Datagram) (int, error) {
	n, err := p.Port.Receive(batch)
	if n > 0 {
		at := p.now()
		for i := range batch[:n] {
			d := &batch[i]
			p.payload = append(p.payload[:0], d.Buf...)
			p.payload = roce.AppendICRC(&d.Path, p.payload)
			p.write(d, p.payload, at, pcapgo.NgEpbFlagDirectionInbound)
		}
	}
	return n, err
}

func (p *Port) write(d *netio.Datagram, payload []byte, at time.Time, way pcapgo.NgEpbFlag) {
	src, dst := d.Path.Src.Unmap(), d.Path.Dst.Unmap()
	if p.broken != nil || !src.IsValid() || src.Is4() != dst.Is4() || !dst.IsValid() ||
		len(payload) < ib.BTHLen+roce.ICRCLen || len(payload) > roce.PayloadLenMax {
		p.Counters().Add(netio.CaptureErrors, 1)
		return
	}
	frame := roce.Frame{
		Ethernet: roce.Ethernet{Src: macOf(src), Dst: macOf(dst), Type: roce.EtherTypeIPv6},
		Path:     d.Path,
		Payload:  payload,
	}
	if src.Is4() {
		frame.Ethernet.Type = roce.EtherTypeIPv4
	}
	frame.UDPChecksum = roce.UDPChecksum(&frame.Path, payload)
	p.frame = frame.Append(p.frame[:0])
	info := gopacket.CaptureInfo{
		Timestamp: at, CaptureLength: len(p.frame), Length: len(p.frame),
	}
	options := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: way}}
	p.check(p.writer.WritePacketWithOptions(info, p.frame, options))
	p.dirty = true
}

// check ends the capture at the first failure: a file with a hole would mislead.
func (p *Port) check(err error) {
	if err == nil || p.broken != nil {
		return
	}
	p.broken = err
	p.Counters().Add(netio.CaptureErrors, 1)
	p.notices = append(p.notices, netio.Notice{Feature: netio.FeatureCapture, Cause: err})
}

// macOf makes up the Ethernet address of a host.
func macOf(addr netip.Addr) roce.MAC {
	ip := addr.As16()
	return roce.MAC{2, 0, ip[12], ip[13], ip[14], ip[15]}
}

// Poll implements netio.Port: it hands what is buffered to the writer from time to time.
func (p *Port) Poll(now clock.Time) {
	p.Port.Poll(now)
	p.time = now
	if p.dirty && now.Sub(p.flushed) >= flushInterval {
		p.check(p.writer.Flush())
		p.flushed, p.dirty = now, false
	}
}

// NextDeadline implements netio.Port.
func (p *Port) NextDeadline() clock.Time {
	if !p.dirty {
		return p.Port.NextDeadline()
	}
	return min(p.Port.NextDeadline(), p.flushed.Add(flushInterval))
}

// Notices implements netio.Port.
func (p *Port) Notices() []netio.Notice {
	notices := append(p.Port.Notices(), p.notices...)
	p.notices = nil
	return notices
}

// Close implements netio.Port. It writes what is buffered; the writer stays the caller's.
func (p *Port) Close() error {
	if p.broken == nil {
		if err := p.writer.Flush(); err != nil {
			p.check(err)
			_ = p.Port.Close()
			return fmt.Errorf("pcap: write the end of the capture file: %w", err)
		}
	}
	return p.Port.Close()
}
