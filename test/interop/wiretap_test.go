package interop

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/wire/roce"
)

// wiretap sees every frame on the cable. It checks the checksums of all of ours itself, the ICRC
// among them, which tshark does not know; and it keeps the first frames of each row, each way, for
// tshark to judge at the end.
type wiretap struct {
	medium medium
	socket int
	mac    string // ours
	file   *os.File
	budget [2]atomic.Int64 // frames of the present row still to keep, by side
	port   atomic.Int32    // of the present row
	groups atomic.Int64    // datagrams of the kernel's to groups in the present row
	stop   atomic.Bool
	done   chan struct{}
	err    error // of the goroutine, until done

	seen, kept [2]int64 // frames of RDMA by side, owned by the goroutine until done
	complaints []string // about ours, likewise
}

// ours and theirs are who sent a frame.
const (
	ours = iota
	theirs
)

// What the tap keeps. A row with more is more of the same.
const (
	framesPerRow   = 40
	complaintsKept = 10
)

// newWiretap watches a link until the test ends, and judges it then.
func newWiretap(t *testing.T, g *guest) *wiretap {
	t.Helper()
	w := &wiretap{medium: mediumOf(g.driver), done: make(chan struct{})}
	var err error
	if w.file, err = os.Create(filepath.Join(t.TempDir(), "cable.pcap")); err != nil {
		t.Fatal(err)
	}
	g.ns.Do(func() { w.socket, w.mac, err = openTap() })
	if err != nil {
		t.Fatalf("watch the cable: %v", err)
	}
	go func() {
		defer close(w.done)
		w.err = w.watch()
	}()
	t.Cleanup(func() { w.judge(t) })
	return w
}

func openTap() (socket int, mac string, err error) {
	link, err := net.InterfaceByName(tapName)
	if err != nil {
		return 0, "", err
	}
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, "", err
	}
	for _, err := range []error{
		unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
			&unix.Timeval{Usec: 100_000}),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}),
	} {
		if err != nil {
			_ = unix.Close(socket)
			return 0, "", err
		}
	}
	return socket, link.HardwareAddr.String(), nil
}

// begin begins a row.
func (w *wiretap) begin(port int) {
	w.port.Store(int32(port))
	w.budget[ours].Store(framesPerRow)
	w.budget[theirs].Store(framesPerRow)
	w.groups.Store(0)
}

func (w *wiretap) watch() error {
	out := bufio.NewWriter(w.file)
	pcap := pcapgo.NewWriterNanos(out)
	frame := make([]byte, 1<<16)
	if err := pcap.WriteFileHeader(uint32(len(frame)), layers.LinkTypeEthernet); err != nil {
		return err
	}
	for !w.stop.Load() {
		n, from, err := unix.Recvfrom(w.socket, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		side := theirs
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			side = ours
		}
		if !w.medium.examine(w, frame[:n], side) || w.budget[side].Add(-1) < 0 {
			continue
		}
		w.kept[side]++
		info := gopacket.CaptureInfo{Timestamp: time.Now(), CaptureLength: n, Length: n}
		if err := pcap.WritePacket(info, frame[:n]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// medium is how RDMA travels on the cable: which frames are of it, and what tshark is asked.
type medium struct {
	examine func(w *wiretap, frame []byte, side int) bool
	ask     func(w *wiretap, t *testing.T)
}

func mediumOf(d driver) medium {
	if d.link == siw.link {
		return medium{examine: (*wiretap).examineTCP, ask: (*wiretap).askTsharkOfStreams}
	}
	return medium{examine: (*wiretap).examine, ask: (*wiretap).askTshark}
}

// examine reports whether a frame is RoCE, and checks it if it is ours.
func (w *wiretap) examine(frame []byte, side int) bool {
	if !isUDP(frame) {
		return false // ARP, the reports of multicast members, TCP
	}
	f, err := roce.ParseFrame(frame)
	if errors.Is(err, roce.ErrNotRoCE) {
		return false
	}
	w.seen[side]++
	if side == theirs {
		if f.Path.Dst.IsMulticast() {
			w.groups.Add(1)
		}
		return true
	}
	wrong := ""
	switch {
	case err != nil:
		wrong = err.Error()
	case f.Ethernet.Type == roce.EtherTypeIPv4 && !headerIsGood(frame):
		wrong = "the checksum of the IPv4 header is wrong"
	case f.UDPChecksum == 0 && !f.Path.Is4():
		wrong = "no UDP checksum over IPv6"
	case f.UDPChecksum != 0 && f.UDPChecksum != roce.UDPChecksum(&f.Path, f.Payload):
		wrong = "the UDP checksum is wrong"
	case roce.CheckICRC(&f.Path, f.Payload) != roce.Good:
		wrong = "the ICRC is wrong"
	}
	if wrong != "" && len(w.complaints) < complaintsKept {
		w.complaints = append(w.complaints, fmt.Sprintf("%s: % x", wrong, frame))
	}
	return true
}

func isUDP(frame []byte) bool {
	ethernet, packet, err := roce.ParseEthernet(frame)
	switch {
	case err != nil:
		return false
	case ethernet.Type == roce.EtherTypeIPv4:
		v := roce.IPv4View(packet)
		return v.IsComplete() && v.Protocol() == unix.IPPROTO_UDP
	case ethernet.Type == roce.EtherTypeIPv6:
		v := roce.IPv6View(packet)
		return v.IsComplete() && v.NextHeader() == unix.IPPROTO_UDP
	}
	return false
}

func headerIsGood(frame []byte) bool {
	_, packet, err := roce.ParseEthernet(frame)
	return err == nil && roce.IPv4View(packet).IsChecksumGood()
}

// judge ends the watch.
func (w *wiretap) judge(t *testing.T) {
	w.stop.Store(true)
	<-w.done
	defer w.file.Close()
	lost, err := unix.GetsockoptTpacketStats(w.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	_ = unix.Close(w.socket)
	if err != nil || w.err != nil {
		t.Fatalf("watch the cable: %v, %v", err, w.err)
	}
	t.Logf("%d frames of ours and %d of the kernel's passed, %d more unseen; tshark reads %d and %d",
		w.seen[ours], w.seen[theirs], lost.Drops, w.kept[ours], w.kept[theirs])
	for _, complaint := range w.complaints {
		t.Error(complaint)
	}
	w.medium.ask(w, t)
}

// guessed are protocols that tshark believes to see in the arbitrary payload of some messages.
var guessed = []string{
	"rpcordma", "smc", "smb_direct", "nvme-rdma", "lnet", "iser", "infiniband_sdp", "fcoib",
}

// askTshark has a third party look for malformed packets and wrong checksums of ours. Of the
// kernel's driver it does not like that there is no UDP checksum over IPv6, either.
func (w *wiretap) askTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Fatal("no tshark to judge the packets: scripts/deps.sh interop")
	}
	args := []string{
		"-r", w.file.Name(), "-Y", "infiniband",
		"-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
		"-T", "fields", "-E", "separator=|", "-e", "eth.src", "-e", "ip.checksum.status",
		"-e", "udp.checksum.status", "-e", "_ws.malformed", "-e", "_ws.expert.severity",
		"-e", "frame.number", "-e", "_ws.col.Info",
		"--disable-heuristic", "eth_over_ib", "--disable-heuristic", "mellanox_eoib",
	}
	for _, name := range guessed {
		args = append(args, "--disable-protocol", name)
	}
	c := exec.Command("tshark", args...)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	// A checksum's status 1 is good; IPv6 has none of its header. What tshark only notes, such as
	// the hop limit of 1 that a program asks for, is less than a warning.
	good := regexp.MustCompile(`^` + w.mac + `\|1?\|1\|\|(|1048576|2097152|4194304)\|`)
	var lines, wrong int
	for line := range strings.Lines(string(out)) {
		lines++
		if !strings.HasPrefix(line, w.mac) || good.MatchString(line) {
			continue
		}
		if wrong++; wrong <= complaintsKept {
			t.Errorf("tshark finds fault with %s", line)
		}
	}
	if want := w.kept[ours] + w.kept[theirs]; int64(lines) != want {
		t.Errorf("tshark knows %d packets of %d", lines, want)
	}
}
