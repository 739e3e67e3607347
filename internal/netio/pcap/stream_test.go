package pcap

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/softrnic/softrnic/internal/netio/tcp"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// conversation is an iWARP connection with a tap at both ends or at one.
type conversation struct {
	taps         Taps
	client       tcp.Flow
	server       tcp.Flow
	both         bool
	clientSends  uint32
	serverSends  uint32
	bytesToSplit int // 0: each FPDU is one piece
}

func converse(local, remote string, both bool) *conversation {
	a, b := netip.MustParseAddrPort(local), netip.MustParseAddrPort(remote)
	return &conversation{
		client: tcp.Flow{ID: 1, Local: a, Remote: b, Active: true, Twin: both, TwinID: 2},
		server: tcp.Flow{ID: 2, Local: b, Remote: a, Twin: both, TwinID: 1},
		both:   both,
	}
}

// send lets bytes pass, in pieces, as a port shows them.
func (c *conversation) send(fromClient bool, b []byte) {
	step := len(b)
	if c.bytesToSplit > 0 {
		step = c.bytesToSplit
	}
	from, to := &c.client, &c.server
	if !fromClient {
		from, to = to, from
	}
	s := c.taps.Streams()
	for len(b) > 0 {
		part := b[:min(step, len(b))]
		b = b[len(part):]
		pieces := [][]byte{part[:len(part)/2], part[len(part)/2:], []byte("more")}
		if (fromClient || c.both) && s.IsOn() {
			s.StreamSent(from, pieces, len(part))
		}
		remember(&from.FirstSent, from.Sent, part)
		from.Sent += uint64(len(part))
		if (!fromClient || c.both) && s.IsOn() {
			s.StreamReceived(to, [][]byte{part}, len(part))
		}
		remember(&to.FirstReceived, to.Received, part)
		to.Received += uint64(len(part))
	}
}

func remember(first *[tcp.FirstBytes]byte, done uint64, b []byte) {
	if done < tcp.FirstBytes {
		copy(first[done:], b)
	}
}

func (c *conversation) open() {
	s := c.taps.Streams()
	if c.both {
		s.StreamOpened(&c.server)
	}
	s.StreamOpened(&c.client)
}

func (c *conversation) greet() {
	request := iwarp.Frame{
		Revision: 2, Enhanced: true, PrivateData: []byte("private data"),
	}
	c.send(true, request.Append(nil))
	request.IsReply = true
	c.send(false, request.Append(nil))
}

// message sends an RDMAP message in FPDUs of at most 1024 bytes of payload, handed over at once.
func (c *conversation) message(fromClient bool, op iwarp.Opcode, size int) {
	msn := &c.clientSends
	if !fromClient {
		msn = &c.serverSends
	}
	*msn++
	var out []byte
	for done := 0; done < size; {
		n := min(1024, size-done)
		h := iwarp.Header{
			Opcode: op, Last: done+n == size, STag: 0x1234, TO: uint64(0x10000 + done),
			MSN: *msn, MO: uint32(done),
		}
		ulpdu := h.Append(nil)
		ulpdu = append(ulpdu, bytes.Repeat([]byte{0x41}, n)...)
		begin := len(out)
		out = iwarp.AppendULPDULen(out, len(ulpdu))
		out = append(out, ulpdu...)
		out = iwarp.AppendPad(out, iwarp.PadLen(len(ulpdu)))
		out = iwarp.AppendCRC(out, iwarp.UpdateCRC(0, out[begin:]))
		done += n
	}
	c.send(fromClient, out)
}

func (c *conversation) end() {
	s := c.taps.Streams()
	s.StreamEnded(&c.client, tcp.EndSent)
	s.StreamEnded(&c.server, tcp.EndReceived)
	s.StreamEnded(&c.client, tcp.EndReceived)
	if c.both {
		s.StreamEnded(&c.server, tcp.EndSent)
	}
}

// seen lets tshark, which we did not write, tell what is in a file.
func seen(t *testing.T, file []byte, fields ...string) []string {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	name := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-r", name, "--disable-protocol", "rpcordma", "--disable-protocol", "nvme-tcp",
		"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields",
	}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command(tshark, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}

var streamAddresses = [][2]string{
	{"10.0.0.1:40000", "10.0.0.2:18515"},
	{"[fd00::1]:40000", "[fd00::2]:18515"},
}

func TestStreams_WholeConnection_TsharkDecodesIt(t *testing.T) {
	for _, addresses := range streamAddresses {
		for _, both := range []bool{false, true} {
			for _, split := range []int{0, 1000, 7} {
				if both && split > 0 {
					continue // a run of tshark takes its time
				}
				name := fmt.Sprintf("%s both=%v split=%d", addresses[0], both, split)
				t.Run(name, func(t *testing.T) { judgeWhole(t, addresses, both, split) })
			}
		}
	}
}

func judgeWhole(t *testing.T, addresses [2]string, both bool, split int) {
	c := converse(addresses[0], addresses[1], both)
	c.bytesToSplit = split
	out := newSink()
	capture := newTestCapture(out, nil)
	c.taps.Add(capture)
	c.open()
	c.greet()
	c.bytesToSplit = max(split, min(split, 1)*1000) // tshark wants a header in a segment
	c.message(true, iwarp.OpcodeSend, 3000)
	c.message(true, iwarp.OpcodeWrite, 150_000)
	c.message(false, iwarp.OpcodeSendSolicited, 16)
	c.end()
	if len(capture.flows) != 0 {
		t.Errorf("%d connections are remembered after their end", len(capture.flows))
	}
	capture.End()
	<-out.closed
	lines := seen(t, out.Bytes(), "tcp.seq", "tcp.flags.str", "_ws.expert.message",
		"iwarp_mpa.ulpdulength", "iwarp_rdma.opcode", "tcp.analysis.flags")
	text := strings.Join(lines, "\n")
	for _, bad := range []string{"alformed", "incorrect", "Checksum", "lost", "retrans", "unseen"} {
		if strings.Contains(text, bad) {
			t.Errorf("tshark complains (%s) about\n%s", bad, head(text))
		}
	}
	// 3 FPDUs of the Send, 147 of the Write, 1 of the answer.
	if n := countValues(lines, 3); n != 151 {
		t.Errorf("tshark sees %d FPDUs\n%s", n, head(text))
	}
	if n := countValues(lines, 4); n != 151 {
		t.Errorf("tshark sees %d RDMAP headers\n%s", n, head(text))
	}
	if strings.Count(text, "S·") < 2 || strings.Count(text, "F") < 2 {
		t.Errorf("no handshake or no end:\n%s", head(text))
	}
}

func countValues(lines []string, column int) (n int) {
	for _, line := range lines {
		if f := strings.Split(line, "\t"); len(f) > column && f[column] != "" {
			n += 1 + strings.Count(f[column], ",")
		}
	}
	return n
}

func head(text string) string { return text[:min(len(text), 3000)] }

func TestStreams_CaptureBeginsLate_TsharkDecodesTheRest(t *testing.T) {
	for _, split := range []int{0, 9999, 1000} {
		for _, both := range []bool{false, true} {
			c := converse(streamAddresses[0][0], streamAddresses[0][1], both)
			c.bytesToSplit = split
			c.open()
			c.greet()
			c.message(true, iwarp.OpcodeWrite, 100_000)
			c.message(false, iwarp.OpcodeSend, 100)
			// In the middle of an FPDU.
			whole := c.bytesToSplit
			c.bytesToSplit = 0
			half := iwarp.AppendULPDULen(nil, 500+iwarp.TaggedLen)
			header := iwarp.Header{Opcode: iwarp.OpcodeWrite, STag: 1, TO: 7}
			half = append(header.Append(half), bytes.Repeat([]byte{0}, 200)...)
			c.send(true, half)
			c.bytesToSplit = whole
			out := newSink()
			capture := newTestCapture(out, nil)
			c.taps.Add(capture)
			c.send(true, make([]byte, 300+4)) // its rest, with the CRC
			c.message(true, iwarp.OpcodeWrite, 50_000)
			c.message(false, iwarp.OpcodeSend, 100)
			c.message(true, iwarp.OpcodeSend, 100)
			c.end()
			capture.End()
			<-out.closed
			lines := seen(t, out.Bytes(), "tcp.seq", "_ws.expert.message", "iwarp_mpa.ulpdulength",
				"iwarp_rdma.opcode", "_ws.col.Info")
			text := strings.Join(lines, "\n")
			if !strings.Contains(text, "MPA Request Frame") || !strings.Contains(text, "MPA Reply Frame") ||
				strings.Contains(text, "alformed") || strings.Contains(text, "unseen") {
				t.Errorf("split %d both %v:\n%s", split, both, head(text))
			}
			// A capture may need two FPDUs to find its feet.
			if n := countValues(lines, 3); n < 49 || n > 51 {
				t.Errorf("split %d both %v: tshark sees %d RDMAP headers\n%s", split, both, n, head(text))
			}
		}
	}
}

func TestStreams_NoRoom_HoleIsShownAndReadersGoOn(t *testing.T) {
	c := converse(streamAddresses[0][0], streamAddresses[0][1], false)
	out := newSink()
	release := make(chan struct{})
	capture := newTestCapture(&slowSink{sink: out, release: release}, func(config *CaptureConfig) {
		config.Bytes = 30_000
	})
	c.taps.Add(capture)
	c.open()
	c.greet()
	for range 100 {
		c.message(true, iwarp.OpcodeWrite, 1024)
	}
	_, dropped := capture.counts()
	close(release)
	waitDrained(t, capture)
	for range 5 {
		c.message(true, iwarp.OpcodeSend, 1024)
	}
	capture.End()
	<-out.closed
	if dropped == 0 {
		t.Fatal("nothing was dropped: the test shows nothing")
	}
	text := strings.Join(seen(t, out.Bytes(), "_ws.col.Info"), "\n")
	if n := strings.Count(text, "Send"); n != 5 || !strings.Contains(text, "not captured") {
		t.Errorf("tshark sees %d sends\n%s", n, text)
	}
}

func TestStreams_Filter_ByConnection(t *testing.T) {
	c := converse(streamAddresses[0][0], streamAddresses[0][1], false)
	out := newSink()
	capture := newTestCapture(out, func(config *CaptureConfig) {
		config.Stream = func(f *tcp.Flow) bool { return f.ID == 99 }
	})
	c.taps.Add(capture)
	c.open()
	c.greet()
	if taken, _ := capture.End(); taken != 0 {
		t.Errorf("%d segments of a connection that was not asked for", taken)
	}
	<-out.closed
}

func TestStreams_Count_EndsTheCapture(t *testing.T) {
	c := converse(streamAddresses[0][0], streamAddresses[0][1], false)
	out := newSink()
	capture := newTestCapture(out, func(config *CaptureConfig) { config.Count = 4 })
	c.taps.Add(capture)
	c.open()
	c.greet()
	<-out.closed
	if taken, dropped := capture.End(); taken != 4 || dropped != 0 || c.taps.IsOn() {
		t.Errorf("%d taken, %d dropped, goes on %v", taken, dropped, c.taps.IsOn())
	}
}

func TestStreams_ConnectionRefused_IsShown(t *testing.T) {
	c := converse(streamAddresses[0][0], streamAddresses[0][1], false)
	out := newSink()
	capture := newTestCapture(out, nil)
	c.taps.Add(capture)
	c.taps.Streams().StreamFailed(&c.client, true)
	c.taps.Streams().StreamFailed(&c.client, false)
	capture.End()
	<-out.closed
	lines := seen(t, out.Bytes(), "ip.src", "tcp.flags.str", "tcp.ack")
	want := []string{
		"10.0.0.1\t··········S·\t0", "10.0.0.2\t·······A·R··\t1", "10.0.0.1\t··········S·\t0",
	}
	if !slices.Equal(lines, want) || len(capture.flows) != 0 {
		t.Errorf("tshark sees\n%s", strings.Join(lines, "\n"))
	}
}

func TestStreams_PeerNeverFollows_IsForgotten(t *testing.T) {
	c := converse(streamAddresses[0][0], streamAddresses[0][1], false)
	out := newSink()
	capture := newTestCapture(out, nil)
	c.taps.Add(capture)
	c.open()
	c.taps.Streams().StreamEnded(&c.client, tcp.EndSent)
	if len(capture.flows) != 1 {
		t.Fatal("forgotten too early")
	}
	c.taps.Streams().StreamEnded(&c.client, tcp.Forgotten)
	if taken, _ := capture.End(); taken != 4 || len(capture.flows) != 0 {
		t.Errorf("%d segments, %d connections are remembered", taken, len(capture.flows))
	}
	<-out.closed
}

func TestFirstFPDU_GarbageInFront_IsSkipped(t *testing.T) {
	fpdu := func(n int) []byte {
		h := iwarp.Header{Opcode: iwarp.OpcodeWrite, STag: 5}
		b := iwarp.AppendULPDULen(nil, iwarp.TaggedLen+n)
		b = append(h.Append(b), make([]byte, n)...)
		return append(iwarp.AppendPad(b, iwarp.PadLen(iwarp.TaggedLen+n)), 1, 2, 3, 4)
	}
	one, two := fpdu(100), append(fpdu(33), fpdu(1000)...)
	for name, c := range map[string]struct {
		bytes []byte
		want  int
		found bool
	}{
		"nothing":            {nil, 0, false},
		"one exactly":        {one, 0, true},
		"one in garbage":     {append([]byte("garbage"), one...), 7, false},
		"two in garbage":     {append([]byte("garbage"), two...), 7, true},
		"two, the last torn": {append([]byte("garbage"), two[:100]...), 7, true},
		"the second begins":  {append([]byte("garbage"), two[:60]...), 7, false},
		"text":               {bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 1000), 15981, false},
		"zeros":              {make([]byte, 10000), 9981, false},
		"A":                  {bytes.Repeat([]byte("A"), 10000), 9981, false},
	} {
		if got, found := firstFPDU(c.bytes); got != c.want || found != c.found {
			t.Errorf("%s: %d %v, want %d %v", name, got, found, c.want, c.found)
		}
	}
}

// slowSink does not write before it is released.
type slowSink struct {
	*sink
	release chan struct{}
	begun   bool
}

func (s *slowSink) Write(b []byte) (int, error) {
	if s.begun {
		<-s.release
	}
	s.begun = true // the head of the file passes
	return s.sink.Write(b)
}

func (c *Capture) counts() (taken, dropped uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken, c.dropped
}

// waitDrained waits until nothing waits to be written.
func waitDrained(t *testing.T, c *Capture) {
	t.Helper()
	for range 10_000 {
		c.mu.Lock()
		empty := len(c.filling.records) == 0
		c.mu.Unlock()
		if empty {
			return
		}
		c.poke()
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the capture is not written")
}

// TestSegment_Frame_IsThatOfAnotherLibrary compares with frames that gopacket makes.
func TestSegment_Frame_IsThatOfAnotherLibrary(t *testing.T) {
	for _, addresses := range streamAddresses {
		for _, n := range []int{0, 1, 2, 7, 1001, segmentBytesMax} {
			s := segment{
				src: netip.MustParseAddrPort(addresses[0]), dst: netip.MustParseAddrPort(addresses[1]),
				seq: 0xfedcba98, ack: 0x12345678, flags: flagPSH | flagACK,
			}
			payload := bytes.Repeat([]byte{0xff, 0xfe, 3}, n/3+1)[:n]
			// It pads short frames, as a wire would.
			got, want := s.append(nil, payload), s.byGopacket(t, payload)
			if !bytes.HasPrefix(want, got) || len(want) > max(60, len(got)) {
				t.Errorf("%v, %d bytes:\n% x\n% x", addresses, n, got[:54], want[:54])
			}
		}
	}
}

func (s *segment) byGopacket(t *testing.T, payload []byte) []byte {
	t.Helper()
	src, dst := s.src.Addr(), s.dst.Addr()
	from, to := macOf(src), macOf(dst)
	ethernet := layers.Ethernet{SrcMAC: from[:], DstMAC: to[:], EthernetType: layers.EthernetTypeIPv4}
	tcp := layers.TCP{
		SrcPort: layers.TCPPort(s.src.Port()), DstPort: layers.TCPPort(s.dst.Port()),
		Seq: s.seq, Ack: s.ack, Window: windowShown, PSH: true, ACK: true,
	}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	} = &layers.IPv4{
		Version: 4, TTL: hopsShown, Protocol: layers.IPProtocolTCP, Flags: layers.IPv4DontFragment,
		SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
	}
	if src.Is6() {
		ethernet.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{
			Version: 6, HopLimit: hopsShown, NextHeader: layers.IPProtocolTCP,
			SrcIP: src.AsSlice(), DstIP: dst.AsSlice(),
		}
	}
	if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{
		FixLengths: true, ComputeChecksums: true,
	}, &ethernet, ip, &tcp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
