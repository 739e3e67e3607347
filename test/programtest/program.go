package programtest

import (
	"bytes"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
)

// Buffer is a bytes.Buffer that can be read while a program still writes.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Environment is that of a user with a home and a runtime directory, and nothing of the test's.
func Environment(home, runtimeDir string) []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C", "HOME=" + home,
		"XDG_RUNTIME_DIR=" + runtimeDir,
	}
}

// Attributes put a process into a group of its own, which dies with the test program. (The kernel
// means the thread that started it; the threads of a Go program end with it, but for those whose
// goroutine ends locked, and none of these starts programs.)
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Spawn starts a command in a namespace, nil for the test's: a child has that of the thread it came
// from.
func Spawn(cmd *exec.Cmd, ns *netnstest.Namespace) (err error) {
	if ns == nil {
		return cmd.Start()
	}
	ns.Do(func() { err = cmd.Start() })
	return err
}

// Start is Spawn for a program that the test looks after; done is closed when it has ended.
func Start(cmd *exec.Cmd, ns *netnstest.Namespace) (done chan struct{}, err error) {
	// Descendants that outlive the program, as a NIC does, may hold its output; they are none of our
	// business.
	cmd.WaitDelay = 2 * time.Second
	if err := Spawn(cmd, ns); err != nil {
		return nil, err
	}
	done = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return done, nil
}

// Kill ends a program of Start and its children, unless it has ended.
func Kill(cmd *exec.Cmd, done <-chan struct{}) {
	if HasEnded(done) {
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-done
}

// HasEnded reports whether a program has ended, without waiting.
func HasEnded(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Require skips a test where a program is not installed.
func Require(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed: scripts/deps.sh test", name)
	}
}
