package pcap

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/loop"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

var pairs = [][2]netip.Addr{
	{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")},
	{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")},
}

func openPair(t *testing.T) (a, b *loop.Port) {
	t.Helper()
	hub := loop.NewHub(loop.Config{})
	open := func(name string, side int) *loop.Port {
		p, err := hub.Open(name, pairs[0][side], pairs[1][side])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	return open("a", 0), open("b", 1)
}

// sendOnly returns a UC SEND-only packet.
func sendOnly(src, dst netip.Addr, payload string, flip uint32) netio.Datagram {
	h := ib.Headers{BTH: ib.BTH{
		Opcode: ib.UCSendOnly, MigReq: true, PKey: rdma.PKeyDefault, DestQPN: 17, PSN: 5,
		PadCount: ib.PadCount(len(payload)),
	}}
	b := ib.AppendPad(append(h.Append(make([]byte, 0, 128)), payload...), h.BTH.PadCount)
	return netio.Datagram{Buf: b, Flip: flip, Path: roce.Path{
		Src: src, Dst: dst, SrcPort: 0xc123, HopLimit: 64, TrafficClass: 2,
	}}
}

func traffic() []netio.Datagram {
	var list []netio.Datagram
	for _, p := range pairs {
		list = append(list, sendOnly(p[0], p[1], "hello", 0), sendOnly(p[0], p[1], "", 0))
	}
	return append(list, sendOnly(pairs[0][0], pairs[0][1], "damaged", 100))
}

// capture sends the traffic from a watched port to a watched port and returns both files.
func capture(t *testing.T) (tx, rx []byte) {
	t.Helper()
	a, b := openPair(t)
	var files [2]bytes.Buffer
	at := time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC)
	var ports [2]*Port
	for i, below := range []*loop.Port{a, b} {
		var err error
		ports[i], err = New(below, Config{
			Writer: &files[i], Now: func() time.Time { return at }, Device: "rnic0",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	list := traffic()
	if n, err := ports[0].Send(list); n != len(list) || err != nil {
		t.Fatal(n, err)
	}
	if n, err := ports[1].Receive(make([]netio.Datagram, 16)); n != len(list)-1 || err != nil {
		t.Fatal(n, err)
	}
	for _, p := range ports {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return files[0].Bytes(), files[1].Bytes()
}

func frames(t *testing.T, file []byte) []roce.Frame {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var list []roce.Frame
	for {
		b, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Timestamp.UTC() != time.Date(2026, 1, 2, 3, 4, 5, 6789, time.UTC) {
			t.Errorf("time stamp %v", info.Timestamp)
		}
		f, err := roce.ParseFrame(b)
		if err != nil {
			t.Fatalf("frame %x: %v", b, err)
		}
		list = append(list, f)
	}
}

func TestPort_BothWays_FileHasFramesWithRightICRC(t *testing.T) {
	tx, rx := capture(t)
	sent, received := frames(t, tx), frames(t, rx)
	list := traffic()
	if len(sent) != len(list) || len(received) != len(list)-1 {
		t.Fatalf("%d frames sent and %d received, want %d and %d", len(sent), len(received),
			len(list), len(list)-1)
	}
	for i, f := range sent {
		want := roce.Good
		if list[i].Flip != 0 {
			want = roce.Bad
		}
		if v := roce.CheckICRC(&f.Path, f.Payload); v != want {
			t.Errorf("sent frame %d: ICRC %v, want %v", i, v, want)
		}
		if want == roce.Good && string(f.Packet()) != string(list[i].Buf) {
			t.Errorf("sent frame %d: other bytes", i)
		}
		if f.UDPChecksum != roce.UDPChecksum(&f.Path, f.Payload) {
			t.Errorf("sent frame %d: UDP checksum", i)
		}
	}
	for i, f := range received {
		if v := roce.CheckICRC(&f.Path, f.Payload); v != roce.Good {
			t.Errorf("received frame %d: ICRC %v", i, v)
		}
		if f.Path.Dst != list[i].Path.Dst || f.Path.TrafficClass != 2 ||
			f.Ethernet.Src[0] != 2 || f.Ethernet.Src == f.Ethernet.Dst {
			t.Errorf("received frame %d: %v %v", i, f.Path, f.Ethernet)
		}
	}
}

// tshark, which we did not write, must decode our files as RoCE without complaint.
func TestPort_FileReadByTshark_NoComplaint(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	tx, _ := capture(t)
	name := filepath.Join(t.TempDir(), "tx.pcapng")
	if err := os.WriteFile(name, tx, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", name, "-T", "json",
		"-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packets []struct {
		Source struct {
			Layers map[string]json.RawMessage `json:"layers"`
		} `json:"_source"`
	}
	if err := json.Unmarshal(out, &packets); err != nil {
		t.Fatal(err)
	}
	if len(packets) != len(traffic()) {
		t.Errorf("tshark sees %d packets", len(packets))
	}
	for i, p := range packets {
		if _, ok := p.Source.Layers["infiniband"]; !ok {
			t.Errorf("packet %d is no InfiniBand transport packet to tshark", i)
		}
		if strings.Contains(string(p.Source.Layers["udp"]), "Bad checksum") ||
			p.Source.Layers["_ws.malformed"] != nil {
			t.Errorf("tshark complains about packet %d: %s", i, p.Source.Layers["udp"])
		}
	}
}

// full fails like a disk without room after the head of the file.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, syscall.ENOSPC
	}
	return len(b), nil
}

func TestPort_DiskFull_NoticeOnceTrafficGoesOn(t *testing.T) {
	a, b := openPair(t)
	p, err := New(a, Config{Writer: &full{room: 200}})
	if err != nil {
		t.Fatal(err)
	}
	var notices []netio.Notice
	now := clock.Time(0)
	const rounds = 10
	for round := range rounds {
		now = now.Add(time.Second)
		if _, err := p.Send(traffic()); err != nil {
			t.Fatal(err)
		}
		if got := p.NextDeadline(); (got > now) != (round > 0) {
			t.Errorf("round %d: deadline %d at %d", round, got, now)
		}
		p.Poll(now)
		notices = append(notices, p.Notices()...)
	}
	if len(notices) != 1 || notices[0].Feature != netio.FeatureCapture ||
		!errors.Is(notices[0], syscall.ENOSPC) {
		t.Errorf("notices: %v", notices)
	}
	n := 0
	batch := make([]netio.Datagram, 16)
	for {
		k, err := b.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		if n += k; k == 0 {
			break
		}
	}
	// One packet of five is damaged, and a whole batch may be: Receive says 0 only at the end here.
	if want := rounds * (len(traffic()) - 1); n != want {
		t.Errorf("%d packets arrived, want %d", n, want)
	}
	if p.Counters().Get(netio.CaptureErrors) == 0 || p.Name() != "pcap(loop:a)" {
		t.Error("nothing counted")
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := New(a, Config{Writer: &full{}}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("New on a full disk: %v", err)
	}
}
