package pcap

import (
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
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

	file    *file
	now     func() time.Time
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
	f, err := newFile(config.Writer, config.Device)
	if err != nil {
		return nil, err
	}
	return &Port{Port: below, file: f, now: config.Now}, nil
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
	if p.broken != nil || !canHold(&d.Path, len(payload)) {
		p.Counters().Add(netio.CaptureErrors, 1)
		return
	}
	p.check(p.file.write(d.Path, payload, at, way))
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

// Poll implements netio.Port: it hands what is buffered to the writer from time to time.
func (p *Port) Poll(now clock.Time) {
	p.Port.Poll(now)
	p.time = now
	if p.dirty && now.Sub(p.flushed) >= flushInterval {
		p.check(p.file.writer.Flush())
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
		if err := p.file.writer.Flush(); err != nil {
			p.check(err)
			_ = p.Port.Close()
			return fmt.Errorf("pcap: write the end of the capture file: %w", err)
		}
	}
	return p.Port.Close()
}
