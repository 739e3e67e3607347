package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/ctl"
)

// A stopped NIC still has its socket, and the kernel still connects to it.
func TestGreet_StoppedNIC_SaysWhoDoesNotAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := ctl.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	_, lane, err := greet(client, 50*time.Millisecond)
	if err == nil || lane != -1 || errors.Is(err, ctl.ErrGone) || errors.Is(err, ctl.ErrNoNIC) {
		t.Fatalf("lane %d, %v", lane, err)
	}
	if !strings.Contains(err.Error(), "(pid "+strconv.Itoa(os.Getpid())+") has not answered") {
		t.Errorf("%q does not name the process", err)
	}
}

func TestSetSocket_RelativePath_BecomesAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, from := range []string{"flag", "variable"} {
		t.Setenv(ctl.SocketEnv, "variable")
		flag := ""
		if from == "flag" {
			flag = from
		}
		if err := setSocket(flag); err != nil {
			t.Fatal(err)
		}
		if got, want := os.Getenv(ctl.SocketEnv), filepath.Join(dir, from); got != want {
			t.Errorf("%s: %s, not %s", from, got, want)
		}
	}
}
