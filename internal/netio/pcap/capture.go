package pcap

import (
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/netio/tcp"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// Way is which way a packet goes, as the file shows it.
type Way uint8

// Ways. A packet between queue pairs of one NIC is outbound.
const (
	Outbound Way = iota
	Inbound
)

func (w Way) flag() pcapgo.NgEpbFlag {
	if w == Inbound {
		return pcapgo.NgEpbFlagDirectionInbound
	}
	return pcapgo.NgEpbFlagDirectionOutbound
}

// CaptureConfig says what a capture takes and where it goes.
type CaptureConfig struct {
	// Writer takes the file. It is closed at the end; its Close must end a Write that waits.
	Writer io.WriteCloser
	// Device is the name of the adapter, which the file shows as the interface's.
	Device string
	// Filter says whether a packet is wanted; head is at least its headers, legal or not. Nil
	// wants them all. It runs on the thread that owns the port.
	Filter func(path *roce.Path, head ib.Packet) bool
	// Stream says whether a connection of TCP is wanted. Nil wants them all. It runs on that thread
	// as well.
	Stream func(f *tcp.Flow) bool
	// Count ends the capture after so many packets; 0 is without end.
	Count uint64
	// Bytes bounds what waits to be written, by default 8 MiB. What does not fit is dropped.
	Bytes int
	// Now gives the time stamps; nil means time.Now.
	Now func() time.Time
}

const (
	captureBytesDefault = 8 << 20
	// recordBytes is what a packet takes beside its bytes.
	recordBytes = 128
)

// Capture takes packets from the thread that owns a port and writes them on a goroutine of its
// own, so that the thread never waits for a file: when writing cannot keep up, packets are
// dropped and counted.
type Capture struct {
	config CaptureConfig
	wake   chan struct{} // holds one
	done   chan struct{}

	// Of the thread that owns the port.
	flows   map[tuple]*flow
	scratch []byte
	sealed  []byte

	mu      sync.Mutex // guards the fields below
	filling store
	taken   uint64
	dropped uint64
	ended   bool
}

// store is packets that wait.
type store struct {
	records []record
	bytes   []byte
}

// record is one packet; its bytes end at end and begin where those before it end.
type record struct {
	path   roce.Path
	at     time.Time
	end    int
	way    Way
	sealed bool // the bytes end with the ICRC
	// segment is nil but for TCP, whose records have no path.
	segment *segment
}

// NewCapture starts a capture, which takes over the writer.
func NewCapture(config CaptureConfig) *Capture {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Bytes <= 0 {
		config.Bytes = captureBytesDefault
	}
	c := &Capture{config: config, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go c.run()
	return c
}

// packet is one packet in pieces.
type packet struct {
	path    *roce.Path
	head    []byte
	rest    []byte
	pad     []byte
	way     Way
	sealed  bool
	segment *segment
}

func (p *packet) len() int { return len(p.head) + len(p.rest) + len(p.pad) }

// offer takes a copy of a packet, unless it is not wanted or there is no room. It reports whether
// the capture goes on.
func (c *Capture) offer(p *packet) bool {
	if c.config.Filter != nil && !c.config.Filter(p.path, p.head) {
		return true
	}
	c.take(p)
	return !c.hasEnded()
}

// take takes a copy of a packet, and reports whether there was room.
func (c *Capture) take(p *packet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	f := &c.filling
	room := c.config.Bytes - len(f.bytes) - recordBytes*len(f.records)
	if p.len()+recordBytes > room {
		c.dropped++
		return false
	}
	f.bytes = append(append(append(f.bytes, p.head...), p.rest...), p.pad...)
	r := record{
		at: c.config.Now(), end: len(f.bytes), way: p.way, sealed: p.sealed, segment: p.segment,
	}
	if p.path != nil {
		r.path = *p.path
	}
	f.records = append(f.records, r)
	c.taken++
	c.ended = c.taken == c.config.Count
	if len(f.records) == 1 || c.ended {
		c.poke()
	}
	return true
}

func (c *Capture) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

func (c *Capture) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// End lets the capture take no more; what waits is written still. It returns how many packets were
// taken and how many dropped for want of room.
func (c *Capture) End() (taken, dropped uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.poke()
	return c.taken, c.dropped
}

// Close ends the capture at once, also when nobody reads what is written, and waits for that.
func (c *Capture) Close() {
	c.End()
	_ = c.config.Writer.Close()
	<-c.done
}

// run writes until the end, or until the writer fails: then its reader has gone.
func (c *Capture) run() {
	defer close(c.done)
	defer c.End()
	defer func() { _ = c.config.Writer.Close() }()
	begin := c.config.Now()
	f, err := newFile(c.config.Writer, c.config.Device)
	if err != nil {
		return
	}
	var draining store
	var scratch []byte
	for range c.wake {
		c.mu.Lock()
		draining, c.filling = c.filling, store{draining.records[:0], draining.bytes[:0]}
		ended, taken, dropped := c.ended, c.taken, c.dropped
		c.mu.Unlock()
		if scratch, err = f.drain(&draining, scratch); err != nil {
			return
		}
		if ended {
			_ = f.writer.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
				LastUpdate: c.config.Now(), StartTime: begin, EndTime: c.config.Now(),
				PacketsReceived: taken + dropped, PacketsDropped: dropped,
			})
			_ = f.writer.Flush()
			return
		}
	}
}

// drain writes packets and returns its scratch buffer. Those without an ICRC get one.
func (f *file) drain(s *store, scratch []byte) ([]byte, error) {
	begin := 0
	for i := range s.records {
		r := &s.records[i]
		payload := s.bytes[begin:r.end]
		begin = r.end
		if r.segment != nil {
			if err := f.writeSegment(r.segment, payload, r.at, r.way.flag()); err != nil {
				return scratch, err
			}
			continue
		}
		if !r.sealed {
			scratch = append(scratch[:0], payload...)
			scratch = roce.AppendICRC(&r.path, scratch)
			payload = scratch
		}
		if err := f.write(r.path, payload, r.at, r.way.flag()); err != nil {
			return scratch, err
		}
	}
	return scratch, f.writer.Flush()
}

// FilterAddress wants packets from or to an address.
func FilterAddress(addr netip.Addr) func(path *roce.Path, head ib.Packet) bool {
	addr = addr.Unmap().WithZone("")
	return func(path *roce.Path, _ ib.Packet) bool {
		return path.Src.Unmap().WithZone("") == addr || path.Dst.Unmap().WithZone("") == addr
	}
}
