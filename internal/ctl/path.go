package ctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketEnv is the environment variable that overrides the default socket path.
const SocketEnv = "RNIC_SOCKET"

// DirectEnv is the environment variable that, when it says off, keeps a program out of the direct
// path (ADR 0026), or a NIC from offering it.
const DirectEnv = "RNIC_DIRECT"

// ErrUnsafeDir is wrapped when the directory of the default socket is not safely ours: somebody
// else could have put a NIC of his own there.
var ErrUnsafeDir = errors.New("the socket's directory is not a private one of this user")

// SocketPath returns where the NIC of this user and network namespace listens, the first of
//
//	$RNIC_SOCKET
//	$XDG_RUNTIME_DIR/rnic/NETNS.sock   if that variable names a directory of the effective user
//	/tmp/rnic-UID/NETNS.sock
//
// NETNS is the inode number of /proc/thread-self/ns/net. The C library has the same rule.
func SocketPath() (string, error) {
	if path := os.Getenv(SocketEnv); path != "" {
		return path, nil
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return "", fmt.Errorf("ctl: identify the network namespace (is /proc mounted? else set "+
			SocketEnv+"): %w", err)
	}
	return filepath.Join(RuntimeDir(), strconv.FormatUint(ns.Ino, 10)+".sock"), nil
}

// RuntimeDir returns the directory of the default socket; it may not exist.
func RuntimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		// After su the variable may still name the directory of another user.
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() {
			return filepath.Join(dir, "rnic")
		}
	}
	return filepath.Join("/tmp", "rnic-"+strconv.Itoa(os.Geteuid()))
}

// EnsureRuntimeDir makes the default socket's directory, or checks the one that is there: owned by
// us, no symbolic link, and writable by nobody else.
func EnsureRuntimeDir() error {
	dir := RuntimeDir()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("ctl: make the directory for the NIC's socket: %w", err)
	}
	return CheckDir(dir)
}

// CheckDir refuses a directory in which somebody else could replace the socket. In /tmp anybody
// can make the directory first.
func CheckDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("ctl: look at the directory of the NIC's socket: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("ctl: %s is not a directory: %w; remove it or set %s", dir,
			ErrUnsafeDir, SocketEnv)
	case !ok || int(st.Uid) != os.Geteuid():
		return fmt.Errorf("ctl: %s belongs to uid %d: %w; set %s to use that user's NIC", dir,
			st.Uid, ErrUnsafeDir, SocketEnv)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("ctl: others may write to %s (mode %04o): %w; chmod 700 it", dir,
			info.Mode().Perm(), ErrUnsafeDir)
	}
	return nil
}

// errNoSocket is wrapped when a socket's path is taken by something else.
var errNoSocket = errors.New("exists and is no socket")

// CheckPath refuses a path at which no NIC could ever listen, before anything is made beside it:
// one that is longer than a socket's address, or that something else has.
func CheckPath(path string) error {
	if len(path)+len(tempSuffix) > socketPathMax {
		return fmt.Errorf("ctl: socket path %q is longer than %d bytes: set a shorter %s",
			path, socketPathMax-len(tempSuffix), SocketEnv)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("ctl: %s: %w: choose another path", path, errNoSocket)
	}
	return nil
}

// DialDefault connects to SocketPath. Unless RNIC_SOCKET says otherwise it trusts only a private
// directory of this user.
func DialDefault() (*Client, error) {
	path, err := SocketPath()
	if err != nil {
		return nil, err
	}
	if os.Getenv(SocketEnv) == "" {
		dir := filepath.Dir(path)
		if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("ctl: %s: %w", path, ErrNoNIC)
		}
		if err := CheckDir(dir); err != nil {
			return nil, err
		}
	}
	return Dial(path)
}
