package rsocket

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// runTCP starts a TCP program whose connections rnic run carries by RDMA.
func (h *host) runTCP(t *testing.T, args ...string) *process {
	t.Helper()
	return h.run(t, append([]string{"--rsockets", "--"}, args...)...)
}

// byRDMA wants a program's connection to be one of the NIC.
func byRDMA(t *testing.T, p *process, h *host, port int) {
	t.Helper()
	p.until(t, "an RDMA connection", func() bool { return h.connected(t, port) > 0 })
}

// iperf3Ready waits until an iperf3 server is ready for its client of that number, from 1. Between
// two clients it closes its listener, with the connections that nobody has accepted, and makes
// another: who calls in between is dropped, by TCP as well.
func iperf3Ready(t *testing.T, server *process, number int) {
	t.Helper()
	server.until(t, fmt.Sprintf("it is ready for client %d", number), func() bool {
		return strings.Count(server.stdout.String(), "Server listening") == number
	})
}

func TestIperf3(t *testing.T) {
	atPlaces(t, func(t *testing.T, p place) {
		port := newPort(t)
		server := p.server.runTCP(t, "iperf3", "-s", "--forceflush", "-p", strconv.Itoa(port))
		for i, row := range []string{
			"-t 1", "-t 1 -R", "-t 1 --bidir", "-t 1 -P 4", "-n 3M -l 1000",
		} {
			iperf3Ready(t, server, i+1)
			server.listens(t, p.server, port)
			args := append([]string{"iperf3", "-c", p.address, "-p", strconv.Itoa(port)},
				strings.Fields(row)...)
			client := p.client.runTCP(t, args...)
			if row == "-t 1" {
				byRDMA(t, client, p.client, port)
			}
			if out := client.succeed(t); !strings.Contains(out, "receiver") {
				t.Errorf("%s: no result:\n%s", row, out)
			}
		}
		server.stop(t)
	})
}

// TestClose_PeerHasEnded_DoesNotWaitForNIC: as with TCP, closing is done at once; what the NIC has
// to free for it may take a while, here as long as it is stopped.
func TestClose_PeerHasEnded_DoesNotWaitForNIC(t *testing.T) {
	h := oneHost(t)
	port := newPort(t)
	nic := h.start(t, binary(t), "up")
	nic.until(t, "it is ready", func() bool { return strings.Contains(h.ps(t), "no program") })
	script, err := filepath.Abs(filepath.Join("testdata", "close_server.py"))
	if err != nil {
		t.Fatal(err)
	}
	told := filepath.Join(h.dir, "told")
	server := h.runTCP(t, "python3", script, strconv.Itoa(port), told)
	server.listens(t, h, port)
	h.runTCP(t, "python3", "-c", fmt.Sprintf(
		"import socket; socket.create_connection(('127.0.0.1', %d)).close()", port)).succeed(t)
	server.until(t, "the peer has ended", func() bool {
		return strings.Contains(server.stdout.String(), "ended, by rdma")
	})
	if err := nic.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.cmd.Process.Signal(syscall.SIGCONT) })
	if err := os.WriteFile(told, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	server.until(t, "it has closed", func() bool {
		return strings.Contains(server.stdout.String(), "closed\n")
	})
	_ = nic.cmd.Process.Signal(syscall.SIGCONT)
	server.succeed(t)
	nic.stop(t)
}

const nginxConfig = `
worker_processes %[4]d;
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log info;
events { worker_connections 256; }
http {
	access_log off;
	sendfile %[3]s;
	client_body_temp_path %[1]s/t1;
	proxy_temp_path %[1]s/t2;
	fastcgi_temp_path %[1]s/t3;
	uwsgi_temp_path %[1]s/t4;
	scgi_temp_path %[1]s/t5;
	server {
		listen %[2]d;
		root %[1]s;
	}
}
`

// TestNginx_Curl: a server of several processes, which polls by edges, and its files. With several
// workers it asks that a connection wake but one of them (EPOLLEXCLUSIVE).
func TestNginx_Curl(t *testing.T) {
	atPlaces(t, func(t *testing.T, p place) {
		for _, row := range []struct {
			workers  int
			sendfile string
		}{{1, "on"}, {1, "off"}, {4, "on"}, {4, "off"}} {
			port := newPort(t)
			config := filepath.Join(p.server.dir, "nginx.conf")
			text := fmt.Sprintf(nginxConfig, p.server.dir, port, row.sendfile, row.workers)
			if os.Geteuid() == 0 {
				text = "user root;\n" + text
			}
			if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, small := randomFile(t, p.server.dir, 100)
			_, large := randomFile(t, p.server.dir, 6<<20)
			server := p.server.runTCP(t, "nginx", "-c", config)
			server.listens(t, p.server, port)
			url := fmt.Sprintf("http://%s:%d/random-", p.address, port)
			for _, want := range [][]byte{small, large, small} {
				got := p.client.runTCP(t, "curl", "-sSf", url+strconv.Itoa(len(want))).succeed(t)
				if !bytes.Equal([]byte(got), want) {
					t.Errorf("%d bytes came as %d others", len(want), len(got))
				}
			}
			// Many requests on one connection, while it is looked at.
			slow := p.client.runTCP(t, "curl", "-sSf", "--limit-rate", "4M", "-o", "/dev/null",
				url+strconv.Itoa(len(large)))
			byRDMA(t, slow, p.client, port)
			slow.succeed(t)
			many := p.client.runTCP(t, "curl", "-sSf", "-o", "/dev/null", url+"100?[1-200]")
			many.succeed(t)
			// Who knows nothing of RDMA is served as well.
			plain := p.client.run(t, "curl", "-sSf", url+"100").succeed(t)
			if plain != string(small) {
				t.Error("a TCP client got something else")
			}
			server.stop(t)
		}
	})
}

func TestRedis(t *testing.T) {
	atPlaces(t, func(t *testing.T, p place) {
		port := newPort(t)
		at := []string{"-h", p.address, "-p", strconv.Itoa(port)}
		server := p.server.runTCP(t, "redis-server", "--port", strconv.Itoa(port), "--save", "",
			"--protected-mode", "no", "--dir", p.server.dir)
		server.listens(t, p.server, port)
		cli := func(args ...string) string {
			return p.client.runTCP(t, append(append([]string{"redis-cli"}, at...), args...)...).succeed(t)
		}
		value := strings.Repeat("0123456789abcdef", 6000)
		if out := cli("set", "key", value); out != "OK\n" {
			t.Errorf("set: %q", out)
		}
		if out := cli("get", "key"); out != value+"\n" {
			t.Errorf("get returns %d bytes", len(out))
		}
		bench := p.client.runTCP(t, append(append([]string{"redis-benchmark"}, at...),
			"-t", "set,get", "-n", "20000", "-c", "30", "-d", "500", "--csv")...)
		byRDMA(t, bench, p.client, port)
		if out := bench.succeed(t); !strings.Contains(out, "\"GET\"") {
			t.Errorf("no result:\n%s", out)
		}
		pipelined := p.client.runTCP(t, append(append([]string{"redis-benchmark"}, at...),
			"-t", "set,get", "-n", "20000", "-P", "32", "--csv")...)
		pipelined.succeed(t)
		plain := p.client.run(t, append(append([]string{"redis-cli"}, at...), "ping")...)
		if out := plain.succeed(t); out != "PONG\n" {
			t.Errorf("a TCP client hears %q", out)
		}
		cli("shutdown", "nosave")
		server.succeed(t)
	})
}

// TestNICKilled: a server whose NIC dies serves by TCP, and by RDMA again when there is a new one.
func TestNICKilled(t *testing.T) {
	h := oneHost(t)
	port := newPort(t)
	nic := h.start(t, binary(t), "up")
	nic.until(t, "it is ready", func() bool { return strings.Contains(h.ps(t), "no program") })
	server := h.runTCP(t, "redis-server", "--port", strconv.Itoa(port), "--save", "",
		"--dir", h.dir)
	server.listens(t, h, port)
	bench := h.runTCP(t, "redis-benchmark", "-p", strconv.Itoa(port), "-t", "set", "-n", "100000000")
	byRDMA(t, bench, h, port)
	_ = nic.cmd.Process.Kill()
	ping := []string{"redis-cli", "-p", strconv.Itoa(port), "ping"}
	if out := h.start(t, ping...).succeed(t); out != "PONG\n" {
		t.Errorf("by TCP the server says %q", out)
	}
	bench.stop(t) // unless it has given up, it goes on by TCP
	again := h.start(t, binary(t), "up")
	again.until(t, "the server listens on it", func() bool {
		h.start(t, ping...).succeed(t)
		return strings.Contains(h.ps(t), fmt.Sprintf(":%d ", port))
	})
	if out := h.runTCP(t, ping...).succeed(t); out != "PONG\n" {
		t.Errorf("by RDMA the server says %q", out)
	}
	server.stop(t)
	again.stop(t)
}

// TestFallback: a peer that has no rsockets is called by TCP.
func TestFallback(t *testing.T) {
	atPlaces(t, func(t *testing.T, p place) {
		port := newPort(t)
		server := p.server.start(t, "iperf3", "-s", "--forceflush", "-p", strconv.Itoa(port))
		for i, row := range []string{"-t 1", "-n 1M"} {
			iperf3Ready(t, server, i+1)
			args := append([]string{"iperf3", "-c", p.address, "-p", strconv.Itoa(port)},
				strings.Fields(row)...)
			p.client.runTCP(t, args...).succeed(t)
		}
		server.stop(t)
	})
}

// TestRstream_Sockets runs the benchmark on TCP sockets that are rsockets.
func TestRstream_Sockets(t *testing.T) {
	atPlaces(t, func(t *testing.T, p place) {
		for _, row := range []string{
			"-T v -T s -I 5 -C 5 -S 100000", "-T s -T a -T v -I 5 -C 5 -S 3000",
			"-T s -T b -T v -I 5 -C 5 -S 65536",
		} {
			port := newPort(t)
			args := append(strings.Fields(row), "-p", strconv.Itoa(port))
			server := p.server.runTCP(t, append([]string{"rstream"}, args...)...)
			server.listens(t, p.server, port)
			p.client.runTCP(t, append([]string{"rstream", "-s", p.address}, args...)...).succeed(t)
			server.succeed(t)
		}
	})
}

// TestFork: the queue pair stays with the process that accepted, the connection goes on with its
// children.
func TestFork(t *testing.T) {
	t.Run("rstream", func(t *testing.T) {
		h := oneHost(t)
		port := newPort(t)
		args := strings.Fields(fmt.Sprintf("-T v -I 5 -C 5 -S 100000 -p %d", port))
		server := h.runTCP(t, append([]string{"rstream", "-T", "f"}, args...)...)
		server.listens(t, h, port)
		h.runTCP(t, append([]string{"rstream", "-s", "127.0.0.1", "-T", "s"}, args...)...).succeed(t)
		server.succeed(t)
	})
	for _, how := range []string{"fork", "exec"} {
		t.Run(how, func(t *testing.T) {
			atPlaces(t, func(t *testing.T, p place) {
				script := func(name string) string {
					path, err := filepath.Abs(filepath.Join("testdata", name))
					if err != nil {
						t.Fatal(err)
					}
					return path
				}
				port := newPort(t)
				server := p.server.runTCP(t, "python3", script("echo_server.py"), how,
					strconv.Itoa(port))
				server.listens(t, p.server, port)
				for _, connections := range []string{"1", "8"} {
					p.client.runTCP(t, "python3", script("echo_client.py"), p.address,
						strconv.Itoa(port), connections).succeed(t)
				}
				server.stop(t)
			})
		})
	}
}

// TestTCPCalls runs a program on TCP and on rsockets: it is to see the same.
func TestTCPCalls(t *testing.T) {
	bin := compile(t, "tcp_test.c")
	h := oneHost(t)
	for _, name := range []string{
		"levels", "edges", "room", "early_watch", "doubles", "calls", "refused",
	} {
		t.Run(name, func(t *testing.T) {
			h.start(t, bin, name, "tcp").succeed(t)
			h.runTCP(t, bin, name, "rdma").succeed(t)
			// Without a NIC at the other end, and so without RDMA.
			h.run(t, bin, name, "tcp").succeed(t)
		})
	}
}

// TestThreads: an event loop is not the only way; here each connection has a thread.
func TestThreads(t *testing.T) {
	h := oneHost(t)
	port := newPort(t)
	server := h.runTCP(t, "python3", "-u", "-m", "http.server", strconv.Itoa(port))
	server.listens(t, h, port)
	_, want := randomFile(t, h.dir, 3<<20)
	for range 3 {
		got := h.runTCP(t, "curl", "-sSf",
			fmt.Sprintf("http://127.0.0.1:%d/random-%d", port, len(want))).succeed(t)
		if got != string(want) {
			t.Errorf("%d bytes came as %d others", len(want), len(got))
		}
	}
	server.stop(t)
}
