package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/ctl"
)

// idleExit is how long a NIC that "rnic run" has started stays without a program.
const idleExit = 3 * time.Second

// report is what a NIC in the background says to who started it, as one line of JSON on a pipe:
// that it is ready, or why it is not.
type report struct {
	LocalOnly string `json:"local_only,omitempty"` // why it serves only its own programs
	Running   bool   `json:"running,omitempty"`    // another NIC was faster; Error says which
	Error     string `json:"error,omitempty"`
}

// The bounds of joining a NIC that somebody else starts at this moment: between its lock and its
// socket it needs some microseconds, on a busy machine more. Each try starts a process, so they
// become rare.
const (
	joinTries       = 40
	joinInterval    = 5 * time.Millisecond
	joinIntervalMax = 200 * time.Millisecond
)

// join connects to the NIC of this user and namespace. If there is none it starts one, which
// started reports; of several processes that do so at once one succeeds, and all end up with the
// same NIC.
func join(options *upOptions) (c *connection, started *report, err error) {
	why, interval := "", joinInterval
	for range joinTries {
		c, err = dial(options.socket)
		if err == nil || !errors.Is(err, ctl.ErrNoNIC) && !errors.Is(err, ctl.ErrGone) {
			return c, started, err
		}
		var startErr error
		if started, startErr = startBackground(options); startErr != nil {
			return nil, nil, startErr
		}
		if started.Running {
			why, started = started.Error, nil
			time.Sleep(interval)
			interval = min(2*interval, joinIntervalMax)
		}
	}
	if why == "" {
		return nil, nil, fmt.Errorf("a NIC has started and ended at once: %w", err)
	}
	return nil, nil, fmt.Errorf("%s, but its socket is gone: end that process", why)
}

// startBackground starts a NIC in a session of its own and waits until it is ready or has failed.
func startBackground(options *upOptions) (*report, error) {
	if err := prepareDirectory(); err != nil {
		return nil, err
	}
	socket, err := ctl.SocketPath()
	if err != nil {
		return nil, err
	}
	if err := ctl.CheckPath(socket); err != nil {
		return nil, err
	}
	log, err := openLog(ctl.LogPath(socket))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = read.Close() }()
	command := exec.Command(self, options.backgroundArgs()...)
	command.Dir = "/"
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{write}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	restore := shieldDescriptors()
	err = command.Start()
	restore()
	_ = write.Close()
	if err != nil {
		return nil, fmt.Errorf("start a NIC: %w", err)
	}
	return awaitReport(command, read, log.Name())
}

// logBytesMax bounds the log that a NIC in the background finds; it moves a longer one away.
const logBytesMax = 1 << 20

// openLog opens the log of a NIC in the background. It appends: the NIC that it is for may turn
// out to be too late, and then the log is another's. Where there is no room for a log, the NIC
// works without.
func openLog(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && info.Size() > logBytesMax {
		_ = os.Rename(path, path+".old") // a log that stays long is no reason to fail
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | unix.O_NOFOLLOW
	log, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS) {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log of the NIC: %w", err)
	}
	return log, nil
}

func awaitReport(command *exec.Cmd, read io.Reader, log string) (*report, error) {
	text, err := io.ReadAll(read)
	if err != nil {
		return nil, fmt.Errorf("wait for the NIC to be ready: %w", err)
	}
	r := new(report)
	if json.Unmarshal(text, r) != nil {
		err := command.Wait() // it has died, or closed the pipe on its way to it
		return nil, fmt.Errorf("the NIC ended before it was ready (%w); its log is %s", err, log)
	}
	if r.Running || r.Error != "" {
		_ = command.Wait()
	}
	if r.Error != "" && !r.Running {
		return nil, fmt.Errorf("start a NIC: %s", r.Error)
	}
	return r, nil
}

// send gives the report to who started this NIC.
func (r report) send(pipe *os.File) error {
	text, err := json.Marshal(r)
	if err == nil {
		_, err = pipe.Write(text)
	}
	if closeErr := pipe.Close(); err == nil {
		err = closeErr
	}
	return err
}

// shieldDescriptors keeps a NIC in the background from inheriting descriptors that are meant for
// the program of "rnic run": a pipe whose reader waits for its end, a lock. The function that it
// returns lets the program have them again.
func shieldDescriptors() (restore func()) {
	var shielded []int
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return func() {} // without /proc nothing is known; the NIC ends soon after its programs
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags|unix.FD_CLOEXEC); err == nil {
			shielded = append(shielded, fd)
		}
	}
	return func() {
		for _, fd := range shielded {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
		}
	}
}

// prepareDirectory makes the directory of the default socket. A path that somebody chose is his.
func prepareDirectory() error {
	if os.Getenv(ctl.SocketEnv) != "" {
		return nil
	}
	return ctl.EnsureRuntimeDir()
}
