package udp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/wire/roce"
	"github.com/softrnic/softrnic/test/netnstest"
)

var (
	lo4 = netip.MustParseAddr("127.0.0.1")
	lo6 = netip.MustParseAddr("::1")
)

// openLoopback opens a port on a UDP port of its own, so that tests run beside a NIC.
func openLoopback(t testing.TB, config Config) *Port {
	t.Helper()
	for range 100 {
		config.UDPPort = uint16(20000 + rand.IntN(20000))
		p, err := Open(config)
		if errors.Is(err, netio.ErrPortTaken) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	t.Fatal("no free UDP port")
	return nil
}

// openIn opens a port on 4791 in a namespace.
func openIn(t testing.TB, n *netnstest.Namespace, config Config) *Port {
	t.Helper()
	var p *Port
	n.Do(func() {
		var err error
		if p, err = Open(config); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// packet returns a datagram with n bytes, the first of them telling which one it is.
func packet(path roce.Path, n int, number uint32) netio.Datagram {
	b := make([]byte, n, n+netio.TrailerBytes)
	for i := range b {
		b[i] = byte(uint32(i)*7 + number)
	}
	binary.BigEndian.PutUint32(b, number)
	return netio.Datagram{Buf: b, Path: path}
}

// message returns packets as a long message has them: a first one with one more header, equal
// ones, a shorter last one; then some of other lengths.
func message(path roce.Path) []netio.Datagram {
	sizes := []int{1056}
	for range 100 {
		sizes = append(sizes, 1040)
	}
	sizes = append(sizes, 400, 12, 16, 16, 4112, 4112, 4112, 13)
	var list []netio.Datagram
	for i, n := range sizes {
		list = append(list, packet(path, n, uint32(i)))
	}
	return list
}

func clone(list []netio.Datagram) []netio.Datagram {
	out := make([]netio.Datagram, len(list))
	for i, d := range list {
		out[i] = d
		out[i].Buf = append(make([]byte, 0, len(d.Buf)+netio.TrailerBytes), d.Buf...)
	}
	return out
}

func sendAll(t testing.TB, p *Port, list []netio.Datagram) {
	t.Helper()
	for tries := 0; len(list) > 0; tries++ {
		n, err := p.Send(list)
		if err != nil {
			t.Fatal(err)
		}
		if list = list[n:]; n == 0 {
			if tries > 5000 {
				t.Fatal("the socket stays full")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// receiveN waits for n datagrams and returns copies; fewer after a second without any.
func receiveN(t testing.TB, p *Port, n int) []netio.Datagram {
	t.Helper()
	var got []netio.Datagram
	batch := make([]netio.Datagram, 32)
	for quiet := 0; len(got) < n && quiet < 1000; {
		k, err := p.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, clone(batch[:k])...)
		if quiet++; k > 0 {
			quiet = 0
			continue
		}
		time.Sleep(time.Millisecond)
	}
	return got
}

func checkSame(t testing.TB, sent, got []netio.Datagram) {
	t.Helper()
	if len(got) != len(sent) {
		t.Fatalf("%d datagrams arrived of %d", len(got), len(sent))
	}
	for i := range sent {
		s, g := &sent[i], &got[i]
		if !bytes.Equal(s.Buf, g.Buf) {
			t.Fatalf("datagram %d: %d bytes differ from the %d that were sent", i, len(g.Buf),
				len(s.Buf))
		}
		if g.Path.Src != s.Path.Src || g.Path.Dst != s.Path.Dst ||
			g.Path.TrafficClass != s.Path.TrafficClass || g.Path.HopLimit != s.Path.HopLimit {
			t.Fatalf("datagram %d took %v, want %v", i, g.Path, s.Path)
		}
		if g.Path.SrcPort != s.Path.SrcPort || g.Path.SrcPort < 0xC000 {
			t.Fatalf("datagram %d: source port %d, Send reported %d", i, g.Path.SrcPort,
				s.Path.SrcPort)
		}
	}
}

// inOneBuffer copies datagrams so that one follows the other, each with room for its ICRC.
func inOneBuffer(list []netio.Datagram) []netio.Datagram {
	total := 0
	for i := range list {
		total += len(list[i].Buf) + netio.TrailerBytes
	}
	buffer := make([]byte, 0, total)
	out := make([]netio.Datagram, len(list))
	for i, d := range list {
		start, end := len(buffer), len(buffer)+len(d.Buf)
		buffer = append(buffer, d.Buf...)[:end+netio.TrailerBytes]
		out[i] = d
		out[i].Buf = buffer[start:end:len(buffer)]
	}
	return out
}

func TestPort_PacketsInOneBuffer_TakeOneIovecAMessage(t *testing.T) {
	p := openLoopback(t, Config{})
	list := inOneBuffer(message(roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}))
	apart := clone(list)
	sendAll(t, p, list)
	checkSame(t, list, receiveN(t, p, len(list)))

	count := func(group []netio.Datagram) int {
		p.out.reset()
		p.putGroup(group, p.senderOf(&group[0]))
		return p.out.used
	}
	if n := count(list[1:50]); n != 1 {
		t.Errorf("%d iovecs for packets that follow each other", n)
	}
	if n := count(apart[1:50]); n != 49 {
		t.Errorf("%d iovecs for 49 packets with gaps", n)
	}
}

// The IP version that is not in use is asked less often, but asked.
func TestPort_OtherIPVersion_IsHeardSoon(t *testing.T) {
	p := openLoopback(t, Config{})
	if p.v4 == nil || p.v6 == nil {
		t.Skip("one IP version only")
	}
	var batch [4]netio.Datagram
	for i, at := range []netip.Addr{lo4, lo6, lo4, lo4, lo6, lo6, lo4} {
		for range 3 { // nothing comes meanwhile
			if n, err := p.Receive(batch[:]); n != 0 || err != nil {
				t.Fatalf("%d datagrams, %v", n, err)
			}
		}
		sendAll(t, p, []netio.Datagram{packet(roce.Path{Src: at, Dst: at, HopLimit: 64}, 40, 1)})
		found := 0
		for calls := 0; found == 0 && calls < idleTurns; calls++ {
			n, err := p.Receive(batch[:])
			if err != nil {
				t.Fatal(err)
			}
			found += n
		}
		if found != 1 {
			t.Errorf("datagram %d, of %v, was not found in %d calls", i, at, idleTurns)
		}
	}
}

func TestPort_LoopbackOffloads_SameBytesArrive(t *testing.T) {
	for _, addr := range []netip.Addr{lo4, lo6} {
		for mask := range 4 {
			config := Config{DisableGSO: mask&1 != 0, DisableGRO: mask&2 != 0}
			name := fmt.Sprintf("%v/gso=%v/gro=%v", addr, !config.DisableGSO, !config.DisableGRO)
			t.Run(name, func(t *testing.T) {
				p := openLoopback(t, config)
				if addr == lo6 && !hasLoopback6(p) {
					t.Skip("this host has no IPv6 loopback")
				}
				path := roce.Path{
					Src: addr, Dst: addr, SrcPort: 0xd123, HopLimit: 64,
					TrafficClass: 0x6a,
				}
				list := message(path)
				sent := clone(list)
				sendAll(t, p, sent)
				checkSame(t, withPorts(list, sent), receiveN(t, p, len(list)))
				checkLoopbackCounts(t, p, config, sent)
			})
		}
	}
}

func hasLoopback6(p *Port) bool {
	if p.v6 == nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Bind(fd, &unix.SockaddrInet6{Addr: lo6.As16()}) == nil
}

// withPorts returns what was meant to be sent with the source ports that Send chose.
func withPorts(list, sent []netio.Datagram) []netio.Datagram {
	for i := range list {
		list[i].Path.SrcPort = sent[i].Path.SrcPort
	}
	return list
}

func checkLoopbackCounts(t *testing.T, p *Port, config Config, sent []netio.Datagram) {
	c := p.Counters()
	n := uint64(len(sent))
	if c.Get(netio.TxPackets) != n || c.Get(netio.RxPackets) != n ||
		c.Get(netio.TxBytes) != c.Get(netio.RxBytes) || c.Get(netio.RxICRCBad) != 0 {
		c.Each(func(i netio.CounterInfo, v uint64) { t.Logf("%s = %d", i.Name, v) })
		t.Error("counters do not agree with what was sent")
	}
	if segmented := c.Get(netio.TxSegmentedSends); (segmented > 0) == config.DisableGSO {
		t.Errorf("%d segmented sends", segmented)
	}
	// Both offloads on, or both off: the guess about the identification is right, and every
	// packet is checked in full.
	if config.DisableGSO == config.DisableGRO && c.Get(netio.RxICRCPartial) != 0 {
		t.Errorf("%d packets were not checked in full", c.Get(netio.RxICRCPartial))
	}
	f := p.Features()
	if f.SegmentSend == config.DisableGSO || f.CoalesceRecv == config.DisableGRO {
		t.Errorf("features %+v", f)
	}
	if f.ReceiveBuffer < 200<<10 || f.SendBuffer < 200<<10 {
		t.Errorf("socket buffers are %d and %d bytes", f.ReceiveBuffer, f.SendBuffer)
	}
	var off []netio.Feature
	for _, notice := range p.Notices() {
		off = append(off, notice.Feature)
		if !errors.Is(notice, errDisabled) && notice.Feature != netio.FeatureIPv6 {
			t.Errorf("unexpected notice: %v", notice)
		}
	}
	if config.DisableGSO && config.DisableGRO && len(off) < 2 {
		t.Errorf("notices for %v only", off)
	}
	if len(p.Notices()) != 0 {
		t.Error("notices come twice")
	}
}

func TestOpen_DisabledByEnvironment_FeaturesOff(t *testing.T) {
	t.Setenv("RNIC_DISABLE_GSO", "1")
	t.Setenv("RNIC_DISABLE_GRO", "1")
	p := openLoopback(t, Config{})
	if f := p.Features(); f.SegmentSend || f.CoalesceRecv {
		t.Errorf("features %+v", f)
	}
}

func TestPort_SmallReceiveBatch_NothingLost(t *testing.T) {
	p := openLoopback(t, Config{})
	path := roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}
	list := message(path)
	sent := clone(list)
	sendAll(t, p, sent)
	var got []netio.Datagram
	one := make([]netio.Datagram, 1)
	for range 10 * len(list) {
		n, err := p.Receive(one)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, clone(one[:n])...)
	}
	checkSame(t, withPorts(list, sent), got)
}

func TestOpen_PortInUse_IsErrPortTaken(t *testing.T) {
	p := openLoopback(t, Config{})
	second, err := Open(Config{UDPPort: p.config.UDPPort})
	if !errors.Is(err, netio.ErrPortTaken) || !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("second Open: %v, %v", second, err)
	}
}

func TestPort_DamagedInFlight_DroppedAndCounted(t *testing.T) {
	p := openLoopback(t, Config{})
	path := roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}
	list := message(path)[:50]
	intact := clone(list)
	flipped := 0
	for i := range list {
		if i%3 == 0 {
			list[i].Flip = uint32(1 + 8*5 + 97*i) // anywhere but in the masked byte 4
			flipped++
		}
	}
	sendAll(t, p, list)
	got := receiveN(t, p, len(list)-flipped)
	var want []netio.Datagram
	for i := range intact {
		if i%3 != 0 {
			intact[i].Path.SrcPort = list[i].Path.SrcPort
			want = append(want, intact[i])
		}
	}
	checkSame(t, want, got)
	if bad := p.Counters().Get(netio.RxICRCBad); bad != uint64(flipped) {
		t.Errorf("%d bad ICRCs counted, want %d", bad, flipped)
	}
}

// Garbage on the RoCE port is counted and disturbs nothing. It comes over IPv6: over IPv4, where 15
// bits of the ICRC can be checked, one packet of it in 32768 passes for good
// (docs/adr/0008-icrc-unknown-ip-id.md).
func TestPort_Garbage_CountedAndIgnored(t *testing.T) {
	p := openLoopback(t, Config{})
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	to := &unix.SockaddrInet6{Port: int(p.config.UDPPort), Addr: lo6.As16()}
	r := rand.New(rand.NewPCG(1, 2))
	const count = 200
	for range count {
		b := make([]byte, r.IntN(60000)>>r.IntN(16))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if err := unix.Sendto(fd, b, 0, to); err != nil {
			t.Fatal(err)
		}
		if got := receiveQuick(t, p); got != 0 {
			t.Fatalf("%d datagrams of garbage were delivered", got)
		}
	}
	time.Sleep(10 * time.Millisecond)
	receiveQuick(t, p)
	c := p.Counters()
	if n := c.Get(netio.RxICRCBad) + c.Get(netio.RxShort); n != count {
		t.Errorf("%d of %d counted", n, count)
	}
	list := []netio.Datagram{packet(roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}, 100, 1)}
	sendAll(t, p, list)
	checkSame(t, list, receiveN(t, p, 1))
}

func receiveQuick(t testing.TB, p *Port) int {
	batch := make([]netio.Datagram, 64)
	total := 0
	for range 4 {
		n, err := p.Receive(batch)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}

func TestPort_UnsendableDatagrams_DroppedOthersGo(t *testing.T) {
	p := openLoopback(t, Config{})
	good := roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}
	noTrailer := netio.Datagram{Buf: make([]byte, 20), Path: good}
	list := []netio.Datagram{
		packet(good, 64, 1),
		packet(roce.Path{Dst: lo4}, 64, 0),
		packet(roce.Path{Src: lo4}, 64, 0),
		packet(roce.Path{Src: lo4, Dst: lo6}, 64, 0),
		packet(roce.Path{Src: lo6, Dst: lo4}, 64, 0),
		packet(roce.Path{Src: lo4, Dst: netip.IPv4Unspecified()}, 64, 0),
		packet(roce.Path{Src: netip.IPv6Unspecified(), Dst: lo6}, 64, 0),
		packet(good, 11, 0),
		packet(good, 65530, 0),
		noTrailer,
		packet(good, 64, 2),
	}
	want := clone([]netio.Datagram{list[0], list[len(list)-1]})
	sendAll(t, p, list)
	want[0].Path.SrcPort = list[0].Path.SrcPort
	want[1].Path.SrcPort = list[0].Path.SrcPort
	checkSame(t, want, receiveN(t, p, 2))
	if dropped := p.Counters().Get(netio.TxOtherErrors); dropped != uint64(len(list)-2) {
		t.Errorf("%d counted as dropped, want %d", dropped, len(list)-2)
	}
}

func TestPort_MappedAddresses_GoOverIPv4(t *testing.T) {
	p := openLoopback(t, Config{})
	mapped := netip.AddrFrom16(lo4.As16())
	list := []netio.Datagram{packet(roce.Path{Src: mapped, Dst: mapped, HopLimit: 9}, 64, 1)}
	sendAll(t, p, list)
	got := receiveN(t, p, 1)
	if len(got) != 1 || got[0].Path.Src != lo4 || got[0].Path.HopLimit != 9 {
		t.Fatalf("got %+v", got)
	}
}

func TestPort_FlowLabels_SpreadAndStay(t *testing.T) {
	p := openLoopback(t, Config{})
	ports := map[uint16]bool{}
	for i := range 32 {
		d := packet(roce.Path{Src: lo4, Dst: lo4, SrcPort: uint16(0xc000 + i)}, 64, 0)
		first := p.senderOf(&d)
		ports[first.port] = true
		d.Path.SrcPort = first.port // what Send writes
		if again := p.senderOf(&d); again != first {
			t.Fatalf("port %d leads to port %d when sent again", first.port, again.port)
		}
	}
	if len(ports) != sourcePortsDefault {
		t.Errorf("32 flows use %d source ports, want %d", len(ports), sourcePortsDefault)
	}
}

func TestPort_SegmentationFails_SwitchedOffOnceAndSentSingly(t *testing.T) {
	p := openLoopback(t, Config{})
	if !p.features.SegmentSend {
		t.Skip("this kernel has no UDP_SEGMENT")
	}
	p.Notices()
	list := message(roce.Path{Src: lo4, Dst: lo4, HopLimit: 64})
	sent := clone(list)
	s := p.senderOf(&sent[0])
	for range 2 { // twice: the notice comes once
		if n := p.sendSingly(sent[1:5], s, unix.EIO); n != 4 {
			t.Fatalf("%d of 4 sent", n)
		}
	}
	notices := p.Notices()
	if len(notices) != 1 || notices[0].Feature != netio.FeatureSegmentSend ||
		!errors.Is(notices[0], unix.EIO) {
		t.Errorf("notices: %v", notices)
	}
	checkSame(t, append(sent[1:5:5], sent[1:5]...), receiveN(t, p, 8))
	sendAll(t, p, sent)
	checkSame(t, withPorts(list, sent), receiveN(t, p, len(list)))
	if p.Counters().Get(netio.TxSegmentedSends) != 0 || p.Features().SegmentSend {
		t.Error("segmentation is still used")
	}
}

func TestPort_Closed_ErrClosed(t *testing.T) {
	p := openLoopback(t, Config{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(make([]netio.Datagram, 1)); !errors.Is(err, netio.ErrClosed) {
		t.Errorf("Send: %v", err)
	}
	if _, err := p.Receive(make([]netio.Datagram, 1)); !errors.Is(err, netio.ErrClosed) {
		t.Errorf("Receive: %v", err)
	}
	if p.Unreachable() != nil || p.Close() != nil {
		t.Error("a closed port still answers")
	}
}

func TestPort_SendReceive_NoAllocation(t *testing.T) {
	p := openLoopback(t, Config{})
	list := message(roce.Path{Src: lo4, Dst: lo4, HopLimit: 64, TrafficClass: 2})
	batch := make([]netio.Datagram, len(list))
	if allocs := testing.AllocsPerRun(50, func() {
		if n, err := p.Send(list); n != len(list) || err != nil {
			t.Fatalf("sent %d, %v", n, err)
		}
		for got := 0; got < len(list); {
			n, err := p.Receive(batch)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		p.Unreachable()
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkPort_SendReceive4K(b *testing.B) {
	for _, off := range []bool{false, true} {
		b.Run(fmt.Sprintf("offload=%v", !off), func(b *testing.B) {
			p := openLoopback(b, Config{DisableGSO: off, DisableGRO: off})
			path := roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}
			var list []netio.Datagram
			for i := range 30 { // what fits into the smallest of socket buffers
				list = append(list, packet(path, 4096+12, uint32(i)))
			}
			batch := make([]netio.Datagram, len(list))
			b.SetBytes(int64(len(list)) * 4096)
			for b.Loop() {
				if n, err := p.Send(list); n != len(list) || err != nil {
					b.Fatal(n, err)
				}
				for got := 0; got < len(list); {
					n, err := p.Receive(batch)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
			}
		})
	}
}

func BenchmarkPort_SmallPing(b *testing.B) {
	p := openLoopback(b, Config{})
	list := []netio.Datagram{packet(roce.Path{Src: lo4, Dst: lo4, HopLimit: 64}, 28, 1)}
	batch := make([]netio.Datagram, 16)
	for b.Loop() {
		if n, err := p.Send(list); n != 1 || err != nil {
			b.Fatal(n, err)
		}
		for {
			n, err := p.Receive(batch)
			if err != nil {
				b.Fatal(err)
			}
			if n > 0 {
				break
			}
		}
	}
}
