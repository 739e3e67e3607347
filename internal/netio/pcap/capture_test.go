package pcap

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

var captureTime = time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC)

// sink is a writer that is read when the capture has closed it.
type sink struct {
	bytes.Buffer
	closed chan struct{}
}

func newSink() *sink { return &sink{closed: make(chan struct{})} }

func (s *sink) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func newTestCapture(out io.WriteCloser, change func(*CaptureConfig)) *Capture {
	config := CaptureConfig{
		Writer: out, Device: "rnic0", Now: func() time.Time { return captureTime },
	}
	if change != nil {
		change(&config)
	}
	return NewCapture(config)
}

// large is a packet between queue pairs of one NIC, longer than any on a wire.
func large(payload int) (*roce.Path, *ib.Headers, []byte) {
	h := &ib.Headers{BTH: ib.BTH{
		Opcode: ib.RCSendOnly, MigReq: true, PKey: rdma.PKeyDefault, DestQPN: 18, PSN: 6,
		PadCount: ib.PadCount(payload),
	}}
	path := &roce.Path{
		Src: pairs[0][0], Dst: pairs[0][0], SrcPort: 0xc123, HopLimit: 64, DF: true,
	}
	return path, h, make([]byte, payload)
}

// recordAll captures two datagrams each way and a local packet.
func recordAll(t *testing.T, change func(*CaptureConfig)) (file []byte, taken, dropped uint64) {
	t.Helper()
	var taps Taps
	below1, below2 := openPair(t)
	a, b := NewTap(below1, &taps, false), NewTap(below2, &taps, false)
	batch := make([]netio.Datagram, 16)
	pass := func() {
		if n, err := a.Send(traffic()[:2]); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := b.Receive(batch); n != 2 || err != nil {
			t.Fatal(n, err)
		}
	}
	pass() // nobody listens
	out := newSink()
	c := newTestCapture(out, change)
	taps.Add(c)
	pass()
	if taps.IsOn() {
		taps.Local(large(32<<10 - 1))
	}
	taken, dropped = c.End()
	taps.Remove(c)
	pass() // nobody listens any more
	<-out.closed
	c.Close()
	return out.Bytes(), taken, dropped
}

func TestCapture_WhileItRuns_HasEveryPacketWithRightICRC(t *testing.T) {
	file, taken, dropped := recordAll(t, nil)
	list := frames(t, file)
	if len(list) != 5 || taken != 5 || dropped != 0 {
		t.Fatalf("%d frames; %d taken, %d dropped", len(list), taken, dropped)
	}
	for i := range list {
		if v := roce.CheckICRC(&list[i].Path, list[i].Payload); v != roce.Good {
			t.Errorf("frame %d: ICRC %v", i, v)
		}
		if list[i].UDPChecksum != roce.UDPChecksum(&list[i].Path, list[i].Payload) {
			t.Errorf("frame %d: UDP checksum", i)
		}
	}
	if n := len(list[4].Packet().Payload()); n != 32<<10-1 {
		t.Errorf("the local packet has %d bytes of payload", n)
	}
}

func TestCapture_EndOfFile_TellsHowManyWereDropped(t *testing.T) {
	file, taken, dropped := recordAll(t, func(c *CaptureConfig) { c.Bytes = 32 << 10 })
	if taken != 4 || dropped != 1 { // the large one finds no room
		t.Fatalf("%d taken, %d dropped", taken, dropped)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, _, err = r.ReadPacketData()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	i, err := r.Interface(0)
	if err != nil {
		t.Fatal(err)
	}
	if s := i.Statistics; i.Name != "rnic0" || s.PacketsReceived != 5 || s.PacketsDropped != 1 {
		t.Errorf("interface %q: %+v", i.Name, s)
	}
}

func TestCapture_Count_EndsByItself(t *testing.T) {
	file, taken, dropped := recordAll(t, func(c *CaptureConfig) { c.Count = 3 })
	if n := len(frames(t, file)); n != 3 || taken != 3 || dropped != 0 {
		t.Errorf("%d frames; %d taken, %d dropped", n, taken, dropped)
	}
}

func TestCapture_Filter_TakesWhatIsWanted(t *testing.T) {
	file, _, _ := recordAll(t, func(c *CaptureConfig) {
		c.Filter = FilterAddress(netip.MustParseAddr("::ffff:192.0.2.2"))
	})
	if n := len(frames(t, file)); n != 4 {
		t.Errorf("%d frames", n)
	}
	file, _, _ = recordAll(t, func(c *CaptureConfig) {
		c.Filter = FilterAddress(netip.MustParseAddr("2001:db8::77"))
	})
	if n := len(frames(t, file)); n != 0 {
		t.Errorf("%d frames of another host", n)
	}
}

// A reader that does not read must cost nothing but packets, and Close must not wait for it.
func TestCapture_ReaderSleeps_TapDropsAndGoesOn(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	var taps Taps
	c := newTestCapture(write, func(c *CaptureConfig) { c.Bytes = 256 << 10 })
	taps.Add(c)
	path, h, payload := large(32 << 10)
	for range 1000 {
		taps.Local(path, h, payload)
	}
	c.Close()
	taken, dropped := c.End()
	if taken+dropped != 1000 || dropped < 900 || taken < 7 {
		t.Errorf("%d taken, %d dropped", taken, dropped)
	}
	taps.Local(path, h, payload)
	if taps.IsOn() {
		t.Error("a capture that has ended is still fed")
	}
}

func TestCapture_ReaderGone_Ends(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	var taps Taps
	c := newTestCapture(write, nil)
	taps.Add(c)
	<-c.done
	taps.Local(large(8))
	if taps.IsOn() {
		t.Error("a capture without a reader is still fed")
	}
}

func TestTap_NoCapture_AllocatesNothing(t *testing.T) {
	below, _ := openPair(t)
	var taps Taps
	port := NewTap(below, &taps, false)
	batch := []netio.Datagram{sendOnly(pairs[0][0], netip.MustParseAddr("192.0.2.9"), "x", 0)}
	in := make([]netio.Datagram, 4)
	cost := func(p netio.Port) float64 {
		return testing.AllocsPerRun(100, func() { _, _ = p.Send(batch); _, _ = p.Receive(in) })
	}
	if with, without := cost(port), cost(below); with != without {
		t.Errorf("%v allocations, %v without the tap", with, without)
	}
	if port.Name() != below.Name() {
		t.Errorf("the tap shows in the name %q", port.Name())
	}
}

func TestTap_PortThatHearsItself_OnePacketOnce(t *testing.T) {
	var taps Taps
	below1, below2 := openPair(t)
	a, b := NewTap(below1, &taps, true), NewTap(below2, &taps, true)
	out := newSink()
	c := newTestCapture(out, nil)
	taps.Add(c)
	if _, err := a.Send(traffic()[:1]); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Receive(make([]netio.Datagram, 4)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if taken, _ := c.End(); taken != 1 {
		t.Errorf("%d packets", taken)
	}
	c.Close()
}

func TestCapture_ReadByTshark_NoComplaintAboutLongPackets(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	file, _, _ := recordAll(t, nil)
	name := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(tshark, append([]string{
			"-r", name, "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
			"--disable-protocol", "rpcordma",
		}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if text := run("-Y", "infiniband"); strings.Count(text, "\n") != 5 {
		t.Errorf("tshark sees\n%s", text)
	}
	wrong := "_ws.malformed || udp.checksum.status == 0 || ip.checksum.status == 0"
	if text := run("-Y", wrong); text != "" {
		t.Errorf("tshark complains about\n%s", text)
	}
}
