package rdmacm_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/softrnic/softrnic/rdmacm"
	"github.com/softrnic/softrnic/test/nictest"
)

// deathWait is how soon the other side has to hear of a program's death: its NIC tells.
const deathWait = 5 * time.Second

// A server that dies, however far it has come, ends its client's Dial or connection.
func TestDial_ServerDies_InEveryState(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	cfg := rdmacm.Config{NIC: rdmacm.Socket(socket), Session: session(t, rdmacm.Socket(socket))}
	for _, state := range []string{"listening", "asked", "connected"} {
		t.Run(state, func(t *testing.T) {
			t.Setenv(stateEnv, state)
			server := nictest.StartPart(t, "server", socket)
			address := "127.0.0.1:" + server.Line(t)
			type result struct {
				conn *rdmacm.Conn
				err  error
			}
			dialed := make(chan result, 1)
			go func() {
				conn, err := rdmacm.Dial(nictest.Soon(t), "rdma", address, cfg)
				dialed <- result{conn, err}
			}()
			if state != "listening" {
				server.Line(t) // it has the request, or the connection
			} else {
				time.Sleep(20 * time.Millisecond) // either way it ends the same
			}
			begin := time.Now()
			server.Kill()
			got := <-dialed
			switch {
			case got.conn != nil:
				<-got.conn.Done()
				if err := got.conn.Err(); !errors.Is(err, rdmacm.ErrDisconnected) {
					t.Error(err)
				}
				if err := got.conn.Close(); err != nil {
					t.Error(err)
				}
			case state == "connected" || !errors.Is(got.err, rdmacm.ErrRejected):
				t.Error(got.err)
			}
			if took := time.Since(begin); took > deathWait {
				t.Errorf("heard after %v", took)
			}
		})
	}
}

// A client that dies ends its request or connection: whoever has the request cannot accept it any
// more, or finds the connection over at once.
func TestRequest_ClientDies_InEveryState(t *testing.T) {
	socket, _ := nictest.StartProcess(t)
	cfg := rdmacm.Config{NIC: rdmacm.Socket(socket), Session: session(t, rdmacm.Socket(socket))}
	l := listen(t, "rdma", ":0", cfg)
	t.Setenv(addressEnv, "127.0.0.1:"+portOf(l.Addr().String()))
	for _, state := range []string{"waiting", "asked", "connected"} {
		t.Run(state, func(t *testing.T) {
			client := nictest.StartPart(t, "client", socket)
			client.Line(t)
			if state == "waiting" { // in the backlog, or on the way there
				time.Sleep(20 * time.Millisecond)
				client.Kill()
			}
			begin := time.Now()
			ctx := nictest.Soon(t)
			if state == "waiting" {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			r, err := l.Accept(ctx)
			if state == "waiting" && errors.Is(err, context.DeadlineExceeded) {
				return // it had not asked yet, or the request was withdrawn
			}
			if err != nil {
				t.Fatal(err)
			}
			if state == "asked" {
				client.Kill()
			}
			conn, err := r.Accept(ctx, cfg)
			if state == "connected" {
				if err != nil {
					t.Fatal(err)
				}
				client.Line(t)
				client.Kill()
			}
			if err == nil {
				<-conn.Done()
				if !errors.Is(conn.Err(), rdmacm.ErrDisconnected) {
					t.Error(conn.Err())
				}
				err = conn.Close()
				if err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(begin); took > deathWait {
				t.Errorf("heard after %v", took)
			}
		})
	}
}
