package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/softrnic/softrnic"
)

func TestPingpong_Alone_EmbeddedAndOnANIC(t *testing.T) {
	t.Setenv("RNIC_SOCKET", "")
	if err := (game{rounds: 20, size: 100}).alone(t.Context()); err != nil {
		t.Error(err)
	}
	serve(t)
	if err := (game{rounds: 20, size: 5000}).alone(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPingpong_TwoEnds_AgreeOverTCP(t *testing.T) {
	serve(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := game{rounds: 20, size: 64}
	answered := make(chan error, 1)
	go func() { answered <- g.answer(t.Context(), l) }()
	if err := g.ask(t.Context(), l.Addr().String()); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// serve starts a NIC with a socket, as `rnic up` does.
func serve(t *testing.T) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "nic.sock")
	nic, err := softrnic.Start(t.Context(), softrnic.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nic.Close() })
	t.Setenv("RNIC_SOCKET", socket)
}
