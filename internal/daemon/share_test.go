package daemon_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// TestImport_WrongDescriptor_IsRefused: only the command descriptor of a context that is open here
// opens its objects.
func TestImport_WrongDescriptor_IsRefused(t *testing.T) {
	s := startWithBystander(t)
	c := s.raw()
	c.open()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	named, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, fd := range []int{pipe[0], pipe[1], sockets[0], sockets[1], named} {
			_ = unix.Close(fd)
		}
	}()
	if err := unix.Bind(named, &unix.SockaddrUnix{Name: "@rnic-test-import"}); err != nil {
		t.Fatal(err)
	}
	before := countFDs(t)
	for _, fds := range [][]int{nil, {pipe[0]}, {sockets[0]}, {named}, {named, named}} {
		_, _, err := ctl.Call[struct{}](c.Client, abi.OpImportContext, nil, fds...)
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("descriptors %v: %v", fds, err)
		}
	}
	for op, req := range map[abi.Op][]byte{
		abi.OpImportPD: ctl.Bytes(&abi.HandleMsg{Handle: 1}),
		abi.OpImportMR: ctl.Bytes(&abi.ImportMRReq{PD: 1, Handle: 2}),
		abi.OpImportDM: ctl.Bytes(&abi.HandleMsg{Handle: 3}),
	} {
		if _, _, err := ctl.Call[struct{}](c.Client, op, req); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%v without a source: %v", op, err)
		}
	}
	eventually(t, "no descriptor is left", func() bool { return countFDs(t) <= before })
	s.check()
}

// TestXRCD_ManyFromManyFiles_LeaveNothing: a client opens domains by every kind of descriptor and
// vanishes.
func TestXRCD_ManyFromManyFiles_LeaveNothing(t *testing.T) {
	s := startWithBystander(t)
	c := s.raw()
	c.open()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pipe[0]), unix.Close(pipe[1]) }()
	before := countFDs(t)
	create := ctl.Bytes(&abi.OpenXRCDReq{Flags: abi.XRCDCreate})
	for range 100 {
		for _, fds := range [][]int{nil, {pipe[0]}, {pipe[1]}} {
			if _, _, err := ctl.Call[abi.HandleMsg](c.Client, abi.OpOpenXRCD, create, fds...); err != nil {
				t.Fatal(err)
			}
		}
	}
	exclusive := ctl.Bytes(&abi.OpenXRCDReq{Flags: abi.XRCDCreate | abi.XRCDExclusive})
	_, _, err := ctl.Call[abi.HandleMsg](c.Client, abi.OpOpenXRCD, exclusive, pipe[0])
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("an exclusive domain that is there: %v", err)
	}
	eventually(t, "no descriptor is left", func() bool { return countFDs(t) <= before })
	_ = c.Close()
	other := s.raw()
	other.open()
	// The domain has gone with its last handle: nobody need ask to create what is there.
	eventually(t, "the domains are gone", func() bool {
		_, _, err := ctl.Call[abi.HandleMsg](other.Client, abi.OpOpenXRCD,
			ctl.Bytes(&abi.OpenXRCDReq{}), pipe[0])
		return errors.Is(err, unix.EAGAIN)
	})
	s.check()
}
