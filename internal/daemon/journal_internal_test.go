package daemon

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestNoteRefusal_DirectPathDeclined_IsNoError: memory that the library cannot reach itself is
// reached through the NIC, and no verb has failed; what a verb was refused stays an error.
func TestNoteRefusal_DirectPathDeclined_IsNoError(t *testing.T) {
	d := startDirect(t)
	newVictim(t, d)
	var s *session
	d.lane.do(func(clock.Time) {
		for x := range d.lane.sessions {
			s = x
		}
	})
	for _, op := range []abi.Op{abi.OpMapRemote, abi.OpDeallocPD} {
		body := ctl.Bytes(&abi.HandleMsg{Handle: 1 << 30})
		s.noteRefusal(&ctl.Message{Op: op, Body: body}, rdma.Refuse(unix.EOPNOTSUPP, "refused"))
	}
	status, _ := d.Status()
	if e := status.Errors; len(e) != 1 || e[0].Kind != "verb" {
		t.Errorf("errors %+v", e)
	}
}
