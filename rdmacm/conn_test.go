package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func textOf(private []byte) string { return strings.TrimRight(string(private), "\x00") }

func TestDial_TwoNICs_PrivateDataAddressesAndMessages(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	for _, c := range []struct{ network, at, to string }{
		{"rdma", ":0", "10.0.0.2"},
		{"rdma", ":0", "fd00::2"},
		{"rdma4", "0.0.0.0:0", "10.0.0.2"},
		{"rdma6", "[fd00::2]:0", "fd00::2"},
	} {
		t.Run(c.network+" "+c.to, func(t *testing.T) {
			l := listen(t, c.network, c.at, rdmacm.Config{NIC: nicB})
			box := newInbox(t, session(t, nicB).PD(), 64)
			to := net.JoinHostPort(c.to, portOf(l.Addr().String()))
			a, b := meet(t, l, to,
				rdmacm.Config{NIC: nicA, PrivateData: []byte("request")},
				rdmacm.Config{NIC: nicB, PrivateData: []byte("reply"), Prepare: box.post})
			if got := textOf(a.PrivateData()); got != "reply" {
				t.Errorf("the active side got %q", got)
			}
			if got := textOf(b.PrivateData()); got != "request" {
				t.Errorf("the passive side got %q", got)
			}
			if a.RemoteAddr().String() != to || b.LocalAddr().String() != to ||
				a.LocalAddr().String() != b.RemoteAddr().String() || a.LocalAddr().Network() != "rdma" {
				t.Errorf("%v -> %v, %v <- %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
			}
			_, err := a.QP().PostSend(verbs.SendWR{
				Opcode: verbs.WRSend, Inline: []byte("hello"), Flags: verbs.SendSignaled,
			})
			if err != nil {
				t.Fatal(err)
			}
			wc := next(t, b.RecvCQ())
			if err := wc.Err(); err != nil || wc.ID != 7 || string(box.mr.Bytes()[:wc.ByteLen]) != "hello" {
				t.Errorf("%+v: %v", wc, err)
			}
			if wc = next(t, a.SendCQ()); wc.Err() != nil {
				t.Error(wc.Err())
			}
		})
	}
}

// C04: loopback addresses reach the NIC of this host. C03: an own address completes.
func TestDial_OwnAddresses_C03_C04_Connect(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	l := listen(t, "rdma", ":0", rdmacm.Config{NIC: nic})
	port := portOf(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "::1", ""} {
		cfg := rdmacm.Config{NIC: nic}
		a, b := meet(t, l, net.JoinHostPort(host, port), cfg, cfg)
		if a.Err() != nil || b.Err() != nil {
			t.Errorf("%q: %v, %v", host, a.Err(), b.Err())
		}
	}
}

func TestDial_ByName_TriesEveryAddress(t *testing.T) {
	if _, err := net.LookupHost("localhost"); err != nil {
		t.Skip("this host does not know localhost")
	}
	nic := nictest.Start(t, softrnic.Config{})
	cfg := rdmacm.Config{NIC: nic}
	l := listen(t, "rdma4", ":0", cfg)
	meet(t, l, "localhost:"+portOf(l.Addr().String()), cfg, cfg)
}

func TestDial_ReadAndWrite_DepthsOfBothSidesCount(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	passive := rdmacm.Config{NIC: nicB, ResponderResources: 3}
	a, b := meet(t, l, "10.0.0.2:7471", rdmacm.Config{NIC: nicA, InitiatorDepth: 5}, passive)
	attrA, errA := a.QP().Query()
	attrB, errB := b.QP().Query()
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if attrA.MaxRdAtomic != 3 || attrB.MaxDestRdAtomic != 3 || attrB.MaxRdAtomic != 16 {
		t.Errorf("READs in flight: %d to %d, %d back", attrA.MaxRdAtomic, attrB.MaxDestRdAtomic,
			attrB.MaxRdAtomic)
	}
	for _, c := range []struct {
		from   *rdmacm.Conn
		target *softrnic.NIC
	}{{a, nicB}, {b, nicA}} {
		mr, err := session(t, c.target).PD().AllocMemory(64, verbs.AccessAll)
		if err != nil {
			t.Fatal(err)
		}
		for _, wr := range []verbs.SendWR{
			{Opcode: verbs.WRWrite, Inline: []byte("written")}, {Opcode: verbs.WRRead},
		} {
			wr.RemoteAddr, wr.RKey, wr.Flags = mr.Addr(), mr.RKey(), verbs.SendSignaled
			if _, err := c.from.QP().PostSend(wr); err != nil {
				t.Fatal(err)
			}
			if wc := next(t, c.from.SendCQ()); wc.Err() != nil {
				t.Error(wc.Err())
			}
		}
		if got := string(mr.Bytes()[:7]); got != "written" {
			t.Errorf("%q", got)
		}
	}
}

func TestDial_Options_ReachTheQueuePair(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	active := rdmacm.Config{
		NIC: nicA, TOS: 0x68, AckTimeout: 17, RetryCount: 3, RNRRetryCount: -1,
		LocalAddress: "10.0.0.1:9000", ReuseAddress: true, QP: verbs.QPConfig{MaxSendWR: 5},
	}
	for range 2 { // the same local port twice
		a, b := meet(t, l, "10.0.0.2:7471", active, rdmacm.Config{AckTimeout: 16})
		attr, err := a.QP().Query()
		if err != nil {
			t.Fatal(err)
		}
		if attr.Path.TrafficClass != 0x68 || attr.Timeout != 17 || attr.RetryCnt != 3 ||
			attr.MaxSendWR < 5 || a.LocalAddr().String() != "10.0.0.1:9000" {
			t.Errorf("active: %+v", attr)
		}
		if attr, err = b.QP().Query(); err != nil {
			t.Fatal(err)
		}
		if attr.Timeout != 16 || attr.RetryCnt != 3 || attr.RNRRetry != 0 {
			t.Errorf("passive: %+v", attr)
		}
	}
}

func TestDial_Rejected_ErrorHasReasonAndPrivateData(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	texts := map[string]rdmacm.Reason{}
	for reason := range rdmacm.Reason(40) { // those of the standard, and some that are none
		go func() {
			r, err := l.Accept(nictest.Soon(t))
			if err == nil {
				err = r.RejectFor(reason, []byte("not you, "+textOf(r.PrivateData())))
			}
			if err != nil {
				t.Error(err)
			}
		}()
		conn, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:7471",
			rdmacm.Config{NIC: nicA, PrivateData: []byte("Mallory")})
		want := reason
		if want == 0 {
			want = rdmacm.ReasonConsumer
		}
		var no *rdmacm.RejectedError
		if conn != nil || !errors.As(err, &no) || no.Reason != want ||
			textOf(no.PrivateData) != "not you, Mallory" || !errors.Is(err, rdmacm.ErrRejected) {
			t.Errorf("reason %d: %v, %v", reason, conn, err)
			continue
		}
		if other, known := texts[no.Error()]; known && other != want {
			t.Errorf("reasons %d and %d are both %q", other, want, no)
		}
		texts[no.Error()] = want
	}
}

// What does not fit into a message is refused on the side that would send it; the peer is told no.
func TestRequest_PrivateDataTooLong_IsRefusedAndThePeerHears(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	for name, answer := range map[string]func(*rdmacm.Request, int) error{
		"REP 196": func(r *rdmacm.Request, n int) error {
			c, err := r.Accept(nictest.Soon(t), rdmacm.Config{PrivateData: make([]byte, n)})
			if c != nil {
				t.Errorf("accepted with %d bytes", n)
			}
			return err
		},
		"REJ 148": func(r *rdmacm.Request, n int) error { return r.Reject(make([]byte, n)) },
	} {
		var most int
		if _, err := fmt.Sscanf(name[4:], "%d", &most); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{most + 1, 255, 256, 100_000} {
			answered := make(chan error, 1)
			go func() {
				r, err := l.Accept(nictest.Soon(t))
				if err == nil {
					err = answer(r, n)
				}
				answered <- err
			}()
			_, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:7471", rdmacm.Config{NIC: nicA})
			if !errors.Is(err, rdmacm.ErrRejected) {
				t.Errorf("%s with %d bytes: the peer hears %v", name, n, err)
			}
			if err := <-answered; !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s with %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestDial_NobodyListens_IsRefused(t *testing.T) {
	nicA, _ := nictest.Hosts(t, "")
	for _, address := range []string{"10.0.0.2:7471", "10.0.0.1:7471"} {
		_, err := rdmacm.Dial(nictest.Soon(t), "rdma", address, rdmacm.Config{NIC: nicA})
		var no *rdmacm.RejectedError
		var op *rdmacm.OpError
		if !errors.As(err, &no) || no.Reason != rdmacm.ReasonInvalidServiceID ||
			!errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) ||
			op.Remote.String() != address || op.Timeout() {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// C14: an address that nobody can reach is an error at once that says why.
func TestDial_C14_NoRoute_SaysWhy(t *testing.T) {
	nicA, _ := nictest.Hosts(t, "")
	foreign := rdmacm.Config{NIC: nicA, LocalAddress: "10.9.9.9:0"}
	_, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:1", foreign)
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("a foreign source address: %v", err)
	}
	nic := nictest.Start(t, softrnic.Config{})
	_, err = rdmacm.Dial(nictest.Soon(t), "rdma6", "[2001:db8::1]:1", rdmacm.Config{NIC: nic})
	if !errors.Is(err, rdmacm.ErrNoRoute) && !errors.Is(err, rdmacm.ErrUnreachable) {
		t.Errorf("an address of nobody: %v", err)
	}
}

func TestDial_BadArguments_AreRefused(t *testing.T) {
	nicA, _ := nictest.Hosts(t, "")
	cfg := rdmacm.Config{NIC: nicA}
	long := cfg
	for _, n := range []int{57, 256} {
		long.PrivateData = make([]byte, n)
		_, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.1:1", long)
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d bytes of private data: %v", n, err)
		}
	}
	var unknown net.UnknownNetworkError
	if _, err := rdmacm.Dial(nictest.Soon(t), "tcp", "10.0.0.1:1", cfg); !errors.As(err, &unknown) {
		t.Errorf("network tcp: %v", err)
	}
	if _, err := rdmacm.Listen(nictest.Soon(t), "udp", ":1", cfg); !errors.As(err, &unknown) {
		t.Errorf("network udp: %v", err)
	}
	var bad *net.AddrError
	if _, err := rdmacm.Dial(nictest.Soon(t), "rdma6", "10.0.0.1:1", cfg); !errors.As(err, &bad) {
		t.Errorf("IPv4 on rdma6: %v", err)
	}
	if _, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.1", cfg); !errors.As(err, &bad) {
		t.Errorf("no port: %v", err)
	}
	cfg.Backlog = -1
	if _, err := rdmacm.Listen(nictest.Soon(t), "rdma", ":1", cfg); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("negative backlog: %v", err)
	}
}

func TestListen_AddressTaken_IsRefused(t *testing.T) {
	nic, _ := nictest.Hosts(t, "")
	cfg := rdmacm.Config{NIC: nic}
	listen(t, "rdma", "10.0.0.1:7471", cfg)
	_, err := rdmacm.Listen(nictest.Soon(t), "rdma", "10.0.0.1:7471", cfg)
	var op *rdmacm.OpError
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &op) || op.Op != "listen" {
		t.Errorf("%v", err)
	}
}

func TestListener_Close_EndsAcceptAndRejectsWhoWaits(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	ended := make(chan error, 1)
	go func() {
		r, err := l.Accept(nictest.Soon(t)) // the first request, never answered
		if err != nil {
			ended <- err
			return
		}
		defer func() { _ = r.Reject(nil) }()
		time.Sleep(10 * time.Millisecond)
		_ = l.Close()
		_, err = l.Accept(nictest.Soon(t))
		ended <- err
	}()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:7471", rdmacm.Config{NIC: nicA})
			if !errors.Is(err, rdmacm.ErrRejected) {
				t.Errorf("Dial: %v", err)
			}
		})
	}
	wg.Wait()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

func TestListener_BacklogFull_RequestsWait(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB, Backlog: 2})
	results := make(chan error, 5)
	for range cap(results) {
		go func() {
			conn, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:7471", rdmacm.Config{NIC: nicA})
			if err == nil {
				err = conn.Close()
			}
			results <- err
		}()
	}
	for range cap(results) {
		r, err := l.Accept(nictest.Soon(t))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := r.Accept(nictest.Soon(t), rdmacm.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-results, conn.Close()); err != nil {
			t.Error(err)
		}
	}
}

// C10: how a connection ended can be told.
func TestConn_Disconnect_C08_FlushesThenTellsBothSides(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	box := newInbox(t, session(t, nicB).PD(), 64)
	a, b := meet(t, l, "10.0.0.2:7471", rdmacm.Config{NIC: nicA},
		rdmacm.Config{NIC: nicB, Prepare: box.post})
	if err := a.Disconnect(nictest.Soon(t)); err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	var wcs [4]verbs.WC
	n, err := b.RecvCQ().Poll(wcs[:]) // no waiting: what was in flight is flushed by now
	if n != 1 || err != nil || !errors.Is(wcs[0].Err(), verbs.ErrFlushed) {
		t.Errorf("%d completions, %v: %v", n, err, wcs[0].Err())
	}
	for _, c := range []*rdmacm.Conn{a, b} {
		if !errors.Is(c.Err(), rdmacm.ErrDisconnected) || c.QP().State() != verbs.QPStateError {
			t.Errorf("%v, %v", c.Err(), c.QP().State())
		}
		for _, want := range []rdmacm.EventType{rdmacm.EventDisconnected, rdmacm.EventTimewaitExit} {
			if e, err := c.NextEvent(nictest.Soon(t)); err != nil || e.Type != want || e.Status != 0 {
				t.Errorf("%+v, %v, want %v", e, err, want)
			}
		}
	}
}

func TestConn_Close_EndsThePeerAndWaiters(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	a, b := meet(t, l, "10.0.0.2:7471", rdmacm.Config{NIC: nicA}, rdmacm.Config{NIC: nicB})
	ended := make(chan error, 1)
	go func() {
		_, err := a.NextEvent(context.Background())
		ended <- err
	}()
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-a.Done()
	<-b.Done()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("NextEvent: %v", err)
	}
	if !errors.Is(a.Err(), net.ErrClosed) || !errors.Is(b.Err(), rdmacm.ErrDisconnected) {
		t.Errorf("%v, %v", a.Err(), b.Err())
	}
}

func TestDial_ContextEnds_WithdrawsTheRequest(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	l := listen(t, "rdma", ":7471", rdmacm.Config{NIC: nicB})
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() {
		_, err := rdmacm.Dial(ctx, "rdma", "10.0.0.2:7471", rdmacm.Config{NIC: nicA})
		got <- err
	}()
	r, err := l.Accept(nictest.Soon(t))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
	// The peer's change of mind reaches whoever accepts.
	_, err = r.Accept(nictest.Soon(t), rdmacm.Config{NIC: nicB})
	if !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("Accept: %v", err)
	}
	ended, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := l.Accept(ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept: %v", err)
	}
	var timeout interface{ Timeout() bool }
	if _, err := l.Accept(ended); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("Accept: %v", err)
	}
	if _, err := rdmacm.Dial(ended, "rdma", "10.0.0.2:7471", rdmacm.Config{NIC: nicA}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("Dial: %v", err)
	}
}

func TestConn_ManyAtOnce_LeaveNothingBehind(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	run := func(n int) {
		l, err := rdmacm.Listen(nictest.Soon(t), "rdma", ":7471", rdmacm.Config{NIC: nicB})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				r, err := l.Accept(nictest.Soon(t))
				if err != nil {
					t.Error(err)
					return
				}
				name := textOf(r.PrivateData())
				conn, err := r.Accept(nictest.Soon(t), rdmacm.Config{PrivateData: []byte("hello, " + name)})
				if err != nil {
					t.Error(err)
					return
				}
				<-conn.Done()
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range n {
			wg.Go(func() {
				name := fmt.Sprint("client ", i)
				cfg := rdmacm.Config{NIC: nicA, PrivateData: []byte(name)}
				conn, err := rdmacm.Dial(nictest.Soon(t), "rdma", "10.0.0.2:7471", cfg)
				if err != nil {
					t.Error(err)
					return
				}
				if got := textOf(conn.PrivateData()); got != "hello, "+name {
					t.Errorf("%s got %q", name, got)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
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
	run(100)
	for range 10 {
		run(2)
	}
	nictest.Settles(t, "goroutines", goroutines, runtime.NumGoroutine)
	nictest.Settles(t, "descriptors", fds, nictest.Descriptors)
}
