package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/verbs"
)

func startIWARP(t *testing.T) *daemon.Daemon {
	return start(t, daemon.Config{
		Embedded: true, NoNetwork: true, Devices: []string{"rnic0", "iwarp0=iwarp"},
	})
}

// meetByTCP makes two ends that are connected by iWARP within a NIC.
func meetByTCP(t *testing.T, d *daemon.Daemon) (a, b *tcpEnd) {
	t.Helper()
	return meetAt(t, d, d, "127.0.0.1:0")
}

// meetAt connects an end on one NIC to an address where another listens.
func meetAt(t *testing.T, active, passive *daemon.Daemon, address string) (a, b *tcpEnd) {
	t.Helper()
	return meetBy(t, "iwarp0", active, passive, address)
}

// meetBy is meetAt with a choice of the active side's device.
func meetBy(
	t *testing.T, device string, active, passive *daemon.Daemon, address string,
) (a, b *tcpEnd) {
	t.Helper()
	a, b = &tcpEnd{t: t}, &tcpEnd{t: t}
	config := func(d *daemon.Daemon, e *tcpEnd) rdmacm.Config {
		session, err := rdmacm.Open(t.Context(), connector{d})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		return rdmacm.Config{Session: session, Device: "iwarp0", Prepare: e.prepare}
	}
	theirs := config(passive, b)
	l, err := rdmacm.Listen(t.Context(), "rdma", address, theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan error, 1)
	go func() {
		r, err := l.Accept(t.Context())
		if err == nil {
			b.conn, err = r.Accept(t.Context(), theirs)
		}
		done <- err
	}()
	ours := config(active, a)
	ours.Device = device
	a.conn, err = rdmacm.Dial(t.Context(), "rdma", l.Addr().String(), ours)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a session cannot end before
		_ = a.conn.Close()
		_ = b.conn.Close()
	})
	return a, b
}

// tcpEnd is one end, with a buffer and one receive.
type tcpEnd struct {
	t    *testing.T
	conn *rdmacm.Conn
	mr   *verbs.MR
}

const tcpBuffer = 300_000

func (e *tcpEnd) prepare(qp *verbs.QP) (err error) {
	if e.mr, err = qp.PD().AllocMemory(tcpBuffer, allRights); err != nil {
		return err
	}
	_, err = qp.PostRecv(verbs.RecvWR{ID: 1, SGE: e.mr.SGE(0, tcpBuffer)})
	return err
}

// send sends the text and waits until the other end has it.
func (e *tcpEnd) send(to *tcpEnd, text []byte) {
	e.t.Helper()
	copy(e.mr.Bytes(), text)
	if _, err := e.conn.QP().PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, SGE: e.mr.SGE(0, len(text)), Flags: verbs.SendSignaled,
	}); err != nil {
		e.t.Fatal(err)
	}
	for _, side := range []*tcpEnd{e, to} {
		wcs := make([]verbs.WC, 1)
		for begin := time.Now(); ; runtime.Gosched() {
			n, err := side.conn.SendCQ().Poll(wcs)
			if err == nil && n == 1 {
				err = wcs[0].Err()
				n = 1
			}
			if err != nil || time.Since(begin) > testTimeout {
				e.t.Fatalf("no completion: %v", err)
			}
			if n == 1 {
				break
			}
		}
	}
	if got := to.mr.Bytes()[:len(text)]; !bytes.Equal(got, text) {
		e.t.Errorf("%d bytes are not what was sent", len(text))
	}
}

// TestDaemon_CaptureOfTCP_ByQueuePair_TsharkDecodesIt captures one of two connections from its
// middle on.
func TestDaemon_CaptureOfTCP_ByQueuePair_TsharkDecodesIt(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	d := startIWARP(t)
	a, b := meetByTCP(t, d)
	c, e := meetByTCP(t, d)
	capture := startCapture(t, d, abi.CaptureReq{QPN: uint32(a.conn.QP().QPN())})
	text := bytes.Repeat([]byte("of this connection "), 10_000)
	a.send(b, text)
	c.send(e, bytes.Repeat([]byte("of the other "), 10_000))
	_ = a.conn.Close()
	rsp := capture.endRaw()
	if bytes.Contains(rsp, []byte("of the other")) {
		t.Error("another connection is in the file")
	}
	name := filepath.Join(t.TempDir(), "file.pcapng")
	if err := os.WriteFile(name, rsp, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", name, "--disable-protocol", "rpcordma",
		"-o", "tcp.check_checksum:TRUE").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := string(out)
	for _, want := range []string{
		"[SYN]", "MPA Request", "MPA Reply", "Send [last DDP", "[FIN, ACK]",
	} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %s in\n%s", want, lines)
		}
	}
	for _, bad := range []string{"alformed", "ncorrect", "Retransmission", "Lost", "not captured"} {
		if strings.Contains(lines, bad) {
			t.Errorf("%s in\n%s", bad, lines)
		}
	}
}

// endRaw ends a capture and returns its file.
func (c *capture) endRaw() []byte {
	c.t.Helper()
	if _, _, err := ctl.Call[abi.CaptureRsp](c.client, abi.OpEndCapture, nil); err != nil {
		c.t.Fatal(err)
	}
	select {
	case text := <-c.file:
		return text
	case <-time.After(testTimeout):
		c.t.Fatal("the capture does not end")
	}
	return nil
}

// startOnTCP starts a NIC in a namespace whose only device is one over TCP.
func startOnTCP(t *testing.T, n *netnstest.Namespace) (d *daemon.Daemon) {
	t.Helper()
	n.Do(func() {
		d = start(t, daemon.Config{Embedded: true, Devices: []string{"rnic0=none", "iwarp0=iwarp"}})
	})
	return d
}

// TestDaemon_TCPAlone_LeavesUDPToOthers has a NIC for RoCE beside two that have TCP only.
func TestDaemon_TCPAlone_LeavesUDPToOthers(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	here, there := startOnTCP(t, a), startOnTCP(t, b)
	if here.LocalOnly() != "" {
		t.Fatalf("no network: %s", here.LocalOnly())
	}
	var roce, second *daemon.Daemon
	a.Do(func() {
		roce = start(t, daemon.Config{Embedded: true, Devices: []string{"rnic0", "iwarp0=none"}})
		second = start(t, daemon.Config{Embedded: true, Devices: []string{"rnic0", "iwarp0=iwarp"}})
	})
	if roce.LocalOnly() != "" || second.LocalOnly() == "" {
		t.Fatalf("UDP is for %q and %q", roce.LocalOnly(), second.LocalOnly())
	}
	for i, d := range []*daemon.Daemon{here, second, second} {
		device := "iwarp0"
		if i == 2 {
			device = "" // packets do not get there, so that the address alone decides for TCP
		}
		x, y := meetBy(t, device, d, there, b.V4.String()+":0")
		x.send(y, []byte("by TCP"))
		y.send(x, []byte("and back"))
	}
	_, err := rdmacm.DialUD(t.Context(), "rdma", b.V4.String()+":7", rdmacm.Config{
		NIC: connector{second},
	})
	if !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("datagrams: %v", err)
	}
}

func TestDaemon_NICEnds_PeersOnTCPSeeIt(t *testing.T) {
	a, b := netnstest.Pair(t, 1500)
	here, there := startOnTCP(t, a), startOnTCP(t, b)
	x, y := meetAt(t, here, there, b.V4.String()+":0")
	x.send(y, []byte("still there"))
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.conn.Done():
	case <-time.After(testTimeout):
		t.Fatal("the connection outlives the peer's NIC")
	}
	eventually(t, "no connection is left", func() bool {
		s, ok := here.Status()
		return ok && s.Streams.Connections == 0 && s.Streams.Closing == 0
	})
}

// TestDaemon_CycleOfTCP_LeavesNothing makes and ends NICs, connections, and peers that never speak.
func TestDaemon_CycleOfTCP_LeavesNothing(t *testing.T) {
	settled(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d, err := daemon.Start(ctx, daemon.Config{
			Embedded: true, NoNetwork: true, Devices: []string{"iwarp0=iwarp"},
		})
		if err != nil {
			t.Fatal(err)
		}
		session, err := rdmacm.Open(ctx, connector{d})
		if err != nil {
			t.Fatal(err)
		}
		l, err := rdmacm.Listen(ctx, "rdma", "127.0.0.1:0", rdmacm.Config{
			Session: session, Device: "iwarp0",
		})
		if err != nil {
			t.Fatal(err)
		}
		silent, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		web, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = web.Write([]byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"))
		_ = web.SetReadDeadline(time.Now().Add(testTimeout))
		if got, err := io.ReadAll(web); len(got) > 0 {
			t.Errorf("a web client got %q, %v", got, err)
		}
		for _, close := range []func() error{l.Close, session.Close, d.Close, silent.Close, web.Close} {
			if err := close(); err != nil {
				t.Error(err)
			}
		}
	})
}
