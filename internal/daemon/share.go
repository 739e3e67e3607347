package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// importContext lets the session's context import objects of the context whose command descriptor
// comes with the request. That descriptor is the program's end of another control connection: the
// library has let the kernel choose a name for it, which the kernel tells us at both ends.
func (s *session) importContext(m *ctl.Message) (reply, *rdma.Refusal) {
	if len(m.Body) != 0 || len(m.FDs) != 1 {
		return reply{}, badBody(m)
	}
	name := ctl.NameOf(m.FDs[0])
	var refusal *rdma.Refusal
	r := s.do(func(clock.Time) {
		source := s.daemon.lane.contextOf(name)
		if source == nil {
			refusal = rdma.Refuse(unix.EINVAL, "the descriptor is of no device that is open here")
			return
		}
		refusal = s.context.Import(source)
	})
	if r != nil {
		refusal = r
	}
	return reply{}, refusal
}

// contextOf returns the context of the connection with that name at the program's end. Lane.
func (l *lane) contextOf(name string) *nic.Context {
	for s := range l.sessions {
		if name != "" && s.peerName == name && s.context != nil && !s.conn.HasHungUp() {
			return s.context
		}
	}
	return nil
}

// allocDM makes device memory and keeps a descriptor of it for who imports it.
func (s *session) allocDM(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.AllocDMReq
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	var rsp abi.AllocDMRsp
	var refusal *rdma.Refusal
	fd := -1
	r := s.do(func(clock.Time) {
		var shared nic.Shared
		if rsp, shared, refusal = s.context.AllocDM(&req); refusal != nil {
			return
		}
		if q, ok := shared.(*queueMemory); ok {
			fd = q.TakeFD()
		}
		s.keepDM(rsp.Handle, fd)
	})
	switch {
	case r != nil:
		return reply{}, r
	case refusal != nil:
		return reply{}, refusal
	}
	return reply{body: ctl.Bytes(&rsp), fds: []int{fd}}, nil
}

// keepDM copies a descriptor for who imports the memory. Without, it is good all the same. Lane.
func (s *session) keepDM(handle uint32, fd int) {
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	switch {
	case err != nil:
	case mayKeep(kept) != nil:
		_ = unix.Close(kept)
	default:
		s.dmFDs[handle] = kept
	}
}

// forgetDM closes the descriptor of device memory that is gone. Lane.
func (s *session) forgetDM(handle uint32) {
	if fd, ok := s.dmFDs[handle]; ok {
		_ = unix.Close(fd)
		delete(s.dmFDs, handle)
	}
}

// importDM hands out device memory of the context that this one imports from.
func (s *session) importDM(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.HandleMsg
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	var rsp abi.AllocDMRsp
	var refusal *rdma.Refusal
	fd := -1
	r := s.do(func(clock.Time) {
		if rsp, refusal = s.context.ImportDM(req.Handle); refusal != nil {
			return
		}
		fd, refusal = s.copyOfDM(req.Handle)
	})
	switch {
	case r != nil:
		return reply{}, r
	case refusal != nil:
		return reply{}, refusal
	}
	return reply{body: ctl.Bytes(&rsp), fds: []int{fd}}, nil
}

// copyOfDM returns a new descriptor of the source's device memory. Lane.
func (s *session) copyOfDM(handle uint32) (int, *rdma.Refusal) {
	owner, ok := s.context.Source().Owner().(*session)
	if ok {
		if kept, has := owner.dmFDs[handle]; has {
			if fd, err := unix.FcntlInt(uintptr(kept), unix.F_DUPFD_CLOEXEC, 0); err == nil {
				return fd, nil
			}
		}
	}
	return -1, rdma.Refuse(unix.EMFILE, "the NIC has no descriptor left (ulimit -n)")
}
