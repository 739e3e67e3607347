package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/internal/bench"
)

// playEnv makes the test program one of this package's.
const playEnv = "SOFTRNIC_TEST_PROBE"

func TestMain(m *testing.M) {
	if os.Getenv(playEnv) != "" {
		if err := Main(context.Background(), os.Stdout, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := os.Setenv(playEnv, "1"); err != nil {
		panic(err)
	}
	Command = []string{os.Args[0]}
	os.Exit(m.Run())
}

// play runs a program in this process.
func play(t *testing.T, args ...string) bench.Sample {
	t.Helper()
	var out bytes.Buffer
	if err := Main(t.Context(), &out, args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	var s bench.Sample
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatalf("%v: %q: %v", args, out.String(), err)
	}
	return s
}

// wants looks for figures that can be.
func wants(t *testing.T, s bench.Sample, units ...bench.Unit) {
	t.Helper()
	for _, u := range units {
		if s[u] <= 0 {
			t.Errorf("%v %s in %v", s[u], u, s)
		}
	}
}

// freeAddress is one that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// duo plays both sides.
func duo(t *testing.T, server, client string, args ...string) bench.Sample {
	t.Helper()
	address := freeAddress(t)
	served := make(chan error, 1)
	go func() {
		served <- Main(context.Background(), &bytes.Buffer{}, append([]string{server, address}, args...))
	}()
	var out bytes.Buffer
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		out.Reset()
		err := Main(t.Context(), &out, append([]string{client, address}, args...))
		if err == nil {
			break
		}
		if time.Now().After(limit) || len(served) > 0 {
			t.Fatalf("%s: %v", client, err)
		}
	}
	if err := <-served; err != nil {
		t.Fatalf("%s: %v", server, err)
	}
	var s bench.Sample
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCopy_Pieces_HaveABandwidth(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a gigabyte")
	}
	wants(t, play(t, Copy, "65536", "150"), bench.Bandwidth)
}

func TestPingPong_TwoProcesses_HaveALatency(t *testing.T) {
	wants(t, play(t, PingPong, "200"), bench.Latency)
}

func TestTCP_BothSides_Measure(t *testing.T) {
	wants(t, duo(t, TCPServe, TCPSend, "1000", "50"), bench.Bandwidth, bench.Rate, bench.CPUCost)
	wants(t, duo(t, TCPEcho, TCPPing, "8", "50"), bench.Latency)
}

func TestUDP_BothSides_Measure(t *testing.T) {
	for _, checks := range []string{"0", "1"} {
		s := duo(t, UDPServe, UDPSend, "1040", "1000", checks)
		wants(t, s, bench.Bandwidth, bench.CPUCost)
	}
	wants(t, duo(t, UDPServe, UDPSend, "64", "2000", "0"), bench.Rate)
}

// startNIC makes a NIC in this process the one of the environment.
func startNIC(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "probe-") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "rnic.sock")
	nic, err := softrnic.Start(context.Background(), softrnic.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.Close() })
	t.Setenv("RNIC_SOCKET", socket)
}

func TestVerbs_EveryOperation_Measures(t *testing.T) {
	startNIC(t)
	for _, operation := range []string{OperationWrite, OperationRead, OperationAdd, OperationSend} {
		t.Run(operation, func(t *testing.T) {
			wants(t, play(t, Verbs, operation, "8", "1000", "16"), bench.Rate, bench.Bandwidth)
			wants(t, play(t, Verbs, operation, "8", "100", "1"), bench.Latency)
		})
	}
}

func TestCrowd_QueuePairs_WorkAndRest(t *testing.T) {
	startNIC(t)
	self := fmt.Sprint(os.Getpid())
	for _, n := range []string{"1", "20"} {
		wants(t, play(t, RoundRobin, n, "200", self), bench.Cost)
	}
	s := play(t, Idle, "20", "50", self)
	if _, has := s[bench.CPUShare]; !has || s[bench.CPUShare] < 0 || s[bench.CPUShare] > 1000 {
		t.Errorf("idle: %v", s)
	}
}

func TestSimulate_Seeds_GivePackets(t *testing.T) {
	wants(t, play(t, Simulate, "1"), bench.PerSecond)
	wants(t, play(t, SimHosts, "3"), bench.Count)
}

func TestConnect_EveryNetwork_Measures(t *testing.T) {
	startNIC(t)
	for _, network := range []string{NetworkTCP, NetworkRnet, NetworkCM} {
		t.Run(network, func(t *testing.T) {
			address := freeAddress(t)
			server, err := self(t.Context(), ConnectServe, address, network, InTurn)
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = server.Process.Kill()
				_ = server.Wait()
			}()
			for limit := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				c, err := net.Dial("tcp", address)
				if err == nil {
					_ = c.Close()
					break
				}
				if time.Now().After(limit) {
					t.Fatal(err)
				}
			}
			wants(t, play(t, Connect, address, network, InTurn), bench.PerSecond)
		})
	}
}

func TestMain_WrongArguments_AreRefused(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"nothing"},
		{Copy},
		{Copy, "0", "1"},
		{Copy, "x", "1"},
		{Verbs, "leap", "1", "1", "1"},
		{UDPSend},
		{UDPServe, "nowhere", "1", "1", "1"},
		{Connect, "127.0.0.1:1", "post", HTTP},
		{RoundRobin, "1", "1", "-1"},
		{SimHosts, "0"},
	} {
		var out bytes.Buffer
		if err := Main(t.Context(), &out, args); err == nil {
			t.Errorf("%v print %q", args, out.String())
		}
	}
}
