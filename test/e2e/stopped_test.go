package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// end is one end of a connection: testdata/onesided.c on a machine.
type end struct {
	*process
	lines chan string
	input io.Writer
	here  string // QPN, GID, address and rkey, as the other end wants them
}

// ownProgram is a program in testdata.
type ownProgram struct {
	name, libraries string
	once            sync.Once
}

var onesided = ownProgram{name: "onesided", libraries: "-libverbs"}

// build builds the program once, with the libraries of the system.
func (p *ownProgram) build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(filepath.Dir(rnic), p.name)
	p.once.Do(func() {
		requireProgram(t, "gcc")
		for _, header := range []string{"infiniband/verbs.h", "rdma/rdma_cma.h"} {
			if _, err := os.Stat(filepath.Join("/usr/include", header)); err != nil {
				t.Skipf("%s is not installed: scripts/deps.sh build", header)
			}
		}
		args := []string{
			"-Wall", "-Wextra", "-Werror", "-O1", "-o", program,
			filepath.Join("testdata", p.name+".c"),
		}
		build := exec.Command("gcc", append(args, strings.Fields(p.libraries)...)...)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s.c: %v\n%s", p.name, err, out)
		}
	})
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s.c could not be built, see the first test that wanted it", p.name)
	}
	return program
}

func newEnd(t *testing.T, m *machine) *end {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	e := &end{lines: make(chan string, 16), input: write}
	t.Cleanup(func() { _ = write.Close() })
	outRead, outWrite := io.Pipe()
	m.stdin, m.stdout = read, outWrite
	e.process = m.run(t, onesided.build(t))
	m.stdin, m.stdout = nil, nil
	_ = read.Close()
	go func() {
		for scanner := bufio.NewScanner(outRead); scanner.Scan(); {
			e.lines <- scanner.Text()
		}
	}()
	here, ok := strings.CutPrefix(e.line(t), "here ")
	if !ok {
		t.Fatalf("no address: %s", e.stderr.String())
	}
	e.here = here
	return e
}

// line waits for the next line of output.
func (e *end) line(t *testing.T) string {
	t.Helper()
	select {
	case line := <-e.lines:
		return line
	case <-e.done:
		t.Fatalf("%s has ended: %s", e.name, e.stderr.String())
	case <-time.After(patience):
		t.Fatalf("%s does not answer within %v", e.name, patience)
	}
	return ""
}

func (e *end) say(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(e.input, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
}

// ask sends a command and wants an answer.
func (e *end) ask(t *testing.T, want, format string, args ...any) {
	t.Helper()
	e.say(t, format, args...)
	if got := e.line(t); got != want {
		t.Fatalf("%s answers %q to %q, not %q",
			e.name, got, fmt.Sprintf(format, args...), want)
	}
}

func connect(t *testing.T, a, b *end) {
	t.Helper()
	a.ask(t, "ok", "connect %s", b.here)
	b.ask(t, "ok", "connect %s", a.here)
}

// TestStoppedTarget has a peer read and change the memory of a program of which no thread runs.
// Memory is reached in two ways, and the result must be the same: mapped into the NIC, or, as for
// programs with several threads, through the kernel.
func TestStoppedTarget_WriteReadAtomics_Complete(t *testing.T) {
	for _, mapped := range []string{"auto", "never"} {
		t.Run("Mapped="+mapped, func(t *testing.T) {
			atPlaces(t, func(t *testing.T, p pair) {
				p.server.env = append(p.server.env, "RNIC_MAPPED="+mapped)
				target, initiator := newEnd(t, p.server), newEnd(t, p.client)
				connect(t, target, initiator)
				target.signal(t, syscall.SIGSTOP)
				awaitStopped(t, target.pid())
				initiator.useTarget(t)
				target.signal(t, syscall.SIGCONT)
				target.ask(t, "ok 7 7", "peek 0 3000000")
				target.ask(t, "ok 42 0", "peek 3145728 8")
			})
		})
	}
}

// useTarget performs every operation that takes no part of the other side's program.
func (e *end) useTarget(t *testing.T) {
	t.Helper()
	const counter = 3 << 20
	e.ask(t, "ok", "write 0 7 3000000")
	e.ask(t, "ok 7 7", "read 0 3000000")
	e.ask(t, "ok 0 0", "read %d 8", counter)
	e.ask(t, "ok 0", "add %d 40", counter)
	e.ask(t, "ok 40", "add %d 1", counter)
	e.ask(t, "ok 41", "swap %d 40 1000", counter) // does not match
	e.ask(t, "ok 41", "swap %d 41 42", counter)
	e.ask(t, "ok 42 0", "read %d 8", counter)
}

func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	until(t, "the program is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

// TestStoppedReceiver_Send_CompletesWithoutIt sends to receives that were posted before.
func TestStoppedReceiver_Send_CompletesWithoutIt(t *testing.T) {
	m := anyMachine(t)
	target, initiator := newEnd(t, m), newEnd(t, m)
	connect(t, target, initiator)
	target.signal(t, syscall.SIGSTOP)
	awaitStopped(t, target.pid())
	for range 16 {
		initiator.ask(t, "ok", "send")
	}
	target.signal(t, syscall.SIGCONT)
}
