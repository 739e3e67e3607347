package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// patience bounds what should take no time at all.
const patience = 20 * time.Second

// Host is where programs run: a NIC, and what is around it.
type Host struct {
	// Rnic is the binary, and Probe the command that plays the programs of package probe.
	Rnic  string
	Probe []string
	// Enter calls a function in the host's network namespace; nil stays where we are.
	Enter func(func())
	// Devices are the NIC's, as options of "rnic up"; none means the default.
	Devices []string
	// User is whom programs and the NIC run as; nil for ourselves.
	User *syscall.Credential

	dir string
	nic *exec.Cmd
	log bytes.Buffer
}

// NewHost makes a host like h with a home directory below dir, which its user can reach.
func NewHost(dir string, h Host) (*Host, error) {
	home, err := os.MkdirTemp(dir, "home-")
	if err != nil {
		return nil, err
	}
	h.dir = home
	if h.User != nil {
		if err := os.Chown(home, int(h.User.Uid), int(h.User.Gid)); err != nil {
			return nil, err
		}
	}
	return &h, nil
}

// nobody is the user without rights that every system has.
const nobody = 65534

// OrdinaryUser is one without rights: nil, ourselves, unless we are root.
func OrdinaryUser() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: nobody, Gid: nobody}
}

// Command prepares a program on the host.
func (h *Host) Command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = h.dir
	c.Env = append(os.Environ(), "HOME="+h.dir, "XDG_RUNTIME_DIR="+h.dir, "TMPDIR="+h.dir,
		"RNIC_SOCKET="+h.socket(), "LANG=C")
	c.SysProcAttr = &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: h.User,
	}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	return c
}

func (h *Host) socket() string { return filepath.Join(h.dir, "rnic.sock") }

// Start starts a program in the host's namespace.
func (h *Host) Start(c *exec.Cmd) (err error) {
	if h.Enter == nil {
		return c.Start()
	}
	h.Enter(func() { err = c.Start() })
	return err
}

// Output runs a program to its end.
func (h *Host) Output(c *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := h.Start(c); err != nil {
		return "", err
	}
	if err := c.Wait(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.String(), nil
}

// Up starts the NIC and waits until it serves.
func (h *Host) Up(ctx context.Context) error {
	args := []string{h.Rnic, "up", "--log-level=warn"}
	for _, d := range h.Devices {
		args = append(args, "--device="+d)
	}
	h.log.Reset()
	h.nic = h.Command(ctx, args...)
	h.nic.Stdout, h.nic.Stderr = &h.log, &h.log
	if err := h.Start(h.nic); err != nil {
		h.nic = nil
		return fmt.Errorf("start the NIC: %w", err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var status struct {
			PID int `json:"pid"`
		}
		if h.Ask(ctx, &status, "devinfo", "--json") == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			h.Down()
			return fmt.Errorf("the NIC does not answer: %s", bytes.TrimSpace(h.log.Bytes()))
		}
	}
}

// Down ends the NIC, if there is one.
func (h *Host) Down() {
	if h.nic == nil {
		return
	}
	_ = h.nic.Process.Signal(syscall.SIGTERM)
	done := time.AfterFunc(patience, func() { _ = h.nic.Process.Kill() })
	_ = h.nic.Wait() // how it ends is no measurement
	done.Stop()
	h.nic = nil
}

// NICPID is the number of the NIC's process, 0 while there is none.
func (h *Host) NICPID() int {
	if h.nic == nil {
		return 0
	}
	return h.nic.Process.Pid
}

// Ask has the binary tell something as JSON.
func (h *Host) Ask(ctx context.Context, into any, args ...string) error {
	out, err := h.Output(h.Command(ctx, append([]string{h.Rnic}, args...)...))
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// hasListener reports whether a program of the NIC listens for connections of rdma_cm.
func (h *Host) hasListener(ctx context.Context) bool {
	out, err := h.Output(h.Command(ctx, h.Rnic, "ps", "--json"))
	return err == nil && HasListener([]byte(out))
}

// HasListener looks for a program that listens for connections of rdma_cm in what "rnic ps --json"
// prints.
func HasListener(status []byte) bool {
	var users struct {
		CMIDs []struct {
			State string `json:"state"`
		} `json:"cm_ids"`
	}
	if json.Unmarshal(status, &users) != nil {
		return false
	}
	for _, id := range users.CMIDs {
		if id.State == "listening" {
			return true
		}
	}
	return false
}

// run is the command line of a program on the NIC.
func (h *Host) run(args ...string) []string {
	return append([]string{h.Rnic, "run", "--"}, args...)
}

// errEnded says that a server ended before its client began.
var errEnded = errors.New("the server has ended")

// Install copies a program to where another user finds it.
func Install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
