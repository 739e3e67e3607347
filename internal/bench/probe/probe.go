package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/softrnic/softrnic/internal/bench"
)

// Names of programs, with their arguments.
const (
	Copy       = "copy"        // SIZE COUNT
	PingPong   = "pingpong"    // ROUNDS
	UDPServe   = "udp-serve"   // ADDRESS SEGMENT COUNT CHECKSUMS
	UDPSend    = "udp-send"    // ADDRESS SEGMENT COUNT CHECKSUMS
	TCPServe   = "tcp-serve"   // ADDRESS SIZE COUNT
	TCPSend    = "tcp-send"    // ADDRESS SIZE COUNT
	TCPEcho    = "tcp-echo"    // ADDRESS SIZE COUNT
	TCPPing    = "tcp-ping"    // ADDRESS SIZE COUNT
	Verbs      = "verbs"       // OPERATION SIZE COUNT DEPTH
	RoundRobin = "round-robin" // QUEUE-PAIRS OPERATIONS NIC-PID
	Idle       = "idle"        // QUEUE-PAIRS MILLISECONDS NIC-PID
	// Connect and its server ConnectServe take: ADDRESS NETWORK WHAT. The server does not end.
	Connect      = "connect"
	ConnectServe = "connect-serve"
	Simulate     = "simulate"   // MILLISECONDS
	SimHosts     = "sim-hosts"  // HOSTS
	pong         = "pong"       // ROUNDS PROCESSOR; the other side of PingPong
	verbsPeer    = "verbs-peer" // OPERATION SIZE COUNT; that of Verbs
)

type program func(ctx context.Context, args []string) (bench.Sample, error)

// programs are found by name here. It is a function because some of them start others.
func programs(name string) program {
	return map[string]program{
		Copy: measureCopy, PingPong: measurePingPong, pong: playPong,
		UDPServe: serveUDP, UDPSend: sendUDP,
		TCPServe: serveTCP, TCPSend: sendTCP, TCPEcho: echoTCP, TCPPing: pingTCP,
		Verbs: measureVerbs, verbsPeer: playVerbsPeer,
		Connect: measureConnect, ConnectServe: serveConnect,
		RoundRobin: measureRoundRobin, Idle: measureIdle,
		Simulate: measureSimulator, SimHosts: measureSimHosts,
	}[name]
}

// Main runs a program and prints what it found.
func Main(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New("which program?")
	}
	p := programs(args[0])
	if p == nil {
		return fmt.Errorf("no program %q", args[0])
	}
	sample, err := p(ctx, args[1:])
	if err != nil || sample == nil {
		return err
	}
	return json.NewEncoder(out).Encode(sample)
}

// numbers reads arguments that all are.
func numbers(args []string, into ...*int) error {
	if len(args) != len(into) {
		return fmt.Errorf("%d arguments, not %d", len(args), len(into))
	}
	for i, text := range args {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return fmt.Errorf("argument %q is no number that can be", text)
		}
		*into[i] = n
	}
	return nil
}

// pairNumbers reads the address of a pair, and the numbers after it.
func pairNumbers(args []string, into ...*int) (address string, err error) {
	if len(args) == 0 {
		return "", errors.New("no address")
	}
	return args[0], numbers(args[1:], into...)
}
