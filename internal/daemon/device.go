package daemon

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

func (s *session) listDevices(*ctl.Message) (reply, *rdma.Refusal) {
	var info []abi.DeviceInfo
	if !s.daemon.lane.do(func(clock.Time) { info = s.daemon.lane.nic.DeviceInfo() }) {
		return reply{}, rdma.Refuse(unix.EIO, "the NIC is shutting down")
	}
	return reply{body: ctl.ListBytes(info)}, nil
}

// openDevice makes the connection a context of the device.
func (s *session) openDevice(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.OpenDeviceReq
	switch {
	case !ctl.Decode(m.Body, &req):
		return reply{}, badBody(m)
	case s.bells != nil:
		return reply{}, rdma.Refuse(unix.EBUSY, "this connection has opened a device already")
	case s.connects:
		return reply{}, rdma.Refuse(unix.EBUSY, "this connection is for connection management")
	}
	name := printable(req.Name[:])
	at := s.daemon.deviceAt(name)
	if at < 0 {
		return reply{}, rdma.Refuse(unix.ENODEV, fmt.Sprintf("there is no device %q, only %s",
			name, s.daemon.DeviceNames()))
	}
	s.openSpace()
	parts, err := newContextParts()
	if err != nil {
		return reply{}, rdma.Refuse(unix.ENOMEM, err.Error())
	}
	var refusal *rdma.Refusal
	var id uint32
	if !s.daemon.lane.do(func(now clock.Time) { id, refusal = s.openContext(now, parts, at) }) {
		refusal = rdma.Refuse(unix.EIO, "the NIC is shutting down")
	}
	if refusal != nil {
		parts.discard()
		return reply{}, refusal
	}
	return reply{
		body:  ctl.Bytes(&abi.OpenDeviceRsp{Context: id}),
		fds:   []int{parts.bells.TakeFD(), parts.kickCopy, parts.read},
		after: func() { s.daemon.log.Debug("device opened", "device", name, s.who()) },
	}, nil
}

// openSpace prepares access to the process's memory. Without it registered memory must be mapped.
func (s *session) openSpace() {
	if s.space != nil {
		return
	}
	space, err := shm.OpenProcess(s.peer.PID, s.peer.UID)
	if err == nil {
		s.space = space
		return
	}
	errno := unix.EPERM
	var cause syscall.Errno
	if errors.As(err, &cause) {
		errno = cause
	}
	s.noSpace = rdma.Refuse(errno, fmt.Sprintf("the NIC (uid %d) cannot reach the memory of"+
		" process %d (uid %d): %v; use mapped memory, or a NIC of that user",
		os.Geteuid(), s.peer.PID, s.peer.UID, err))
}

// contextParts are what the reply to OpOpenDevice hands out, with the NIC's ends.
type contextParts struct {
	bells          *shm.Memory
	kick, kickCopy int // the copy is for the application
	read, write    int
}

func newContextParts() (p *contextParts, err error) {
	p = &contextParts{kick: -1, kickCopy: -1, read: -1, write: -1}
	if p.bells, err = shm.Create("rnic-doorbells", abi.DoorbellPageBytes); err != nil {
		return nil, err
	}
	if p.kick, err = shm.EventFD(); err != nil {
		p.discard()
		return nil, err
	}
	if p.kickCopy, err = unix.FcntlInt(uintptr(p.kick), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		p.discard()
		return nil, fmt.Errorf("daemon: copy an eventfd (ulimit -n?): %w", err)
	}
	if p.read, p.write, err = shm.Pipe(); err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

func (p *contextParts) discard() {
	p.bells.Release()
	for _, fd := range []int{p.kick, p.kickCopy, p.read, p.write} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// openContext takes the parts over when it succeeds. Lane.
func (s *session) openContext(now clock.Time, p *contextParts, device int) (
	uint32, *rdma.Refusal,
) {
	l := s.daemon.lane
	if s.ending.Load() != nil {
		return 0, rdma.Refuse(unix.EIO, "the connection has ended")
	}
	if err := l.addWatch(p.kick, unix.EPOLLIN|edge, watch{kind: watchKick}); err != nil {
		return 0, rdma.Refuse(unix.ENOMEM, err.Error())
	}
	var space mem.Space
	if s.space != nil {
		space = s.space
	}
	context, refusal := l.nic.OpenContext(now, nic.ContextConfig{
		Device: device, Name: s.name, PID: uint32(s.peer.PID), UID: s.peer.UID, Space: space,
		Doorbells: p.bells.Bytes(), Owner: s, KeepsOut: s.keepsOut,
	})
	if refusal != nil {
		l.dropWatch(p.kick)
		return 0, refusal
	}
	s.context, s.bells, s.kick = context, p.bells, p.kick
	s.async = &outbox{lane: l, fd: p.write}
	return context.ID(), nil
}

// shutdown ends the NIC for its owner and for root.
func (s *session) shutdown(*ctl.Message) (reply, *rdma.Refusal) {
	if s.peer.UID != 0 && s.peer.UID != uint32(os.Geteuid()) {
		return reply{}, rdma.Refuse(unix.EPERM, fmt.Sprintf("the NIC belongs to uid %d", os.Geteuid()))
	}
	return reply{after: func() {
		s.daemon.log.Info("shutdown requested", s.who())
		go s.daemon.Close()
	}}, nil
}
