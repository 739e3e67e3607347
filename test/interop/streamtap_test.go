package interop

import (
	stdbinary "encoding/binary"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/wire/roce"
)

// examineTCP reports whether a frame is of a connection to the port of the present row. Checksums
// of TCP are the kernel's, at both ends.
func (w *wiretap) examineTCP(frame []byte, side int) bool {
	segment, ok := tcpOf(frame)
	if !ok {
		return false
	}
	port := uint16(w.port.Load())
	if stdbinary.BigEndian.Uint16(segment) != port && stdbinary.BigEndian.Uint16(segment[2:]) != port {
		return false
	}
	w.seen[side]++
	return true
}

// tcpOf returns the TCP segment of a frame, if it has one.
func tcpOf(frame []byte) (segment []byte, ok bool) {
	const headerLen = 20
	ethernet, packet, err := roce.ParseEthernet(frame)
	switch {
	case err != nil:
		return nil, false
	case ethernet.Type == roce.EtherTypeIPv4:
		v := roce.IPv4View(packet)
		if !v.IsComplete() || v.Protocol() != unix.IPPROTO_TCP {
			return nil, false
		}
		segment = packet[int(packet[0]&0xf)*4:]
	case ethernet.Type == roce.EtherTypeIPv6:
		v := roce.IPv6View(packet)
		if !v.IsComplete() || v.NextHeader() != unix.IPPROTO_TCP {
			return nil, false
		}
		segment = packet[40:]
	}
	return segment, len(segment) >= headerLen
}

// knownFaults are what tshark says of iWARP that is right: it knows revision 1 of MPA only (the
// fourth flag and the number are those of RFC 6581), and TCP's own doings are the kernel's.
var knownFaults = regexp.MustCompile(`^(Rev field is NOT set to one.*` +
	`|Res field is NOT set to zero.*|TCP .*|This frame .*|Connection .*|Duplicate ACK.*` +
	`|Previous segment.*|ACKed .*|D-SACK.*)$`)

// askTsharkOfStreams has a third party look for malformed iWARP of ours.
func (w *wiretap) askTsharkOfStreams(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Fatal("no tshark to judge the packets: scripts/deps.sh interop")
	}
	const between = "\x1f"
	out := w.tshark(t, "-T", "fields", "-E", "separator=|", "-E", "aggregator="+between,
		"-e", "_ws.malformed", "-e", "_ws.expert.message", "-e", "frame.number",
		"-e", "_ws.col.Info")
	lines, wrong := 0, 0
	for line := range strings.Lines(out) {
		fields := strings.SplitN(line, "|", 3)
		lines++
		isWrong := fields[0] != ""
		for message := range strings.SplitSeq(fields[1], between) {
			isWrong = isWrong || message != "" && !knownFaults.MatchString(message)
		}
		if !isWrong {
			continue
		}
		if wrong++; wrong <= complaintsKept {
			t.Errorf("tshark finds fault with %s", line)
		}
	}
	if lines == 0 && w.kept[ours] > 0 {
		t.Errorf("tshark sees no iWARP in %d frames of ours", w.kept[ours])
	}
	t.Logf("tshark knows iWARP in %d frames of ours", lines)
	for _, line := range badCRC.FindAllString(w.tshark(t, "-O", "iwarp_mpa"), complaintsKept) {
		t.Error(line)
	}
}

var badCRC = regexp.MustCompile(`.*\(Bad CRC32.*`)

// tshark reads what is kept of ours.
func (w *wiretap) tshark(t *testing.T, args ...string) string {
	t.Helper()
	all := []string{"-r", w.file.Name(), "-Y", "iwarp_mpa && eth.src == " + w.mac}
	for _, name := range guessed {
		all = append(all, "--disable-protocol", name)
	}
	out, err := exec.Command("tshark", append(all, args...)...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return string(out)
}
