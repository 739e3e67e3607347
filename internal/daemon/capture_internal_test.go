package daemon

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// Members of the group may use the NIC, but not look at what others send.
func TestCapture_AnotherUser_IsRefused(t *testing.T) {
	s := &session{daemon: &Daemon{}, peer: ctl.Peer{UID: uint32(os.Geteuid()) + 1}}
	m := &ctl.Message{Op: abi.OpCapture, Body: ctl.Bytes(&abi.CaptureReq{})}
	if _, r := s.startCapture(m); r == nil || r.Errno != unix.EPERM {
		t.Errorf("%v", r)
	}
}
