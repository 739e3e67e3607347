package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// handler executes one kind of request.
type handler func(s *session, m *ctl.Message) (reply, *rdma.Refusal)

// anytimeOps need no open device.
var anytimeOps = map[abi.Op]handler{
	abi.OpListDevices: (*session).listDevices,
	abi.OpOpenDevice:  (*session).openDevice,
	abi.OpOpenCM:      (*session).openCM,
	abi.OpStatus:      (*session).status,
	abi.OpCapture:     (*session).startCapture,
	abi.OpEndCapture:  (*session).endCapture,
	abi.OpShutdown:    (*session).shutdown,
	abi.OpWaits:       (*session).noteWait,
}

//tidy:table
var contextOps = map[abi.Op]handler{
	abi.OpQueryDevice: (*session).queryDevice,
	abi.OpQueryPort: command(func(s *session, req *abi.PortReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.PortAttr(req.Port)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpQueryGIDTable: (*session).queryGIDTable,
	abi.OpQueryPKey: command(func(s *session, req *abi.PortReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.PKey(req.Port, req.Index)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpAllocPD: command(func(s *session, _ *struct{}, _ clock.Time) ([]byte, *rdma.Refusal) {
		return handle(s.context.AllocPD())
	}),
	abi.OpDeallocPD: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DeallocPD(req.Handle)
	}),
	abi.OpRegMR:    (*session).regMR,
	abi.OpDeregMR:  (*session).deregMR,
	abi.OpReregMR:  (*session).reregMR,
	abi.OpAdviseMR: (*session).adviseMR,
	abi.OpAllocNullMR: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.AllocNullMR(req.Handle)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpAllocMW: command(func(s *session, req *abi.AllocMWReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.AllocMW(req)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpDeallocMW: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DeallocMW(req.Handle)
	}),
	abi.OpAllocDM: (*session).allocDM,
	abi.OpFreeDM: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		r := s.context.FreeDM(req.Handle)
		if r == nil {
			s.forgetDM(req.Handle)
		}
		return nil, r
	}),
	abi.OpImportContext: (*session).importContext,
	abi.OpImportPD: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return handle(s.context.ImportPD(req.Handle))
	}),
	abi.OpImportMR: command(func(s *session, req *abi.ImportMRReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.ImportMR(req)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpImportDM:  (*session).importDM,
	abi.OpMapRemote: (*session).mapRemote,
	abi.OpRegDeviceMR: command(func(s *session, req *abi.RegDeviceMRReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.RegDM(req)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpCreateCompChannel:  (*session).createChannel,
	abi.OpDestroyCompChannel: (*session).destroyChannel,
	abi.OpCreateCQ: queueCommand(func(s *session, req *abi.CreateCQReq, _ clock.Time) ([]byte, nic.Shared, *rdma.Refusal) {
		rsp, shared, r := s.context.CreateCQ(req)
		return ctl.Bytes(&rsp), shared, r
	}),
	abi.OpDestroyCQ: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DestroyCQ(req.Handle)
	}),
	abi.OpResizeCQ: queueCommand(func(s *session, req *abi.ResizeCQReq, now clock.Time) ([]byte, nic.Shared, *rdma.Refusal) {
		s.daemon.lane.catchUp(now)
		rsp, shared, r := s.context.ResizeCQ(req)
		return ctl.Bytes(&rsp), shared, r
	}),
	abi.OpModifyCQ: command(func(s *session, req *abi.ModifyCQReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.ModifyCQ(req)
	}),
	abi.OpOpenXRCD: (*session).openXRCD,
	abi.OpCloseXRCD: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.CloseXRCD(req.Handle)
	}),
	abi.OpOpenQP: command(func(s *session, req *abi.OpenQPReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return handle(s.context.OpenQP(req))
	}),
	abi.OpCreateQP: queueCommand(func(s *session, req *abi.CreateQPReq, now clock.Time) ([]byte, nic.Shared, *rdma.Refusal) {
		rsp, shared, r := s.context.CreateQP(now, req)
		return ctl.Bytes(&rsp), shared, r
	}),
	abi.OpModifyQP: command(func(s *session, req *abi.ModifyQPReq, now clock.Time) ([]byte, *rdma.Refusal) {
		attr, r := s.context.ModifyQP(now, req)
		return ctl.Bytes(&attr), r
	}),
	abi.OpQueryQP: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		attr, r := s.context.QueryQP(req.Handle)
		return ctl.Bytes(&attr), r
	}),
	abi.OpDestroyQP: command(func(s *session, req *abi.HandleMsg, now clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DestroyQP(now, req.Handle)
	}),
	abi.OpCreateAH: command(func(s *session, req *abi.CreateAHReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return handle(s.context.CreateAH(req))
	}),
	abi.OpDestroyAH: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DestroyAH(req.Handle)
	}),
	abi.OpCreateSRQ: queueCommand(func(s *session, req *abi.CreateSRQReq, _ clock.Time) ([]byte, nic.Shared, *rdma.Refusal) {
		rsp, shared, r := s.context.CreateSRQ(req)
		return ctl.Bytes(&rsp), shared, r
	}),
	abi.OpModifySRQ: command(func(s *session, req *abi.SRQAttr, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.ModifySRQ(req)
	}),
	abi.OpResizeSRQ: queueCommand(func(s *session, req *abi.ResizeSRQReq, _ clock.Time) ([]byte, nic.Shared, *rdma.Refusal) {
		rsp, shared, r := s.context.ResizeSRQ(req)
		return ctl.Bytes(&rsp), shared, r
	}),
	abi.OpQuerySRQ: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		rsp, r := s.context.QuerySRQ(req.Handle)
		return ctl.Bytes(&rsp), r
	}),
	abi.OpAttachMulticast: command(func(s *session, req *abi.AttachMulticastReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.AttachMulticast(req)
	}),
	abi.OpDetachMulticast: command(func(s *session, req *abi.AttachMulticastReq, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DetachMulticast(req)
	}),
	abi.OpDestroySRQ: command(func(s *session, req *abi.HandleMsg, _ clock.Time) ([]byte, *rdma.Refusal) {
		return nil, s.context.DestroySRQ(req.Handle)
	}),
}

// execute finds the handler of a request.
func (s *session) execute(m *ctl.Message) (reply, *rdma.Refusal) {
	if h := anytimeOps[m.Op]; h != nil {
		return h(s, m)
	}
	if h := cmOps[m.Op]; h != nil {
		if !s.connects {
			return reply{}, rdma.Refuse(unix.EPROTO, m.Op.String()+" before "+abi.OpOpenCM.String())
		}
		return h(s, m)
	}
	h := contextOps[m.Op]
	switch {
	case h == nil && m.Op == abi.OpHello:
		return reply{}, rdma.Refuse(unix.EPROTO, "hello was said before")
	case h == nil:
		return reply{}, rdma.Refuse(unix.EOPNOTSUPP, m.Op.String()+" is unknown to this NIC")
	case s.bells == nil:
		return reply{}, rdma.Refuse(unix.EPROTO, m.Op.String()+" before "+abi.OpOpenDevice.String())
	}
	return h(s, m)
}

func badBody(m *ctl.Message) *rdma.Refusal {
	return rdma.Refuse(unix.EINVAL, fmt.Sprintf("%v: a body of %d bytes is not what it takes",
		m.Op, len(m.Body)))
}

// command makes a handler of a call that the lane executes: one structure in, one out.
func command[Req any](f func(*session, *Req, clock.Time) ([]byte, *rdma.Refusal)) handler {
	return commandIn((*session).do, f)
}

// commandIn is command for a call that do lets the lane execute.
func commandIn[Req any](
	do func(*session, func(clock.Time)) *rdma.Refusal,
	f func(*session, *Req, clock.Time) ([]byte, *rdma.Refusal),
) handler {
	return func(s *session, m *ctl.Message) (reply, *rdma.Refusal) {
		req := new(Req)
		if !ctl.Decode(m.Body, req) {
			return reply{}, badBody(m)
		}
		var body []byte
		var refusal *rdma.Refusal
		if r := do(s, func(now clock.Time) { body, refusal = f(s, req, now) }); r != nil {
			return reply{}, r
		}
		return reply{body: body}, refusal
	}
}

// queueCommand is command for a call that makes a queue, whose memory goes with the reply.
func queueCommand[Req any](
	f func(*session, *Req, clock.Time) ([]byte, nic.Shared, *rdma.Refusal),
) handler {
	return func(s *session, m *ctl.Message) (reply, *rdma.Refusal) {
		req := new(Req)
		if !ctl.Decode(m.Body, req) {
			return reply{}, badBody(m)
		}
		var body []byte
		var refusal *rdma.Refusal
		fd := -1
		r := s.do(func(now clock.Time) {
			var shared nic.Shared
			body, shared, refusal = f(s, req, now)
			if q, ok := shared.(*queueMemory); ok && refusal == nil {
				fd = q.TakeFD()
			}
		})
		switch {
		case r != nil:
			return reply{}, r
		case refusal != nil:
			return reply{}, refusal
		}
		return reply{body: body, fds: []int{fd}}, nil
	}
}

// handle is the body of a reply that names a new object.
func handle(h uint32, r *rdma.Refusal) ([]byte, *rdma.Refusal) {
	return ctl.Bytes(&abi.HandleMsg{Handle: h}), r
}

func (s *session) queryDevice(m *ctl.Message) (reply, *rdma.Refusal) {
	if len(m.Body) != 0 {
		return reply{}, badBody(m)
	}
	var rsp abi.DeviceAttr
	r := s.do(func(clock.Time) { rsp = s.context.DeviceAttr() })
	return reply{body: ctl.Bytes(&rsp)}, r
}

func (s *session) queryGIDTable(m *ctl.Message) (reply, *rdma.Refusal) {
	// A body is tolerated: the table of port 1 is the only one.
	var list []abi.GIDEntry
	r := s.do(func(clock.Time) { list = s.context.GIDTable() })
	return reply{body: ctl.ListBytes(list)}, r
}

// createChannel makes a pipe; the program gets the read end.
func (s *session) createChannel(m *ctl.Message) (reply, *rdma.Refusal) {
	if len(m.Body) != 0 {
		return reply{}, badBody(m)
	}
	read, write, refusal := eventPipe()
	if refusal != nil {
		return reply{}, refusal
	}
	var body []byte
	r := s.do(func(clock.Time) {
		var h uint32
		if h, refusal = s.context.CreateChannel(); refusal == nil {
			s.channels[h] = &outbox{lane: s.daemon.lane, fd: write}
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

func (s *session) destroyChannel(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.HandleMsg
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	var refusal *rdma.Refusal
	r := s.do(func(clock.Time) {
		if refusal = s.context.DestroyChannel(req.Handle); refusal == nil {
			s.channels[req.Handle].close()
			delete(s.channels, req.Handle)
		}
	})
	if r == nil {
		r = refusal
	}
	return reply{}, r
}
