package rsocket

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestRstream runs rdmacm-utils' stream benchmark, which verifies its bytes, in all its ways.
func TestRstream(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		for _, row := range []string{
			"-T v -I 20 -C 5 -S 1",
			"-T v -I 5 -C 5 -S 2048",
			"-T v -I 5 -C 5 -S 100001",
			"-T v -T b -I 10 -C 10 -S 65536",
			"-T v -T a -I 10 -C 10 -S 65536",
			"-T v -T a -T b -I 10 -C 10 -S 3000",
			"-T v -T n -B 8192 -I 4 -C 10 -S 40000",
			"-T v -T r -I 4 -C 4 -S 65536",
			"-T v -T b -i 0 -k 1 -I 4 -C 4 -S 1000000",
		} {
			t.Run(row, func(t *testing.T) {
				port := newPort(t)
				args := append(strings.Fields(row), "-p", strconv.Itoa(port))
				server := p.server.run(t, append([]string{"rstream"}, args...)...)
				server.listens(t, p.server, port)
				client := p.client.run(t, append([]string{"rstream", "-s", p.address}, args...)...)
				for _, out := range []string{client.succeed(t), server.succeed(t)} {
					if !strings.Contains(out, "custom") {
						t.Errorf("no result:\n%s", out)
					}
				}
			})
		}
	})
}

func TestRiostream(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		for _, row := range []string{
			"-T v -I 10 -C 4 -S 64",
			"-T v -T a -I 5 -C 4 -S 5000",
			"-T v -T b -I 5 -C 4 -S 300000",
		} {
			t.Run(row, func(t *testing.T) {
				port := newPort(t)
				args := append(strings.Fields(row), "-p", strconv.Itoa(port))
				server := p.server.run(t, append([]string{"riostream"}, args...)...)
				server.listens(t, p.server, port)
				p.client.run(t, append([]string{"riostream", "-s", p.address}, args...)...).succeed(t)
				server.succeed(t)
			})
		}
	})
}

func TestUdpong(t *testing.T) {
	atPlaces(t, func(t *testing.T, p place) {
		port := newPort(t)
		server := p.server.run(t, "udpong", "-b", p.address, "-p", strconv.Itoa(port), "-T", "a")
		server.bound(t, port)
		for _, row := range []string{
			"-T e -C 200 -S 16", "-T e -T b -C 200 -S 1000", "-T a -C 200 -S 900",
		} {
			args := append(strings.Fields(row), "-s", p.address, "-p", strconv.Itoa(port))
			out := p.client.run(t, append([]string{"udpong"}, args...)...).succeed(t)
			if !strings.Contains(out, "custom") {
				t.Errorf("%s: no result:\n%s", row, out)
			}
		}
		server.stop(t)
	})
}

func randomFile(t *testing.T, dir string, size int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, size)
	_, _ = rand.Read(content)
	path = filepath.Join(dir, fmt.Sprintf("random-%d", size))
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestRcopy(t *testing.T) {
	onDevices(t, func(t *testing.T, p place) {
		port := newPort(t)
		server := p.server.run(t, "rcopy", "-p", strconv.Itoa(port))
		server.listens(t, p.server, port)
		for _, size := range []int{1, 100000, 5 << 20} {
			source, content := randomFile(t, p.client.dir, size)
			target := filepath.Join(p.server.dir, fmt.Sprintf("copy-%d", size))
			// Options come last: with one first it is a server.
			p.client.run(t, "rcopy", source, p.address+":"+target, "-p", strconv.Itoa(port)).succeed(t)
			got, err := os.ReadFile(target)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes did not arrive: %v", size, err)
			}
		}
		server.stop(t)
	})
}
