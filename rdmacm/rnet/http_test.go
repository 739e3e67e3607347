package rnet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/rdmacm/rnet"
	"github.com/softrnic/softrnic/test/nictest"
)

// serve runs an HTTP server that echoes bodies, with and without TLS-less HTTP/2.
func serve(t testing.TB, l net.Listener) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		// All of it first: HTTP/1 has no answer before the end of the question.
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = w.Write(body)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // the client has left
	})
	server := &http.Server{Handler: mux, Protocols: protocols}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		if err := server.Shutdown(nictest.Soon(t)); err != nil {
			t.Errorf("shut the server down: %v", err)
		}
		running.Wait()
	})
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func clientOf(t testing.TB, dial dialFunc, http2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{DialContext: dial, Protocols: protocols, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: nictest.Patience}
}

func echo(client *http.Client, base string, body []byte) error {
	rsp, err := client.Post(base+"/echo", "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer rsp.Body.Close()
	got, err := io.ReadAll(rsp.Body)
	switch {
	case err != nil:
		return err
	case rsp.StatusCode != http.StatusOK || !bytes.Equal(got, body):
		return fmt.Errorf("%s, %d bytes of %d", rsp.Status, len(got), len(body))
	}
	return nil
}

// gRPC speaks HTTP/2 over whatever its dialer and listener give it.
func TestHTTP_UnmodifiedServer_ServesManyClients(t *testing.T) {
	nicA, nicB := nictest.Hosts(t, "")
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			l := listen(t, on(nicB))
			serve(t, l)
			d := rnet.Dialer{Config: on(nicA)}
			client := clientOf(t, d.DialContext, http2)
			base := "http://10.0.0.2:" + portOf(l)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					for _, n := range []int{0, 1, 100, 5000, 300_000} {
						if err := echo(client, base, pattern(n+i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			// A client that gives up ends the handler.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/slow", nil)
			if err != nil {
				t.Fatal(err)
			}
			if rsp, err := client.Do(req); err == nil {
				t.Errorf("%s", rsp.Status)
				_ = rsp.Body.Close()
			}
		})
	}
}

// wires are ways between two ends: one NIC that both share, or a NIC each on a wire.
func wires(b *testing.B) map[string]struct {
	from, to rnet.Config
	host     string
} {
	nic := nictest.Start(b, softrnic.Config{})
	nicA, nicB := nictest.Hosts(b, "")
	return map[string]struct {
		from, to rnet.Config
		host     string
	}{
		"one NIC":  {on(nic), on(nic), "127.0.0.1"},
		"two NICs": {on(nicA), on(nicB), "10.0.0.2"},
	}
}

func benchmarkHTTP(b *testing.B, l net.Listener, dial dialFunc, host string) {
	serve(b, l)
	client := clientOf(b, dial, false)
	base := "http://" + net.JoinHostPort(host, portOf(l))
	for _, n := range []int{100, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body := pattern(n)
			b.SetBytes(int64(2 * n))
			for b.Loop() {
				if err := echo(client, base, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHTTP compares with TCP in the same run.
func BenchmarkHTTP(b *testing.B) {
	b.Run("tcp", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		var d net.Dialer
		benchmarkHTTP(b, l, d.DialContext, "127.0.0.1")
	})
	for name, w := range wires(b) {
		b.Run(name, func(b *testing.B) {
			d := rnet.Dialer{Config: w.from}
			benchmarkHTTP(b, listen(b, w.to), d.DialContext, w.host)
		})
	}
}

func BenchmarkStream(b *testing.B) {
	for name, w := range wires(b) {
		for _, n := range []int{64, 4096, 64 << 10} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				from, to := pair(b, w.host, w.from, w.to)
				go func() { _, _ = io.Copy(io.Discard, to) }()
				buf := make([]byte, n)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := from.Write(buf); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkPingPong(b *testing.B) {
	for name, w := range wires(b) {
		b.Run(name, func(b *testing.B) {
			from, to := pair(b, w.host, w.from, w.to)
			go func() { _, _ = io.Copy(to, to) }()
			buf := make([]byte, 1)
			for b.Loop() {
				if _, err := from.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := from.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
