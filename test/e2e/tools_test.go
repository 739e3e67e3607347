package e2e

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// tshark reads a capture of the machine with a display filter and returns a line for each packet.
func (m *machine) tshark(t *testing.T, file, filter string) []string {
	t.Helper()
	requireProgram(t, "tshark")
	c := exec.Command("tshark", "-r", file, "-Y", filter, "--disable-protocol", "rpcordma",
		"-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("tshark %s: %v", filter, err)
	}
	text := strings.TrimSpace(string(out))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// A capture of unmodified programs has both directions, wherever they run, and nothing that a
// third party finds wrong.
func TestCapture_Perftest_TsharkFindsNothingWrong(t *testing.T) {
	requireProgram(t, "tshark")
	atPlaces(t, func(t *testing.T, p pair) {
		file := filepath.Join(p.client.home, "a.pcapng")
		hold := p.client.run(t, "sleep", "60") // the NIC stays
		until(t, "there is a NIC", func() bool {
			return p.client.start(t, rnic, "devinfo").end(t).status == 0
		})
		capture := p.client.start(t, rnic, "capture", "-w", file)
		until(t, "the capture begins", func() bool {
			return strings.Contains(capture.stderr.String(), "capturing")
		})
		port := newPort()
		args := []string{"ib_write_bw", "-p", strconv.Itoa(port), "-s", "70001", "-n", "100"}
		server := p.server.run(t, args...)
		server.awaitListening(t, port)
		p.client.run(t, append(args, p.address)...).end(t)
		server.end(t)
		capture.signal(t, syscall.SIGINT)
		out := capture.end(t)
		hold.kill()
		if out.status != 0 || !strings.Contains(out.stderr, " packets captured, 0 dropped") {
			t.Fatalf("status %d: %s", out.status, out.stderr)
		}
		const wrong = "_ws.malformed || udp.checksum.status == 0 || ip.checksum.status == 0"
		if lines := p.client.tshark(t, file, wrong); lines != nil {
			t.Errorf("wrong packets:\n%s", strings.Join(lines, "\n"))
		}
		first := len(p.client.tshark(t, file, "infiniband.bth.opcode == 6"))
		acks := len(p.client.tshark(t, file, "infiniband.bth.opcode == 17"))
		if first < 100 || acks == 0 {
			t.Errorf("%d WRITE FIRST and %d ACKNOWLEDGE", first, acks)
		}
	})
}

// Either side of rnic ping may be rping.
func TestPing_WithRping_EitherSide(t *testing.T) {
	requireProgram(t, "rping")
	atPlaces(t, func(t *testing.T, p pair) {
		port := strconv.Itoa(newPort())
		own := p.server.start(t, rnic, "ping", "--listen", "-p", port)
		until(t, "the server listens", func() bool {
			return strings.Contains(own.stdout.String(), "listening")
		})
		p.client.run(t, "rping", "-c", "-a", p.address, "-p", port, "-C", "5", "-V").end(t)
		out := p.client.start(t, rnic, "ping", "-V", "-c", "3", "-i", "1ms", "-p", port, p.address).
			end(t)
		if out.status != 0 || !strings.Contains(out.stdout, "3 verified, 0 damaged") {
			t.Errorf("rnic ping: status %d\n%s%s", out.status, out.stdout, out.stderr)
		}
		until(t, "the server has seen both leave", func() bool {
			text := own.stdout.String()
			return strings.Contains(text, ": 5 rounds") && strings.Contains(text, ": 3 rounds")
		})
		own.signal(t, syscall.SIGINT)
		if out := own.end(t); out.status != 0 {
			t.Errorf("rnic ping --listen: status %d: %s", out.status, out.stderr)
		}

		other := p.server.run(t, "rping", "-s", "-p", port, "-C", "4")
		until(t, "rping listens", func() bool {
			out := p.client.start(t, rnic, "ping", "-q", "-V", "-c", "4", "-i", "0", "-p", port,
				p.address).end(t)
			return out.status == 0
		})
		other.end(t)
	})
}
