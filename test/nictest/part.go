package nictest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/softrnic/softrnic"
)

// partEnv names the part that a process plays.
const partEnv = "SOFTRNIC_TEST_PART"

// lifeline is the descriptor on which a part sees the end of the test program.
const lifeline = 3

// nicPart is a part that every test program knows: a NIC at RNIC_SOCKET.
const nicPart = "nic"

// Main runs the tests, or the part that this process was started for. It does not return.
func Main(m *testing.M, parts map[string]func() error) {
	name := os.Getenv(partEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(lifeline, "lifeline"))
		os.Exit(1)
	}()
	play := parts[name]
	if name == nicPart {
		play = playNIC
	}
	if play == nil {
		play = func() error { return fmt.Errorf("no part %q", name) }
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playNIC serves until standard input ends.
func playNIC() error {
	nic, err := softrnic.Start(context.Background(), softrnic.Config{Socket: os.Getenv("RNIC_SOCKET")})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nic.Close()
}

// Part is a process of this test program.
type Part struct {
	// In is its standard input.
	In   io.WriteCloser
	cmd  *exec.Cmd
	out  *bufio.Scanner
	life *os.File
	once sync.Once
}

// StartPart starts a process that plays a part, on the NIC at a socket. It is killed with the
// test.
func StartPart(t testing.TB, name, socket string) *Part {
	t.Helper()
	p, err := start(name, socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func start(name, socket string) (*Part, error) {
	p := &Part{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), partEnv+"="+name, "RNIC_SOCKET="+socket)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.In, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	end, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.life = life
	p.cmd.ExtraFiles = []*os.File{end}
	err = p.cmd.Start()
	_ = end.Close()
	if err != nil {
		_ = life.Close()
		return nil, err
	}
	return p, nil
}

// Kill ends the process without a warning, and waits for its end.
func (p *Part) Kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		_ = p.life.Close()
	})
}

// Wait waits until the process ends by itself, and reports an end that is no success.
func (p *Part) Wait() (err error) {
	p.once.Do(func() {
		err = p.cmd.Wait()
		_ = p.life.Close()
	})
	return err
}

// PID is the number of the process.
func (p *Part) PID() int { return p.cmd.Process.Pid }

// Line returns the next line that the process prints.
func (p *Part) Line(t testing.TB) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("the process ended: %v", p.out.Err())
	}
	return p.out.Text()
}

// StartProcess returns the socket of a NIC in a process of its own.
func StartProcess(t testing.TB) (socket string, nic *Part) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nic.sock")
	return socket, StartProcessAt(t, socket)
}

// StartProcessAt is StartProcess with a socket of the caller's choice.
func StartProcessAt(t testing.TB, socket string) *Part {
	t.Helper()
	nic := StartPart(t, nicPart, socket)
	if got := nic.Line(t); got != "ready" {
		t.Fatalf("the NIC says %q", got)
	}
	return nic
}
