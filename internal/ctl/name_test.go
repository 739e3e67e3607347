package ctl

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNameOf_OnlyTheKernelsChoice_Counts: a name with a zero byte in the middle, or one that a
// program chose, is not taken for the kernel's.
func TestNameOf_OnlyTheKernelsChoice_Counts(t *testing.T) {
	socket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		return fd
	}
	bound := socket()
	if err := unix.Bind(bound, &unix.SockaddrUnix{}); err != nil {
		t.Fatal(err)
	}
	name, err := rawName(unix.SYS_GETSOCKNAME, bound)
	if err != nil || len(name) != autobindBytes || name[0] != 0 {
		t.Fatalf("the kernel's choice is %q: %v", name, err)
	}
	if full := NameOf(bound); !strings.HasSuffix(full, name) || len(full) == len(name) {
		if full == "" {
			t.Skip("this kernel does not tell the network namespace of a socket (5.14 does)")
		}
		t.Fatalf("the full name is %q", full)
	}
	longer := socket()
	if err := unix.Bind(longer, &unix.SockaddrUnix{Name: name + "\x00more"}); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inet) }()
	for what, fd := range map[string]int{
		"a longer name": longer, "a pair": pair[0], "no name": socket(), "a UDP socket": inet,
		"no descriptor": -1,
	} {
		if got := NameOf(fd); got != "" {
			t.Errorf("%s is called %q", what, got)
		}
	}
}
