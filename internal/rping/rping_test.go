package rping

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/verbs"
)

const testTimeout = 20 * time.Second

func startNIC(t *testing.T) *softrnic.NIC {
	t.Helper()
	nic, err := softrnic.Start(t.Context(), softrnic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nic.Close() })
	return nic
}

// startServer returns where a server listens, and what it tells of clients.
func startServer(t *testing.T, nic verbs.Connector) (
	address string, visits chan Visit, stop func(),
) {
	t.Helper()
	s, err := Listen(t.Context(), "127.0.0.1:0", Config{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	visits = make(chan Visit, 100)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, func(v Visit) { visits <- v }) }()
	stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("server: %v", err)
			}
			ended <- nil
		case <-time.After(testTimeout):
			t.Error("the server does not end")
		}
	}
	t.Cleanup(stop)
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port, visits, stop
}

func visit(t *testing.T, visits chan Visit) Visit {
	t.Helper()
	select {
	case v := <-visits:
		return v
	case <-time.After(testTimeout):
		t.Fatal("the server does not notice that its client has left")
		return Visit{}
	}
}

func TestClient_Rounds_BytesComeBack(t *testing.T) {
	nic := startNIC(t)
	address, visits, _ := startServer(t, nic)
	for _, size := range []int{1, 2, 15, 64, 4097, 1 << 20} {
		c, err := Dial(t.Context(), address, Config{NIC: nic, Size: size, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			took, err := c.Round(t.Context())
			if err != nil || took <= 0 {
				t.Errorf("size %d: %v, %v", size, took, err)
			}
		}
		if c.RemoteAddr().String() != address || c.LocalAddr() == nil {
			t.Errorf("from %v to %v, not %v", c.LocalAddr(), c.RemoteAddr(), address)
		}
		c.Close()
		if v := visit(t, visits); v.Err != nil || v.Rounds != 3 || v.Bytes != uint64(3*size) {
			t.Errorf("size %d: the server tells %+v", size, v)
		}
	}
}

func TestClient_ServerEnds_RoundSaysDisconnected(t *testing.T) {
	nic := startNIC(t)
	address, _, stop := startServer(t, nic)
	c, err := Dial(t.Context(), address, Config{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if _, err := c.Round(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a round without a server: %v", err)
	}
}

func TestDial_NobodyListens_Refused(t *testing.T) {
	_, err := Dial(t.Context(), "127.0.0.1:9", Config{NIC: startNIC(t)})
	var rejected *rdmacm.RejectedError
	if !errors.As(err, &rejected) {
		t.Errorf("%v", err)
	}
}

func TestDial_SizeOutOfBounds_IsRefused(t *testing.T) {
	for _, size := range []int{-1, SizeMax + 1} {
		if _, err := Dial(t.Context(), "127.0.0.1:9", Config{Size: size}); err == nil {
			t.Errorf("size %d is taken", size)
		}
	}
}

// rude is a client that sends what it likes.
func rude(t *testing.T, nic verbs.Connector, address string, message []byte) *rdmacm.Conn {
	t.Helper()
	conn, err := rdmacm.Dial(t.Context(), "rdma", address, rdmacm.Config{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if message != nil {
		_, err := conn.QP().PostSend(verbs.SendWR{Opcode: verbs.WRSend, Inline: message})
		if err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

func TestServer_RudeClients_EndAloneWithAReason(t *testing.T) {
	nic := startNIC(t)
	address, visits, _ := startServer(t, nic)
	for name, message := range map[string][]byte{
		"short":     []byte("hello"),
		"no key":    buffer{0x1000, 0x999, 64}.append(nil),
		"no bytes":  buffer{0x1000, 0x999, 0}.append(nil),
		"too large": buffer{0x1000, 0x999, SizeMax + 1}.append(nil),
	} {
		conn := rude(t, nic, address, message)
		if v := visit(t, visits); v.Err == nil || v.Rounds != 0 {
			t.Errorf("%s: the server tells %+v", name, v)
		}
		select {
		case <-conn.Done():
		case <-time.After(testTimeout):
			t.Errorf("%s: the server keeps the connection", name)
		}
	}
	c, err := Dial(t.Context(), address, Config{NIC: nic, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Round(t.Context()); err != nil {
		t.Errorf("after rude clients: %v", err)
	}
}

// A server that lies about what it wrote is found out.
func TestClient_ServerWritesNothing_Damaged(t *testing.T) {
	nic := startNIC(t)
	ln, err := rdmacm.Listen(t.Context(), "rdma", "127.0.0.1:0", rdmacm.Config{NIC: nic})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	go func() {
		request, err := ln.Accept(t.Context())
		if err != nil {
			return
		}
		session := mustShare(t, nic)
		l, err := newLink(session, session.PD())
		if err != nil {
			return
		}
		conn, err := request.Accept(t.Context(), l.config())
		if err != nil {
			return
		}
		l.attach(conn)
		for {
			if _, err := l.await(t.Context()); err != nil || l.send(buffer{}) != nil {
				l.close()
				return
			}
		}
	}()
	c, err := Dial(t.Context(), ln.Addr().String(), Config{NIC: nic, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 { // the connection goes on
		if _, err := c.Round(t.Context()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v", err)
		}
	}
}

func mustShare(t *testing.T, nic verbs.Connector) *rdmacm.Session {
	s, err := rdmacm.Share(t.Context(), nic)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestFill_AnySize_IsAString(t *testing.T) {
	for size := 1; size < 300; size++ {
		b := make([]byte, size)
		fill(b, 12345)
		if i := bytes.IndexByte(b, 0); i != size-1 {
			t.Fatalf("size %d: the string ends at %d", size, i)
		}
	}
	b := make([]byte, 64)
	fill(b, 7)
	if !strings.HasPrefix(string(b), "rdma-ping-7: ") {
		t.Errorf("%q", b)
	}
}

func TestBuffer_AppendAndParse_Agree(t *testing.T) {
	want := buffer{0x0102030405060708, 0x0a0b0c0d, 0x11121314}
	text := want.append(nil)
	if !bytes.Equal(text, []byte{
		1, 2, 3, 4, 5, 6, 7, 8, 0xa, 0xb, 0xc, 0xd, 0x11, 0x12, 0x13, 0x14,
	}) {
		t.Errorf("% x", text)
	}
	if got := parseBuffer(text); got != want {
		t.Errorf("%+v", got)
	}
}

func TestStats_Rounds_MeanAndDeviation(t *testing.T) {
	var s Stats
	if s.String() != "rtt min/avg/max/mdev = 0.0/0.0/0.0/0.0 us" {
		t.Errorf("no round: %v", &s)
	}
	for _, us := range []time.Duration{2, 4, 4, 4, 5, 5, 7, 9} {
		s.Add(us*time.Microsecond, us == 9)
	}
	if s.String() != "rtt min/avg/max/mdev = 2.0/5.0/9.0/2.0 us" || s.Damaged != 1 || s.Rounds != 8 {
		t.Errorf("%v, %+v", &s, s)
	}
}
