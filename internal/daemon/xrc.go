package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// openXRCD opens an XRC domain. Who may open the file may share the domain: its descriptor is the
// proof.
func (s *session) openXRCD(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.OpenXRCDReq
	if !ctl.Decode(m.Body, &req) || len(m.FDs) > 1 {
		return reply{}, badBody(m)
	}
	var key *nic.XRCKey
	if len(m.FDs) == 1 {
		var st unix.Stat_t
		if err := unix.Fstat(m.FDs[0], &st); err != nil {
			return reply{}, rdma.Refuse(unix.EBADF, "open_xrcd: the file: "+err.Error())
		}
		key = &nic.XRCKey{Device: uint64(st.Dev), Inode: st.Ino} //nolint:unconvert // by platform
	}
	var body []byte
	var refusal *rdma.Refusal
	r := s.do(func(clock.Time) { body, refusal = handle(s.context.OpenXRCD(key, req.Flags)) })
	if r != nil {
		return reply{}, r
	}
	return reply{body: body}, refusal
}
