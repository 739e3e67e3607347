package rnet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm/rnet"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/test/racetest"
)

// The suite by which package net's own connections are judged.
func TestConn_NetTest_Passes(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	small := func(c rnet.Config) rnet.Config {
		c.Ring = 4 << 10
		return c
	}
	tcp := nictest.Start(t, softrnic.Config{Devices: []string{"rnic0", "iwarp0=iwarp"}})
	overTCP := on(tcp)
	overTCP.CM.Device = "iwarp0"
	for _, c := range []struct {
		name, host string
		a, b       rnet.Config
	}{
		{"default", "10.0.0.2", on(nicA), on(nicB)},
		{"small ring", "10.0.0.2", small(on(nicA)), on(nicB)},
		{"iWARP", "127.0.0.1", overTCP, overTCP},
	} {
		t.Run(c.name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				l, err := rnet.Listen("rdma", ":0", c.b)
				if err != nil {
					return nil, nil, nil, err
				}
				d := rnet.Dialer{Config: c.a}
				if c1, err = d.DialContext(t.Context(), "rdma", c.host+":"+portOf(l)); err != nil {
					return nil, nil, nil, err
				}
				if c2, err = l.Accept(); err != nil {
					return nil, nil, nil, err
				}
				return c1, c2, func() { _, _, _ = c1.Close(), c2.Close(), l.Close() }, nil
			})
		})
	}
}

// sizes of a transfer: all of it, and of each write and read.
type sizes struct{ total, write, read int }

// exchange sends a pattern and compares what arrives.
func exchange(t *testing.T, from, to *rnet.Conn, s sizes) {
	t.Helper()
	data := pattern(s.total)
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest := data; len(rest) > 0; {
			n := min(s.write, len(rest))
			if got, err := from.Write(rest[:n]); got != n || err != nil {
				t.Errorf("Write of %d: %d, %v", n, got, err)
				return
			}
			rest = rest[n:]
		}
		if err := from.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	buf := make([]byte, s.read)
	got := make([]byte, 0, len(data))
	for {
		n, err := to.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("Read: %v", err)
			}
			break
		}
	}
	wg.Wait()
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes came of %d, or other ones", len(got), len(data))
	}
}

func TestConn_TinyAndLargeWrites_EveryByteInOrder(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	odd := on(nicB)
	odd.Ring = 5003 // nothing divides it: messages wrap at every place
	for _, c := range []sizes{
		{1, 1, 1},
		{3000, 1, 1},
		{3000, 1, 4096},
		{200_000, 7, 13},
		{1 << 20, 1 << 20, 1 << 16},
		{1 << 20, 1023, 1 << 20},
		{3 << 20, 65537, 4097},
		{0, 1, 1},
	} {
		for _, cfg := range []rnet.Config{on(nicB), odd} {
			t.Run(fmt.Sprint(c, cfg.Ring), func(t *testing.T) {
				a, b := pair(t, "10.0.0.2", on(nicA), cfg)
				exchange(t, a, b, c)
				exchange(t, b, a, c)
			})
		}
	}
}

// Both directions at once, and a network that loses, repeats and reorders.
func TestConn_BadNetwork_EveryByteInOrder(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "loss=2%,dup=1%,reorder=2%,seed=5")
	a, b := pair(t, "10.0.0.2", on(nicA), on(nicB))
	var wg sync.WaitGroup
	wg.Go(func() { exchange(t, a, b, sizes{1 << 20, 10_000, 5000}) })
	wg.Go(func() { exchange(t, b, a, sizes{1 << 20, 3001, 64 << 10}) })
	wg.Wait()
}

func TestConn_HalfClose_OtherDirectionGoesOn(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	a, b := pair(t, "127.0.0.1", on(nic), on(nic))
	if _, err := a.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Write after CloseWrite: %v", err)
	}
	if got, err := io.ReadAll(b); string(got) != "question" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	large := pattern(1 << 20)
	go func() {
		if _, err := b.Write(large); err != nil {
			t.Error(err)
		}
		_ = b.Close()
	}()
	if got, err := io.ReadAll(a); !bytes.Equal(got, large) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read after the end: %v", err)
	}
}

// What was written before Close arrives, although the peer begins to read only afterwards.
func TestConn_Close_LosesNothing(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	for _, n := range []int{1, 1000, 100_000} {
		a, b := pair(t, "10.0.0.2", on(nicA), on(nicB))
		if _, err := a.Write(pattern(n)); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); !bytes.Equal(got, pattern(n)) || err != nil {
			t.Errorf("%d bytes of %d, %v", len(got), n, err)
		}
		if err := a.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Close again: %v", err)
		}
		if err := a.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("SetDeadline: %v", err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read: %v", err)
		}
		// The peer has left: writing ends sooner or later.
		var err error
		for err == nil {
			_, err = b.Write(pattern(1000))
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write: %v", err)
		}
	}
}

func TestConn_FullRing_WriteWaitsForTheReader(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	cfg := on(nicA)
	cfg.Ring = 8 << 10
	a, b := pair(t, "10.0.0.2", cfg, on(nicB))
	_ = a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := a.Write(pattern(64 << 10))
	if n != 8<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is no timeout", err)
	}
	// One byte a message: the receives run out before the ring does.
	buf := make([]byte, 8<<10)
	if _, err := io.ReadFull(b, buf); err != nil || !bytes.Equal(buf, pattern(64 << 10)[:8<<10]) {
		t.Fatal(err)
	}
	// A busy machine takes most of this time.
	_ = a.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for n = 0; err == nil || n == 0; n++ {
		if _, err = a.Write([]byte{byte(n)}); err != nil && n == 0 {
			t.Fatal(err)
		}
	}
	n--
	if n < 100 || n > 128 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d messages, %v", n, err)
	}
	if _, err := io.ReadFull(b, buf[:n]); err != nil || buf[n-1] != byte(n-1) {
		t.Errorf("%v", err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	if _, err := a.Write([]byte("on")); err != nil {
		t.Error(err)
	}
}

func TestConn_SetDeadline_WakesWhoWaits(t *testing.T) {
	nic := nictest.Start(t, softrnic.Config{})
	a, _ := pair(t, "127.0.0.1", on(nic), on(nic))
	for _, wait := range []time.Duration{-1, 0, time.Millisecond, 30 * time.Millisecond} {
		_ = a.SetDeadline(time.Now().Add(time.Hour))
		ended := make(chan error, 1)
		go func() {
			_, err := a.Read(make([]byte, 1))
			ended <- err
		}()
		time.Sleep(2 * time.Millisecond)
		_ = a.SetReadDeadline(time.Now().Add(wait))
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v: %v", wait, err)
		}
	}
}

func TestConn_Idle_ProbesKeepItAlive(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	cfg := on(nicA)
	cfg.KeepAlive = time.Millisecond
	a, b := pair(t, "10.0.0.2", cfg, on(nicB))
	time.Sleep(150 * time.Millisecond) // more probes than the send queue has places
	exchange(t, a, b, sizes{1000, 10, 10})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(a); len(got) != 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConn_Transfers_AllocateNothing(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	nic := nictest.Start(t, softrnic.Config{})
	a, b := pair(t, "127.0.0.1", on(nic), on(nic))
	_, _ = a.SetDeadline(time.Time{}), b.SetDeadline(time.Time{})
	go func() {
		buf := make([]byte, 8192)
		for {
			n, err := b.Read(buf)
			if err != nil {
				return
			}
			if _, err := b.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	msg := make([]byte, 8192)
	round := func() {
		for _, n := range []int{1, 100, 8192} {
			if _, err := a.Write(msg[:n]); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(a, msg[:n]); err != nil {
				t.Error(err)
			}
			_ = a.SetReadDeadline(time.Now().Add(time.Hour))
		}
	}
	round()
	if n := testing.AllocsPerRun(300, round); n > 0 {
		t.Errorf("%v allocations per round of 3 messages there and back", n)
	}
}
