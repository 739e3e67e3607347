package nic

import (
	"net/netip"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// What rdma_cm connections ask of the communication managers, as the Linux kernel does: an answer
// within 4.3 s, 15 repetitions.
const (
	cmResponseTimeout = 20
	cmRetries         = 15
)

// qkeyDefault is the queue key of datagrams that rdma_cm connects (RDMA_UDP_QKEY).
const qkeyDefault rdma.QKey = 0x01234567

// Listen waits for requests to the bound address.
func (s *CMSession) Listen(req *abi.CMListenReq) (abi.CMRoute, *rdma.Refusal) {
	c := s.nic.cm
	i, r := s.find(req.ID)
	if r != nil {
		return abi.CMRoute{}, r
	}
	if i.state == idIdle {
		if r := c.bind(i, sockaddr{addr: netip.IPv4Unspecified()}); r != nil {
			return abi.CMRoute{}, r
		}
	}
	if i.state != idBound {
		return abi.CMRoute{}, refusef(syscall.EINVAL, "listen: the identifier is %v", i.state)
	}
	if i.options.reuse {
		// A listener shares its port with nobody.
		if r := c.ports.check(i, false); r != nil {
			return abi.CMRoute{}, r
		}
		i.options.reuse = false
	}
	i.backlog = limits.MaxListenBacklog
	if req.Backlog > 0 && req.Backlog < limits.MaxListenBacklog {
		i.backlog = int(req.Backlog)
	}
	if r := c.listen(i); r != nil {
		return abi.CMRoute{}, r
	}
	i.state = idListening
	return i.describe(), nil
}

// Connect asks the peer for a connection, or for the queue pair behind a datagram service.
func (s *CMSession) Connect(now clock.Time, req *abi.CMConnReq) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	if i.state != idRouted {
		return refusef(syscall.EINVAL, "connect: the identifier is %v", i.state)
	}
	if i.isStreamed() {
		return s.nic.cm.dial(i, &req.Param)
	}
	room := mad.REQPrivateLen - mad.IPHeaderLen
	if i.isDatagram() {
		room = mad.SIDRREQPrivateLen - mad.IPHeaderLen
	}
	if int(req.Param.PrivateDataLen) > room {
		return refusef(syscall.EINVAL, "connect: %d bytes of private data; there is room for %d",
			req.Param.PrivateDataLen, room)
	}
	header := mad.IPHeader{
		Source:      netip.AddrPortFrom(i.src.addr, i.src.port),
		Destination: i.dst.addr,
	}
	private := header.Append(make([]byte, 0, mad.SIDRREQPrivateLen))
	private = append(private, req.Param.PrivateData[:req.Param.PrivateDataLen]...)
	c := s.nic.cm
	var call cm.ID
	if i.isDatagram() {
		call, r = c.query(i, private)
	} else {
		call, r = c.request(i, &req.Param, private)
	}
	if r != nil {
		return r
	}
	i.call, i.state = call, idConnecting
	c.calls[call] = i
	c.stir()
	c.collect()
	return nil
}

// request sends a REQ.
func (c *connections) request(i *identifier, p *abi.CMParam, private []byte) (
	cm.ID, *rdma.Refusal,
) {
	if p.QPN > numberMask {
		return 0, refusef(syscall.EINVAL, "connect: qp_num %#x has more than 24 bits", p.QPN)
	}
	i.qpn, i.peer.retryCount = rdma.QPN(p.QPN), min(p.RetryCount, retryMax)
	i.asked = &cm.ConnectParams{
		Path: i.path(), ServiceID: i.space.service(i.dst.port), PKey: rdma.PKeyDefault,
		LocalQPN: i.qpn, StartPSN: i.startPSN, QPType: i.qpType, PathMTU: i.binding.mtu,
		ResponderResources: min(p.ResponderResources, limits.MaxRDAtomic),
		InitiatorDepth:     min(p.InitiatorDepth, limits.MaxRDAtomic),
		RetryCount:         min(p.RetryCount, retryMax), RNRRetry: min(p.RNRRetryCount, retryMax),
		SRQ: p.SRQ != 0, FlowControl: p.FlowControl != 0,
		AckTimeout:        ackTimeout(ackDelay, i.lifetime()),
		CMResponseTimeout: cmResponseTimeout, MaxCMRetries: cmRetries, PrivateData: private,
		ECE: eceOf(p),
	}
	return c.engine.Connect(c.nic.now, i.asked)
}

// eceOf are the options of a vendor that a program wants its peer to know. Queue pairs here have
// none; those that a program looks after itself may.
func eceOf(p *abi.CMParam) cm.ECE {
	return cm.ECE{VendorID: p.ECEVendor & numberMask, Options: p.ECEOptions}
}

// askForLess asks once more where the peer refuses the path MTU and says which one it takes (IBTA
// 12.6.7.2, reason 26): a REP has no room for another one. It returns false where the refusal is
// the program's to hear. Each time asks for less, so that this ends.
func (c *connections) askForLess(i *identifier, e *cm.Event) bool {
	if mad.Reason(e.Reason) != mad.ReasonInvalidMTU || e.AdditionalLen == 0 || i.asked == nil {
		return false
	}
	mtu := rdma.MTU(e.AdditionalInfo[0] >> 4)
	if !mtu.IsValid() || mtu >= i.asked.PathMTU {
		return false
	}
	i.asked.PathMTU = mtu
	call, r := c.engine.Connect(c.nic.now, i.asked)
	if r != nil {
		return false
	}
	c.hangUp(i)
	i.binding.mtu, i.call = mtu, call
	c.calls[call] = i
	return true
}

// ackTimeout is how long a queue pair waits for an acknowledge: a packet's way there and back and
// the time that the other adapter takes, all 4.096 µs × 2^n (IBTA 12.7.34).
func ackTimeout(delay, lifetime uint8) uint8 {
	t := lifetime + 1
	switch {
	case delay > t:
		t = delay
	case delay == t, delay+1 == t:
		t++
	}
	return min(t, timeoutMax)
}

// query sends a SIDR_REQ.
func (c *connections) query(i *identifier, private []byte) (cm.ID, *rdma.Refusal) {
	return c.engine.QueryService(c.nic.now, &cm.SIDRParams{
		Path: i.path(), ServiceID: i.space.service(i.dst.port), PKey: rdma.PKeyDefault,
		ResponseTimeout: cmResponseTimeout, MaxCMRetries: cmRetries, PrivateData: private,
	})
}

// Accept answers a request. On the active side it stands for Establish. A peer whose request
// cannot be accepted as the program wants is rejected, as the Linux kernel does: programs do not
// try again, and it would wait until it gives up.
func (s *CMSession) Accept(now clock.Time, req *abi.CMConnReq) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	c, p := s.nic.cm, &req.Param
	private := p.PrivateData[:p.PrivateDataLen]
	switch {
	case i.state == idReplied:
		r = c.establish(i)
	case i.state != idRequested:
		return refusef(syscall.EINVAL, "accept: the identifier is %v", i.state)
	case i.isStreamed():
		r = c.acceptStream(i, p)
	case p.QPN > numberMask:
		r = refusef(syscall.EINVAL, "accept: qp_num %#x has more than 24 bits", p.QPN)
	case i.isDatagram():
		r = c.answer(i, p, private)
	default:
		r = c.reply(i, p, private)
	}
	if r != nil {
		_ = c.reject(i, mad.ReasonConsumer, nil) // nobody may be there any more
	}
	c.stir()
	c.collect()
	return r
}

// reply sends a REP.
func (c *connections) reply(i *identifier, p *abi.CMParam, private []byte) *rdma.Refusal {
	if len(private) > mad.REPPrivateLen {
		return refusef(syscall.EINVAL, "accept: %d bytes of private data; there is room for %d",
			len(private), mad.REPPrivateLen)
	}
	params := cm.AcceptParams{
		QPN: rdma.QPN(p.QPN), StartPSN: i.startPSN,
		ResponderResources: min(p.ResponderResources, limits.MaxRDAtomic),
		InitiatorDepth:     min(p.InitiatorDepth, limits.MaxRDAtomic),
		RNRRetry:           min(p.RNRRetryCount, retryMax),
		SRQ:                p.SRQ != 0, FlowControl: p.FlowControl != 0, PrivateData: private,
		ECE: eceOf(p),
	}
	if r := c.engine.Accept(c.nic.now, i.call, &params); r != nil {
		return r
	}
	i.state, i.qpn = idAccepted, params.QPN
	c.accepted[i.qpn] = i
	i.peer.responderResources = params.ResponderResources
	i.peer.initiatorDepth = params.InitiatorDepth
	return nil
}

// answer sends a SIDR_REP.
func (c *connections) answer(i *identifier, p *abi.CMParam, private []byte) *rdma.Refusal {
	if len(private) > mad.SIDRREPPrivateLen {
		return refusef(syscall.EINVAL, "accept: %d bytes of private data; there is room for %d",
			len(private), mad.SIDRREPPrivateLen)
	}
	if r := i.setQKey(rdma.QKey(p.QKey)); r != nil {
		return r
	}
	r := c.engine.AnswerService(c.nic.now, i.call, &cm.SIDRAnswer{
		Status: uint8(mad.SIDRStatusOK), QPN: rdma.QPN(p.QPN), QKey: i.qkey, PrivateData: private,
	})
	if r == nil {
		i.state, i.qpn = idEstablished, rdma.QPN(p.QPN)
	}
	return r
}

// setQKey fixes the queue key of an identifier's datagrams; 0 asks for the default. It cannot be
// changed, since the queue pair has it.
func (i *identifier) setQKey(key rdma.QKey) *rdma.Refusal {
	if key == 0 {
		if i.qkey == 0 {
			i.qkey = qkeyDefault
		}
		return nil
	}
	if i.qkey != 0 && i.qkey != key {
		return refusef(syscall.EINVAL, "queue key %#x: the identifier has %#x already",
			uint32(key), uint32(i.qkey))
	}
	i.qkey = key
	return nil
}

// Reject refuses a request, or, on the active side, a reply.
func (s *CMSession) Reject(now clock.Time, req *abi.CMConnReq) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	room := mad.REJPrivateLen
	if i.isStreamed() {
		room = privateDataMax
	}
	if i.isDatagram() {
		room = mad.SIDRREPPrivateLen
	}
	private := req.Param.PrivateData[:req.Param.PrivateDataLen]
	switch {
	case len(private) > room:
		return refusef(syscall.EINVAL, "reject: %d bytes of private data; there is room for %d",
			len(private), room)
	case req.Reason > reasonMax:
		return refusef(syscall.EINVAL, "reject: reason %d has more than 16 bits", req.Reason)
	case i.state != idRequested && i.state != idReplied && i.state != idAccepted,
		i.state == idAccepted && i.isStreamed():
		return refusef(syscall.EINVAL, "reject: the identifier is %v", i.state)
	}
	c, reason := s.nic.cm, mad.Reason(req.Reason)
	if reason == 0 {
		reason = mad.ReasonConsumer
	}
	r = c.reject(i, reason, private)
	c.stir()
	c.collect()
	return r
}

const reasonMax = 0xffff

// reject sends a REJ, or a SIDR_REP that refuses.
func (c *connections) reject(i *identifier, reason mad.Reason, private []byte) *rdma.Refusal {
	var r *rdma.Refusal
	if i.isStreamed() {
		return c.rejectStream(i, private)
	}
	if i.isDatagram() {
		r = c.engine.AnswerService(c.nic.now, i.call, &cm.SIDRAnswer{
			Status: uint8(mad.SIDRStatusRejected), PrivateData: private,
		})
	} else {
		r = c.engine.Reject(c.nic.now, i.call, &cm.RejectParams{
			Reason: uint16(reason), PrivateData: private,
		})
	}
	if r == nil {
		i.state = idFailed
	}
	return r
}

// Disconnect ends a connection. As with the Linux kernel it is no error where there is none (any
// more): both ends may disconnect at once, and programs do so on their way out.
func (s *CMSession) Disconnect(now clock.Time, handle uint32) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(handle)
	switch {
	case r != nil:
		return r
	case i.isStreamed():
		return s.nic.cm.disconnectStream(i)
	case i.call == 0 && i.state != idFailed:
		return refusef(syscall.EINVAL, "disconnect: the identifier is %v", i.state)
	case i.state != idEstablished || i.isDatagram():
		return nil
	}
	c := s.nic.cm
	r = c.engine.Disconnect(now, i.call, nil)
	c.stir()
	c.collect()
	return r
}

// Establish says that the program has moved its queue pair after CONNECT_RESPONSE; the peer is
// told.
func (s *CMSession) Establish(now clock.Time, handle uint32) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(handle)
	switch {
	case r != nil:
		return r
	case i.isStreamed() && i.state == idEstablished:
		return nil // there is no third message
	case i.state != idReplied:
		return refusef(syscall.EINVAL, "establish: the identifier is %v", i.state)
	}
	r = s.nic.cm.establish(i)
	s.nic.cm.stir()
	s.nic.cm.collect()
	return r
}

func (c *connections) establish(i *identifier) *rdma.Refusal {
	if r := c.engine.Ready(c.nic.now, i.call); r != nil {
		return r
	}
	i.state = idEstablished
	return nil
}

// Notify reports an asynchronous event on the identifier's queue pair. The peer's first packet
// stands for an RTU that was lost.
func (s *CMSession) Notify(now clock.Time, req *abi.CMNotifyReq) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(req.ID)
	switch {
	case r != nil:
		return r
	case rdma.EventType(req.Event) != rdma.EventCommEst:
		return refusef(syscall.EINVAL, "notify: event %d means nothing to a connection", req.Event)
	case i.call == 0:
		return refusef(syscall.EINVAL, "notify: the identifier is %v", i.state)
	}
	if i.state == idAccepted {
		s.nic.cm.engine.Established(now, i.call)
		s.nic.cm.stir()
		s.nic.cm.collect()
	}
	return nil
}
