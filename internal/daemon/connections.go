package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// cmState is what a session has when its connection is for connection management. Lane.
type cmState struct {
	session  *nic.CMSession
	channels map[uint32]*outbox
	unread   int // events that wait for room in the pipes
}

// cmOps need a connection that OpOpenCM made one for connection management.
//
//tidy:table
var cmOps = map[abi.Op]handler{
	abi.OpCreateEventChannel:  (*session).createEventChannel,
	abi.OpDestroyEventChannel: (*session).destroyEventChannel,
	abi.OpCreateID: cmCommand(func(s *nic.CMSession, req *abi.CreateIDReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return handle(s.CreateID(req))
	}),
	abi.OpDestroyID: cmCommand(func(s *nic.CMSession, req *abi.HandleMsg, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.DestroyID(now, req.Handle)
	}),
	abi.OpBindAddr: cmCommand(func(s *nic.CMSession, req *abi.CMAddrReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return route(s.BindAddr(req))
	}),
	abi.OpResolveAddr: cmStart(func(s *nic.CMSession, req *abi.CMAddrReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.ResolveAddr(now, req)
	}),
	abi.OpResolveRoute: cmStart(func(s *nic.CMSession, req *abi.CMAddrReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.ResolveRoute(now, req)
	}),
	abi.OpQueryID: cmCommand(func(s *nic.CMSession, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return route(s.QueryID(req.Handle))
	}),
	abi.OpListen: cmCommand(func(s *nic.CMSession, req *abi.CMListenReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return route(s.Listen(req))
	}),
	abi.OpConnect: cmStart(func(s *nic.CMSession, req *abi.CMConnReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.Connect(now, req)
	}),
	abi.OpAccept: cmCommand(func(s *nic.CMSession, req *abi.CMConnReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.Accept(now, req)
	}),
	abi.OpReject: cmCommand(func(s *nic.CMSession, req *abi.CMConnReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.Reject(now, req)
	}),
	abi.OpDisconnect: cmCommand(func(s *nic.CMSession, req *abi.HandleMsg, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.Disconnect(now, req.Handle)
	}),
	abi.OpEstablish: cmCommand(func(s *nic.CMSession, req *abi.HandleMsg, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.Establish(now, req.Handle)
	}),
	abi.OpNotify: cmCommand(func(s *nic.CMSession, req *abi.CMNotifyReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.Notify(now, req)
	}),
	abi.OpInitQPAttr: cmCommand(func(s *nic.CMSession, req *abi.CMInitQPAttrReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.InitQPAttr(req)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpSetOption: cmCommand(func(s *nic.CMSession, req *abi.CMOptionReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.SetOption(req)
	}),
	abi.OpMigrateID: cmCommand(func(s *nic.CMSession, req *abi.CMMigrateReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.MigrateID(req)
	}),
	abi.OpJoinMulticast: cmStart(func(s *nic.CMSession, req *abi.CMMulticastReq, now clock.Time) ([]byte, *rdma.Refusal) {
		return handle(s.JoinMulticast(now, req))
	}),
	abi.OpLeaveMulticast: cmCommand(func(s *nic.CMSession, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.LeaveMulticast(req.Handle)
	}),
}

// cmCommand makes a handler of a call of connection management that the lane executes.
func cmCommand[Req any](
	f func(*nic.CMSession, *Req, clock.Time) ([]byte, *rdma.Refusal),
) handler {
	return commandIn((*session).doCM, func(s *session, req *Req, now clock.Time) (
		[]byte, *rdma.Refusal,
	) {
		return f(s.cm.session, req, now)
	})
}

// cmStart is cmCommand for a call that leads to events: a program that never reads its events
// cannot make more and more of them.
func cmStart[Req any](
	f func(*nic.CMSession, *Req, clock.Time) ([]byte, *rdma.Refusal),
) handler {
	return cmCommand(func(s *nic.CMSession, req *Req, now clock.Time) ([]byte, *rdma.Refusal) {
		if owner, _ := s.Owner().(*session); owner.cm.unread >= limits.MaxEventBacklog {
			return nil, rdma.Refuse(unix.ENOBUFS, fmt.Sprintf(
				"%d connection events wait for the program to read its event channels",
				owner.cm.unread))
		}
		return f(s, req, now)
	})
}

// route is the body of a reply that describes an identifier.
func route(d abi.CMRoute, r *rdma.Refusal) ([]byte, *rdma.Refusal) { return ctl.Bytes(&d), r }

// openCM makes the connection one for connection management.
func (s *session) openCM(m *ctl.Message) (reply, *rdma.Refusal) {
	switch {
	case len(m.Body) != 0:
		return reply{}, badBody(m)
	case s.bells != nil:
		return reply{}, rdma.Refuse(unix.EBUSY, "this connection has opened a device")
	case s.connects:
		return reply{}, rdma.Refuse(unix.EBUSY, "this connection is for connection management already")
	}
	var refusal *rdma.Refusal
	portMin := s.portMin()
	if !s.daemon.lane.do(func(now clock.Time) { refusal = s.enterCM(now, portMin) }) {
		refusal = rdma.Refuse(unix.EIO, "the NIC is shutting down")
	}
	if refusal != nil {
		return reply{}, refusal
	}
	s.connects = true
	body, _ := handle(cmSessionHandle, nil)
	return reply{body: body}, nil
}

// cmSessionHandle is the handle in the reply to OpOpenCM: a connection has one session, and no
// request names it.
const cmSessionHandle = 1

// enterCM opens the NIC's session. Lane.
func (s *session) enterCM(now clock.Time, portMin uint16) *rdma.Refusal {
	if s.ending.Load() != nil {
		return rdma.Refuse(unix.EIO, "the connection has ended")
	}
	session, refusal := s.daemon.lane.nic.OpenCM(now, nic.CMConfig{
		Name: s.name, PID: uint32(s.peer.PID), UID: s.peer.UID, PortMin: portMin, Owner: s,
	})
	if refusal == nil {
		s.cm = cmState{session: session, channels: map[uint32]*outbox{}}
	}
	return refusal
}

// closeCM ends the session's connections and its event pipes; their readers see the end. Lane.
func (s *session) closeCM(now clock.Time) {
	if s.cm.session == nil {
		return
	}
	cm := s.cm
	s.cm = cmState{} // whatever happens below, not twice
	s.daemon.lane.nic.CloseCM(now, cm.session)
	for _, o := range cm.channels {
		o.close()
	}
}

// doCM is do for a session of connection management.
func (s *session) doCM(f func(now clock.Time)) *rdma.Refusal {
	refusal := rdma.Refuse(unix.EIO, "the NIC is shutting down")
	s.daemon.lane.doRevoking(func(now clock.Time) {
		if s.cm.session == nil {
			refusal.Reason = "the connection has been closed"
			return
		}
		refusal = nil
		f(now)
	})
	return refusal
}

// createEventChannel makes a pipe; the program gets the read end.
func (s *session) createEventChannel(m *ctl.Message) (reply, *rdma.Refusal) {
	if len(m.Body) != 0 {
		return reply{}, badBody(m)
	}
	read, write, refusal := eventPipe()
	if refusal != nil {
		return reply{}, refusal
	}
	var body []byte
	r := s.doCM(func(clock.Time) {
		var h uint32
		if h, refusal = s.cm.session.CreateEventChannel(); refusal == nil {
			s.cm.channels[h] = &outbox{lane: s.daemon.lane, fd: write, waits: &s.cm.unread}
			body, _ = handle(h, nil)
		}
	})
	if r == nil {
		r = refusal
	}
	if r != nil {
		_, _ = unix.Close(read), unix.Close(write)
		return reply{}, r
	}
	return reply{body: body, fds: []int{read}}, nil
}

func (s *session) destroyEventChannel(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.HandleMsg
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	var refusal *rdma.Refusal
	r := s.doCM(func(now clock.Time) {
		if refusal = s.cm.session.DestroyEventChannel(now, req.Handle); refusal == nil {
			s.cm.channels[req.Handle].close()
			delete(s.cm.channels, req.Handle)
		}
	})
	if r == nil {
		r = refusal
	}
	return reply{}, r
}

// deliverConnectionEvents tells applications about connections, and hands the NIC's questions
// about routes on. Lane.
func (l *lane) deliverConnectionEvents() {
	for l.nic.PollConnectionEvent(&l.connection) {
		e := &l.connection
		s, ok := e.Session.Owner().(*session)
		if !ok {
			continue
		}
		if o := s.cm.channels[e.Channel]; o != nil {
			o.send(ctl.Bytes(&e.Record))
		}
	}
	var q nic.Lookup
	for l.nic.PollLookup(&q) {
		l.ask(q)
	}
}

// announceEnd tells programs that the device goes away. Lane.
func (l *lane) announceEnd(now clock.Time) {
	l.nic.RemoveDevice(now)
	l.deliverConnectionEvents()
}
