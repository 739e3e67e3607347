package rnet_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/rdmacm/rnet"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

func TestMain(m *testing.M) {
	nictest.Main(m, map[string]func() error{"source": playSource})
}

// playSource writes what it is told to the address that it is told, and ends at once after Close.
// With the word "hang" it does not close.
func playSource() error {
	in := bufio.NewReader(os.Stdin)
	var address, how string
	var bytes int
	if _, err := fmt.Fscan(in, &address, &bytes, &how); err != nil {
		return err
	}
	c, err := rnet.Dial("rdma", address)
	if err != nil {
		return err
	}
	if _, err := c.Write(pattern(bytes)); err != nil {
		return err
	}
	if how == "hang" {
		fmt.Println("written")
		_, _ = io.Copy(io.Discard, in)
	}
	return c.Close()
}

// pattern is content in which every shift shows.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return b
}

func on(nic verbs.Connector) rnet.Config { return rnet.Config{CM: rdmacm.Config{NIC: nic}} }

func listen(t testing.TB, cfg rnet.Config) *rnet.Listener {
	t.Helper()
	l, err := rnet.Listen("rdma", ":0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// pair returns the two ends of a connection from cfgA to a listener of cfgB at host.
func pair(t testing.TB, host string, cfgA, cfgB rnet.Config) (a, b *rnet.Conn) {
	t.Helper()
	l := listen(t, cfgB)
	a = dial(t, l, host, cfgA)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b = c.(*rnet.Conn)
	t.Cleanup(func() { _ = b.Close() })
	limit := time.Now().Add(nictest.Patience)
	_, _ = a.SetDeadline(limit), b.SetDeadline(limit)
	return a, b
}

func dial(t testing.TB, l *rnet.Listener, host string, cfg rnet.Config) *rnet.Conn {
	t.Helper()
	d := rnet.Dialer{Config: cfg}
	c, err := d.DialContext(nictest.Soon(t), "rdma", net.JoinHostPort(host, portOf(l)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*rnet.Conn)
}

func portOf(l interface{ Addr() net.Addr }) string {
	addr := l.Addr().String()
	return addr[strings.LastIndexByte(addr, ':')+1:]
}
