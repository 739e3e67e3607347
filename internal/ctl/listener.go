package ctl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrRunning is wrapped by Listen when another NIC serves the socket.
var ErrRunning = errors.New("a NIC is running already")

// requestBodyMax bounds a request, in bytes: a registration with all its segments is the longest.
// Replies may be longer.
const requestBodyMax = 4096

// socketPathMax is what sockaddr_un holds, without its final NUL.
const socketPathMax = 107

// ListenConfig says where a NIC listens.
type ListenConfig struct {
	// Path is the socket. Its directory must exist.
	Path string
	// Group may connect as well as the owner: a name or a number; empty for nobody else.
	Group string
}

// Listener is a NIC's socket. The lock beside it makes sure that a path has one NIC.
type Listener struct {
	sock *net.UnixListener
	path string
	id   fileID
	lock *os.File
	once sync.Once
	err  error
}

type fileID struct{ dev, ino uint64 }

// Listen makes the socket. It appears under its name only when it accepts connections and has its
// final permissions. A socket that a dead NIC left behind is replaced.
func Listen(c ListenConfig) (*Listener, error) {
	if err := CheckPath(c.Path); err != nil {
		return nil, err
	}
	gid, err := lookupGroup(c.Group)
	if err != nil {
		return nil, err
	}
	lock, err := acquire(c.Path + lockSuffix)
	if err != nil {
		return nil, err
	}
	l := &Listener{path: c.Path, lock: lock}
	if err := l.listen(gid); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

func (l *Listener) listen(gid int) error {
	if err := clearStale(l.path); err != nil {
		return err
	}
	temp := l.path + tempSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("ctl: remove what a NIC left behind: %w", err)
	}
	sock, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: temp, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("ctl: listen on %s: %w", l.path, err)
	}
	sock.SetUnlinkOnClose(false) // it would unlink the name that it no longer has
	if err := l.publish(temp, gid); err != nil {
		_ = sock.Close()
		_ = os.Remove(temp)
		return err
	}
	l.sock = sock
	return nil
}

func (l *Listener) publish(temp string, gid int) error {
	mode := os.FileMode(0o600)
	if gid >= 0 {
		mode = 0o660
		if err := os.Chown(temp, -1, gid); err != nil {
			return fmt.Errorf("ctl: give the socket to group %d (are you a member?): %w", gid, err)
		}
	}
	if err := os.Chmod(temp, mode); err != nil {
		return fmt.Errorf("ctl: set the socket's permissions: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(temp, &st); err != nil {
		return fmt.Errorf("ctl: look at the socket: %w", err)
	}
	l.id = fileID{st.Dev, st.Ino}
	if err := os.Rename(temp, l.path); err != nil {
		return fmt.Errorf("ctl: name the socket: %w", err)
	}
	return nil
}

const (
	lockSuffix = ".lock"
	tempSuffix = ".new"
)

// acquire takes the lock of a path. The holder removes the file when it ends, so the one that was
// locked may no longer be the one with the name: then try again.
func acquire(path string) (*os.File, error) {
	for {
		lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("ctl: open the NIC's lock file: %w", err)
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			holder := readHolder(lock)
			_ = lock.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("ctl: %s: %w%s", strings.TrimSuffix(path, lockSuffix),
					ErrRunning, holder)
			}
			return nil, fmt.Errorf("ctl: lock %s: %w", path, err)
		}
		if isNamed(lock, path) {
			writeHolder(lock)
			return lock, nil
		}
		_ = lock.Close()
	}
}

// isNamed reports whether a path still names an open file.
func isNamed(file *os.File, path string) bool {
	var open, named unix.Stat_t
	errOpen := unix.Fstat(int(file.Fd()), &open)
	errNamed := unix.Lstat(path, &named)
	return errOpen == nil && errNamed == nil && open.Dev == named.Dev && open.Ino == named.Ino
}

// writeHolder leaves our pid in the lock file for people; nothing depends on it.
func writeHolder(lock *os.File) {
	_ = lock.Truncate(0)
	_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
}

func readHolder(lock *os.File) string {
	var b [16]byte
	n, _ := lock.ReadAt(b[:], 0)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
		return fmt.Sprintf(" (pid %d)", pid)
	}
	return ""
}

// clearStale removes a socket that nobody serves.
//
// Preconditions: the lock is held, so that no NIC is about to serve it.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("ctl: look at the socket: %w", err)
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("ctl: %s: %w: choose another path", path, errNoSocket)
	}
	probe, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	switch {
	case err == nil:
		_ = probe.Close()
		return fmt.Errorf("ctl: %s: %w", path, ErrRunning)
	case errors.Is(err, unix.ECONNREFUSED):
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("ctl: remove a dead NIC's socket: %w", err)
		}
		return nil
	}
	return fmt.Errorf("ctl: %s is in the way: %w", path, err)
}

func lookupGroup(name string) (gid int, err error) {
	if name == "" {
		return -1, nil
	}
	if gid, err = strconv.Atoi(name); err == nil && gid >= 0 {
		return gid, nil
	}
	group, err := user.LookupGroup(name)
	if err != nil {
		return -1, fmt.Errorf("ctl: group for the socket: %w", err)
	}
	gid, err = strconv.Atoi(group.Gid)
	if err != nil {
		return -1, fmt.Errorf("ctl: group %s has the number %q: %w", name, group.Gid, err)
	}
	return gid, nil
}

// Path returns the socket's path.
func (l *Listener) Path() string { return l.path }

// Accept waits for an application. It returns an error that Is net.ErrClosed after Close.
func (l *Listener) Accept() (*Conn, error) {
	sock, err := l.sock.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("ctl: accept on %s: %w", l.path, err)
	}
	return NewServerConn(sock), nil
}

// NewServerConn makes the NIC's end of a connection that is there, such as one end of Pair.
func NewServerConn(sock *net.UnixConn) *Conn { return newConn(sock, requestBodyMax) }

// Close stops listening, removes the socket if it is still ours, and gives the lock up.
// Connections that were accepted live on.
func (l *Listener) Close() error {
	l.once.Do(func() {
		l.err = l.sock.Close()
		var st unix.Stat_t
		if unix.Lstat(l.path, &st) == nil && l.id == (fileID{st.Dev, st.Ino}) {
			_ = os.Remove(l.path)
		}
		l.release()
	})
	return l.err
}

// release gives the lock up and removes its file while it is still held, so that nobody is left
// with a lock on a file without a name unless he checks, as acquire does. If somebody has removed
// the file meanwhile, the name may be another NIC's.
func (l *Listener) release() {
	if isNamed(l.lock, l.path+lockSuffix) {
		_ = os.Remove(l.path + lockSuffix)
	}
	_ = l.lock.Close()
}

// LogPath returns where a NIC in the background writes its log.
func LogPath(socket string) string {
	return strings.TrimSuffix(socket, filepath.Ext(socket)) + ".log"
}
