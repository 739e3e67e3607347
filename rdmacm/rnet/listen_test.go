package rnet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/rdmacm/rnet"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestListener_ManyConnections_LeaveNothingBehind(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	run := func(n int) {
		l, err := rnet.Listen("rdma", ":0", on(nicB))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range n {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				wg.Go(func() {
					_, err := io.Copy(c, c)
					if err := errors.Join(err, c.Close()); err != nil {
						t.Error(err)
					}
				})
			}
		})
		for i := range n {
			wg.Go(func() {
				d := rnet.Dialer{Config: on(nicA)}
				c, err := d.DialContext(nictest.Soon(t), "tcp", "10.0.0.2:"+portOf(l))
				if err != nil {
					t.Error(err)
					return
				}
				text := fmt.Sprint("client ", i)
				_, err = c.Write([]byte(text))
				err = errors.Join(err, c.(*rnet.Conn).CloseWrite())
				got, err2 := io.ReadAll(c)
				if err := errors.Join(err, err2, c.Close()); err != nil || string(got) != text {
					t.Errorf("%s: %q, %v", text, got, err)
				}
			})
		}
		wg.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	run(2)
	goroutines, fds := runtime.NumGoroutine(), nictest.Descriptors()
	run(200)
	for range 5 {
		run(3)
	}
	nictest.Settles(t, "goroutines", goroutines, runtime.NumGoroutine)
	nictest.Settles(t, "descriptors", fds, nictest.Descriptors)
}

func TestListener_Close_EndsAcceptAndWhoWaits(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, on(nicB))
	c := dial(t, l, "10.0.0.2", on(nicA)) // nobody accepts it
	ended := make(chan error, 1)
	m := listen(t, on(nicB))
	go func() {
		_, err := m.Accept()
		ended <- err
	}()
	for _, x := range []*rnet.Listener{l, m, m} {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	_ = c.SetDeadline(time.Now().Add(nictest.Patience))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read: %d, %v", n, err)
	}
	d := rnet.Dialer{Config: on(nicA)}
	_, err := d.DialContext(nictest.Soon(t), "rdma", "10.0.0.2:"+portOf(l))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial: %v", err)
	}
}

func TestListener_Stranger_IsRefusedAndToldWhy(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, on(nicB))
	address := "10.0.0.2:" + portOf(l)
	for _, private := range []string{"", "hello, I am an ordinary program of rdma_cm", "rnet\x02" +
		strings.Repeat("x", 23), "rnet\x01" + strings.Repeat("\x00", 23)} {
		_, err := rdmacm.Dial(nictest.Soon(t), "rdma", address,
			rdmacm.Config{NIC: nicA, PrivateData: []byte(private)})
		var no *rdmacm.RejectedError
		if !errors.As(err, &no) || !strings.HasPrefix(string(no.PrivateData), "rnet: the peer does not") {
			t.Errorf("%q: %v", private, err)
		}
	}
	// And the other way round.
	plain, err := rdmacm.Listen(nictest.Soon(t), "rdma", ":0", rdmacm.Config{NIC: nicB})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := plain.Accept(nictest.Soon(t))
		if err != nil {
			t.Error(err)
			return
		}
		if c, err := r.Accept(nictest.Soon(t), rdmacm.Config{}); err == nil {
			<-c.Done()
			_ = c.Close()
		}
	}()
	d := rnet.Dialer{Config: on(nicA)}
	_, err = d.DialContext(nictest.Soon(t), "rdma", "10.0.0.2:"+portOf(plain))
	if err == nil || !strings.Contains(err.Error(), "does not speak rnet") {
		t.Errorf("Dial: %v", err)
	}
	<-done
}

const ring = 8192

// validHello is what a peer of this package with a ring of that size says.
func validHello() []byte {
	hello := append([]byte("rnet\x01"), make([]byte, 23)...)
	hello[22], hello[27] = ring>>8, 128
	return hello
}

// A peer that has the right words and breaks the rules: the connection ends with an error, and
// nothing else happens.
func TestConn_HostilePeer_ConnectionEnds(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, on(nicB))
	for name, wrs := range map[string][]verbs.SendWR{
		"too much":    {{Opcode: verbs.WRWriteWithImm, Imm: ring + 1}},
		"nothing":     {{Opcode: verbs.WRWriteWithImm, Imm: 0}},
		"enormous":    {{Opcode: verbs.WRWriteWithImm, Imm: 1 << 31}},
		"more credit": {{Opcode: verbs.WRSendWithImm, Imm: 1<<30 | 1}},
		"more slots":  {{Opcode: verbs.WRSendWithImm, Imm: 1<<30 | 1<<22}},
		"nonsense":    {{Opcode: verbs.WRSendWithImm, Imm: 3 << 30}},
		"plain send":  {{Opcode: verbs.WRSend}},
		"beyond the end": {
			{Opcode: verbs.WRSendWithImm, Imm: 2 << 30}, {Opcode: verbs.WRWriteWithImm, Imm: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rogue, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:"+portOf(l), rdmacm.Config{
				NIC: nicA, PrivateData: validHello(),
				Prepare: func(qp *verbs.QP) error {
					_, err := qp.PostRecv(make([]verbs.RecvWR, 16)...)
					return err
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer rogue.Close()
			victim, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := rogue.QP().PostSend(wrs...); err != nil {
				t.Fatal(err)
			}
			_ = victim.SetDeadline(time.Now().Add(nictest.Patience))
			_, err = victim.Read(make([]byte, 1))
			if name == "beyond the end" && errors.Is(err, io.EOF) {
				_, err = victim.Write([]byte("x"))
				for err == nil {
					_, err = victim.Write(pattern(1000))
				}
			}
			if !errors.Is(err, syscall.EPROTO) {
				t.Errorf("%v", err)
			}
			_ = victim.Close()
			<-rogue.Done()
		})
	}
}

func TestConn_PeerKilled_WhatArrivedIsReadThenAnError(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	cfg := on(rdmacm.Socket(socket))
	for _, how := range []string{"hang", "close"} {
		l := listen(t, cfg)
		source := nictest.StartPart(t, "source", socket)
		fmt.Fprintln(source.In, "127.0.0.1:"+portOf(l), 50_000, how)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(nictest.Patience))
		want := io.EOF
		if how == "hang" {
			if got := source.Line(t); got != "written" {
				t.Fatalf("the source says %q", got)
			}
			source.Kill()
			want = syscall.ECONNRESET
		} else if err := source.Wait(); err != nil { // the program has ended before we read
			t.Fatal(err)
		}
		got := make([]byte, 50_000)
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, pattern(len(got))) {
			t.Errorf("%s: %v", how, err)
		}
		if _, err := c.Read(got); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", how, err, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConn_NICDies_EverybodyWakes(t *testing.T) {
	socket, nic := nictest.StartProcess(t)
	cfg := on(rdmacm.Socket(socket))
	a, b := pair(t, "127.0.0.1", cfg, cfg)
	l := listen(t, cfg)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(io.Discard, a); !errors.Is(err, verbs.ErrDeviceFatal) {
			t.Errorf("Read: %v", err)
		}
	})
	wg.Go(func() {
		var err error
		for err == nil {
			_, err = b.Write(pattern(10_000))
		}
		if !errors.Is(err, verbs.ErrDeviceFatal) {
			t.Errorf("Write: %v", err)
		}
	})
	wg.Go(func() {
		if _, err := l.Accept(); !errors.Is(err, verbs.ErrDeviceFatal) {
			t.Errorf("Accept: %v", err)
		}
	})
	time.Sleep(5 * time.Millisecond)
	nic.Kill()
	wg.Wait()
}

// A host that vanishes says nothing; the probes find out.
func TestConn_PeerSilent_ReaderGetsAnError(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	cfg := on(nicB)
	cfg.KeepAlive = 10 * time.Millisecond
	cfg.CM.AckTimeout = 8 // a millisecond
	l := listen(t, cfg)
	silent, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:"+portOf(l),
		rdmacm.Config{NIC: nicA, PrivateData: validHello()})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := silent.QP().ToReset(); err != nil { // packets for it are dropped
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(nictest.Patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, verbs.ErrRetryExceeded) {
		t.Errorf("Read: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Close gives a peer up that takes nothing, in the time that it was given, and says so.
func TestConn_CloseOnSilentPeer_EndsAfterLinger(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	cfg := on(nicB)
	cfg.Linger = 50 * time.Millisecond
	l := listen(t, cfg)
	silent, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:"+portOf(l),
		rdmacm.Config{NIC: nicA, PrivateData: validHello()})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := silent.QP().ToReset(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begin); took < cfg.Linger || took > nictest.Patience {
		t.Errorf("Close took %v", took)
	}
}
