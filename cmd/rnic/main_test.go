package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/ctl"
)

// TestExecute_WrongCommandLine has the mistakes that nothing but the command line matters for; the
// others are in test/e2e.
func TestExecute_WrongCommandLine_Status2AndOneLine(t *testing.T) {
	for _, args := range []string{
		"nonsense", "--nonsense", "up extra", "up --fault loss=2", "up --log-level x", "run",
		"run --log-format x -- true", "ps extra", "down extra", "devinfo extra", "version extra",
		"up --address here", "up --idle-exit -1s", "up --metrics nonsense", "stat extra",
		"stat --watch=0s", "stat --prometheus --json", "stat --prometheus --watch",
		"capture", "capture -w x extra", "capture -w x --address here", "capture -w x --qp 0x1000000",
		"ping", "ping a b", "ping --listen a b", "ping -s 0 a", "ping -c -1 a", "ping -i -1s a",
		"ping -W 0s a", "capture -w x --buffer 0", "capture -w x --count -1", "bench extra",
		"bench --rounds 0", "bench --length 0", "bench --only nothing-is-so", "bench --only (",
	} {
		root := newRoot()
		var out, errors bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errors)
		status := execute(root, strings.Fields(args))
		text := errors.String()
		if status != exitUsage || strings.Count(text, "\n") != 1 || out.Len() != 0 {
			t.Errorf("rnic %s: status %d, %q, %q", args, status, text, out.String())
		}
		if !strings.HasPrefix(text, "rnic") || !strings.Contains(text, "--help") {
			t.Errorf("rnic %s: %q does not say where help is", args, text)
		}
	}
}

func TestExecute_NoNIC_SaysHowToStartOne(t *testing.T) {
	t.Setenv(ctl.SocketEnv, t.TempDir()+"/none.sock")
	for _, args := range []string{"ps", "stat", "capture -w x", "devinfo", "down"} {
		root := newRoot()
		var out bytes.Buffer
		root.SetErr(&out)
		status := execute(root, strings.Fields(args))
		if status != exitFailure || !strings.Contains(out.String(), "no NIC is running here") {
			t.Errorf("rnic %s: status %d, %q", args, status, out.String())
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestExecute_OutputNotWritten_IsAFailure(t *testing.T) {
	for _, args := range []string{"version", "--version", "--help", "help up", "sim --help"} {
		root := newRoot()
		var errors bytes.Buffer
		root.SetOut(fullDisk{})
		root.SetErr(&errors)
		status := execute(root, strings.Fields(args))
		text := errors.String()
		if status != exitFailure || !strings.Contains(text, "no space left on device") ||
			strings.Contains(text, "--help\"") {
			t.Errorf("rnic %s: status %d, %q", args, status, text)
		}
	}
}

func TestUserText_LeavesTheCause(t *testing.T) {
	inner := errors.New("ctl: inner")
	for want, err := range map[string]error{
		"inner":           inner,
		"no route":        errors.New("hostnet: no route"),
		"open: ctl: more": fmt.Errorf("daemon: open: %w", errors.New("ctl: more")),
	} {
		if got := userText(err); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestBackgroundArgs_ParseBack_ToTheSameNIC(t *testing.T) {
	want := upOptions{
		devices:   []string{"x0", "w=iwarp,crc=on"},
		addresses: []string{"10.0.0.1", "::1"}, interfaces: []string{"eth0"},
		fault: "loss=1%,delay=2ms", logLevel: "debug", logFormat: "json", group: "rdma",
		layout:    "mlx5",
		limit:     "qps=9",
		localOnly: true, idleExit: idleExit,
	}
	up, _, err := newRoot().Find(want.backgroundArgs())
	if err != nil {
		t.Fatal(err)
	}
	if err := up.ParseFlags(want.backgroundArgs()[1:]); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"device": `[x0,"w=iwarp,crc=on"]`, "address": "[10.0.0.1,::1]", "interface": "[eth0]",
		"fault": "loss=1%,delay=2ms", "log-level": "debug", "log-format": "json", "group": "rdma",
		"layout": "mlx5", "limit": "qps=9", "local-only": "true", "idle-exit": "3s", "report-fd": "3",
	} {
		if got := up.Flag(name).Value.String(); got != value {
			t.Errorf("--%s is %q, not %q", name, got, value)
		}
	}
	for _, name := range nicFlags {
		if !up.Flag(name).Changed {
			t.Errorf("--%s is not passed on", name)
		}
	}
}

func TestUp_DevicesThatCannotBe_AreUsageErrorsThatSayWhy(t *testing.T) {
	for args, words := range map[string]string{
		"up --device=":                                "a device without a name",
		"up --device a/b":                             "use letters",
		"up --device x=infiniband":                    "none of roce, iwarp, none",
		"up --device x=iwarp,crc=maybe":               "one of on, off",
		"run --device x=iwarp,mtu=9 -- true":          "none of congestion, crc, fpdu, markers, mpa",
		"run --device a --device b -- true":           "roce has one device",
		"up --device rnic0=none --device iwarp0=none": "no device is left",
		"up --device iwarp0":                          "write iwarp0=iwarp if you mean that one",
		"up --local-only --device rnic0=none":         "no device is left",
	} {
		root := newRoot()
		var errors bytes.Buffer
		root.SetOut(io.Discard)
		root.SetErr(&errors)
		status := execute(root, strings.Fields(args))
		if text := errors.String(); status != exitUsage || !strings.Contains(text, words) ||
			!strings.Contains(text, "--device: ") {
			t.Errorf("rnic %s: status %d, %q", args, status, text)
		}
	}
}
