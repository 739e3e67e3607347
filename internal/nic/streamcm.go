package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/iwarp"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// depthUnknown is how many READs a peer is taken to serve, and to want, that does not say: MPA
// revision 1 has no word for it.
const depthUnknown = 16

// rtrOffered lets this end ask the peer's program to send first: the messages that need no receive
// at the peer.
const rtrOffered = iwarp.RTRWrite | iwarp.RTRRead

// errnoProtocol is what the Linux kernel reports of a peer that does not speak MPA as it should.
const errnoProtocol = syscall.EINVAL

// isStreamed reports that the identifier's connection is one of TCP.
func (i *identifier) isStreamed() bool {
	return i.binding.isBound && i.binding.device.transport.hasStreams
}

// ownStream finds the first device with streams that carries one of the host's own addresses for
// the identifier.
func (i *identifier) ownStream(a sockaddr) (*device, abi.GIDEntry, bool) {
	for _, d := range i.session.nic.devices {
		if !d.transport.hasStreams || !i.admits(d) {
			continue
		}
		if gid, ok := d.port.gidOf(a); ok {
			return d, gid, true
		}
	}
	return nil, abi.GIDEntry{}, false
}

// wires tells which kinds of devices an identifier may have.
func (i *identifier) wires() (hasPackets, hasStreams bool) {
	for _, d := range i.session.nic.devices {
		if i.admits(d) {
			hasStreams = hasStreams || d.transport.hasStreams
			hasPackets = hasPackets || !d.transport.hasStreams
		}
	}
	return hasPackets, hasStreams
}

// listen enters a listener on every wire that it may have. Where another program has the TCP port,
// the listener does without TCP if it has another wire.
func (c *connections) listen(i *identifier) *rdma.Refusal {
	hasPackets, hasStreams := i.wires()
	if hasPackets {
		if r := c.serve(i); r != nil {
			return r
		}
	}
	if !hasStreams || c.nic.cfg.Streams == nil {
		if !hasPackets {
			return refusef(syscall.EOPNOTSUPP, "listen: this NIC has no TCP")
		}
		return nil
	}
	r := c.listenStream(i)
	if r != nil && hasPackets {
		c.noteDeaf(i, r)
		return nil
	}
	return r
}

// noteDeaf keeps why a listener goes on without TCP.
func (c *connections) noteDeaf(i *identifier, r *rdma.Refusal) {
	i.deaf = r.Reason
	i.session.noteError(&CauseRecord{
		Kind: ErrorConnection, Errno: r.Errno,
		Chain: []string{
			fmt.Sprintf("%s listens without iWARP", i.ends()), r.Reason,
		},
	})
}

// portTries bounds how often another port is taken where the program leaves it to the NIC.
const portTries = 16

// listenStream opens a TCP listener. A port that the NIC chose and that is taken is no fault of
// the program: another one is chosen, if only TCP is concerned.
func (c *connections) listenStream(i *identifier) *rdma.Refusal {
	hasPackets, _ := i.wires()
	for tries := 1; ; tries++ {
		r := c.openListener(i)
		if r == nil || r.Errno != syscall.EADDRINUSE || !i.isPortChosen || hasPackets ||
			tries == portTries {
			return r
		}
		c.ports.release(i)
		i.src.port = 0
		if r := c.ports.claim(i, uint32(c.nic.random()>>33)); r != nil {
			return r
		}
	}
}

func (c *connections) openListener(i *identifier) *rdma.Refusal {
	t := c.nic.streams
	s := t.add(&stream{isListener: true, owner: i})
	if s == nil {
		return refusef(syscall.ENOMEM, "limit of %d TCP connections", limits.MaxStreams)
	}
	at := netip.AddrPortFrom(i.src.addr, i.src.port)
	err := t.port().Listen(s.id, &StreamListener{
		At: at, Interface: i.src.scope, Backlog: i.backlog, OnlyIPv6: i.options.afOnly,
	})
	if err != nil {
		t.forget(s)
		return refusalOf(err, "listen at %v", at)
	}
	i.stream, s.local, s.where = s, at, i.src.scope
	return nil
}

// refusalOf turns an error of the shell into a refusal with its errno.
func refusalOf(err error, format string, args ...any) *rdma.Refusal {
	errno := syscall.EIO
	var number syscall.Errno
	if errors.As(err, &number) {
		errno = number
	}
	return refusef(errno, "%s: %v", fmt.Sprintf(format, args...), err)
}

// unlistenStream closes a TCP listener, with the connections that came in to it and have not asked
// for anything.
func (c *connections) unlistenStream(i *identifier) {
	s, t := i.stream, c.nic.streams
	if s == nil || !s.isListener {
		return
	}
	t.forget(s)
	t.port().Close(s.id)
	for at := 0; at < len(t.unasked); {
		if o := t.unasked[at]; o.owner == i {
			t.abort(o)
		} else {
			at++
		}
	}
}

// handleStreamRequest makes an identifier of an MPA request and tells the program that listens, or
// says no to the peer.
func (c *connections) handleStreamRequest(s *stream, l *identifier, e *iwarp.Event) {
	src := sockaddr{addr: s.local.Addr(), port: s.local.Port()}
	dst := sockaddr{addr: s.remote.Addr(), port: s.remote.Port()}
	var i *identifier
	device, gid, ok := l.ownStream(sockaddr{addr: src.addr, scope: s.where})
	if ok {
		i, _ = l.session.newIdentifier(l.channel, l.space, l.qpType)
	}
	if i == nil {
		c.nic.counters.TurnedAway++
		c.noteTurnedAway(fmt.Sprintf("%v asked for a connection with %v, port %d of %v", s.remote,
			src.addr, src.port, l.space), mad.ReasonNoResources)
		s.conn.Reject(c.nic.now, nil)
		return
	}
	if src.addr.IsLinkLocalUnicast() {
		src.scope, dst.scope = s.where, s.where
	}
	i.src, i.dst, i.options = src, dst, l.options
	i.options.reuse = false
	i.binding = binding{
		isBound: true, device: device, gid: gid, remote: rdma.GIDFromAddr(dst.addr),
		mtu: device.port.MTU, hops: hopLimitDefault, class: l.options.tos,
	}
	i.stream, s.owner = s, i
	i.state, i.isUntaken, i.listener = idRequested, true, l
	l.untaken++
	if i.setDepths(e.ORD, e.IRD); !e.IsNegotiated {
		i.setDepths(depthUnknown, depthUnknown)
	}
	c.raise(i, cmEvent{
		kind: eventConnectRequest, listener: l.handle, param: i.streamParam(e.PrivateData),
	})
}

// setDepths keeps how many READs the peer may have under way here, and we there.
func (i *identifier) setDepths(responder, initiator uint16) {
	i.peer.responderResources = uint8(min(responder, limits.MaxRDAtomic))
	i.peer.initiatorDepth = uint8(min(initiator, limits.MaxRDAtomic))
}

// streamParam is what an event tells of the other side of a connection of TCP.
func (i *identifier) streamParam(private []byte) abi.CMParam {
	p := abi.CMParam{
		ResponderResources: i.peer.responderResources, InitiatorDepth: i.peer.initiatorDepth,
		QPType: uint8(i.qpType),
	}
	setPrivate(&p, private)
	return p
}

// dial begins to connect.
func (c *connections) dial(i *identifier, p *abi.CMParam) *rdma.Refusal {
	if c.nic.cfg.Streams == nil {
		return refusef(syscall.EOPNOTSUPP, "connect: this NIC has no TCP")
	}
	q, r := c.streamQP(i, p.QPN, "connect")
	if r != nil {
		return r
	}
	t := c.nic.streams
	s := t.add(&stream{
		device: i.binding.device, owner: i, qp: q, params: streamParams(p),
		local:  netip.AddrPortFrom(i.src.addr, i.src.port),
		remote: netip.AddrPortFrom(i.dst.addr, i.dst.port), where: i.dst.scope,
	})
	if s == nil {
		return refusef(syscall.ENOMEM, "limit of %d TCP connections", limits.MaxStreams)
	}
	s.params.RTR = rtrOffered
	s.params.PrivateData = slices.Clone(s.params.PrivateData)
	if err := t.connect(s, i); err != nil {
		t.forget(s)
		return refusalOf(err, "connect from %v to %v", s.local, s.remote)
	}
	i.stream, q.stream, i.qpn, i.state = s, s, q.qpn, idConnecting
	return nil
}

// connect asks the shell for a connection. The port is the one of rdma_cm, so that the peer sees
// the address that the program knows; where TCP has it in use and the program has not asked for it,
// any other does.
func (t *streams) connect(s *stream, i *identifier) error {
	route := StreamRoute{
		Local: s.local, Remote: s.remote, Interface: s.where, TOS: i.binding.class,
	}
	err := t.port().Connect(s.id, &route)
	s.isDialing = err == nil
	if err == nil || !i.isPortChosen {
		return err
	}
	if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return err
	}
	route.Local = netip.AddrPortFrom(s.local.Addr(), 0)
	err = t.port().Connect(s.id, &route)
	s.isDialing = err == nil
	return err
}

// streamQP finds the queue pair that a program names for a connection. It may be one of another
// context, as with the Linux kernel, but not of another user.
func (c *connections) streamQP(i *identifier, qpn uint32, what string) (*qp, *rdma.Refusal) {
	q := c.nic.qps[rdma.QPN(qpn)]
	device := i.binding.device
	switch {
	case q == nil || q.iwarp == nil || q.context.device != device ||
		q.context.cfg.UID != i.session.cfg.UID:
		return nil, refusef(syscall.EINVAL, "%s: qp_num %#x is no queue pair of %s", what, qpn,
			device.name)
	case q.stream != nil:
		return nil, refusef(syscall.EINVAL, "%s: queue pair %v has a connection already", what, q.qpn)
	}
	switch state := q.state(); state {
	case sReset, sInit:
		return q, nil
	default:
		return nil, refusef(syscall.EINVAL, "%s: queue pair %v is in %v", what, q.qpn, state)
	}
}

func streamParams(p *abi.CMParam) iwarp.Params {
	return iwarp.Params{
		PrivateData: p.PrivateData[:p.PrivateDataLen],
		IRD:         uint16(min(p.ResponderResources, limits.MaxRDAtomic)),
		ORD:         uint16(min(p.InitiatorDepth, limits.MaxRDAtomic)),
	}
}

// acceptStream answers an MPA request.
func (c *connections) acceptStream(i *identifier, p *abi.CMParam) *rdma.Refusal {
	s := i.stream
	if s == nil {
		return refusef(syscall.ECONNRESET, "accept: the peer has given up")
	}
	q, r := c.streamQP(i, p.QPN, "accept")
	if r != nil {
		return r
	}
	params := streamParams(p)
	s.conn.Accept(c.nic.now, q.iwarp, &params)
	s.qp, q.stream = q, s
	i.qpn, i.state = q.qpn, idAccepted
	c.nic.streams.settle(s)
	return nil
}

// rejectStream answers an MPA request with no.
func (c *connections) rejectStream(i *identifier, private []byte) *rdma.Refusal {
	s := i.stream
	i.state = idFailed
	if s == nil {
		return refusef(syscall.ECONNRESET, "reject: the peer has given up")
	}
	i.stream, s.owner = nil, nil
	s.conn.Reject(c.nic.now, private)
	c.nic.streams.settle(s)
	return nil
}

// disconnectStream ends a connection in order: what was posted before is sent. It is no error where
// there is none any more.
func (c *connections) disconnectStream(i *identifier) *rdma.Refusal {
	switch i.state {
	case idConnecting, idRequested, idAccepted, idEstablished, idDisconnected, idFailed:
	default:
		return refusef(syscall.EINVAL, "disconnect: the identifier is %v", i.state)
	}
	if s := i.stream; s != nil && i.state == idEstablished {
		s.conn.Disconnect(c.nic.now)
		c.nic.streams.settle(s)
	}
	return nil
}

// dropStream ends the connection of an identifier that goes.
func (c *connections) dropStream(i *identifier) {
	s, t := i.stream, c.nic.streams
	if s == nil {
		return
	}
	i.stream, s.owner = nil, nil
	switch {
	case s.conn == nil && s.isDialing:
		t.abort(s)
	case s.conn == nil:
		t.forget(s)
	case i.state == idRequested:
		s.conn.Reject(c.nic.now, nil)
		t.settle(s)
	case s.qp != nil:
		s.qp.fail(c.nic.now)
	}
}

// reactToStream moves an identifier by one event of its connection that is not the last.
func (c *connections) reactToStream(i *identifier, e *iwarp.Event) {
	switch e.Kind {
	case iwarp.EventReply, iwarp.EventEstablished:
		i.state = idEstablished
		i.peer.isKnown = true
		i.setDepths(e.IRD, e.ORD)
		c.raise(i, cmEvent{kind: eventEstablished, param: i.streamParam(e.PrivateData)})
	case iwarp.EventRejected:
		i.state = idFailed
		var p abi.CMParam
		setPrivate(&p, e.PrivateData)
		c.raise(i, cmEvent{kind: eventRejected, status: -int32(syscall.ECONNRESET), param: p})
	default: // requests have no identifier yet, and the end is handled elsewhere
	}
}

// endStream tells the program that a connection is over. As with the Linux kernel, the end of one
// whose request waits for an answer shows when the program answers.
func (c *connections) endStream(i *identifier, e *iwarp.End) {
	errno := errnoOf(e)
	if errno == 0 && (i.state == idConnecting || i.state == idAccepted) {
		errno = syscall.ECONNRESET // an end in order is none of a connection that is not there yet
	}
	switch i.state {
	case idConnecting:
		c.failStream(i, errno)
	case idAccepted:
		i.state = idFailed
		c.raise(i, cmEvent{kind: eventConnectError, status: -int32(errno)})
	case idEstablished:
		i.state = idDisconnected
		c.raise(i, cmEvent{kind: eventDisconnected, status: -int32(errno)})
	default: // the program knows
	}
}

// failStream tells the program that there is no connection, by the event that the Linux kernel has
// for the errno; hosts that cannot be reached are unreachable, however TCP says so.
func (c *connections) failStream(i *identifier, errno syscall.Errno) {
	if i == nil {
		return
	}
	kind := eventConnectError
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET:
		kind = eventRejected
	case syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN:
		kind = eventUnreachable
	}
	i.state = idFailed
	c.raise(i, cmEvent{kind: kind, status: -int32(errno)})
}

// errnoOf is what ended a connection, 0 for an orderly end.
func errnoOf(e *iwarp.End) syscall.Errno {
	switch e.How {
	case iwarp.HowReset:
		return e.Errno
	case iwarp.HowTimeout:
		return syscall.ETIMEDOUT
	case iwarp.HowProtocol:
		return errnoProtocol
	default: // what a Terminate was about is told by completions and by the list of errors
		return 0
	}
}

// streamAttr is InitQPAttr of a connection of TCP: RTR and RTS are the connection manager's to set,
// and there is nothing for the program to do.
func (i *identifier) streamAttr(req *abi.CMInitQPAttrReq) (abi.CMInitQPAttrRsp, *rdma.Refusal) {
	rsp := abi.CMInitQPAttrRsp{Attr: abi.QPAttr{State: req.State, Port: thePort}}
	switch to := rdma.QPState(req.State); to {
	case sInit:
		rsp.Attr.AccessFlags = uint32(accessStreamed)
		rsp.Mask = uint32(rdma.QPAttrState | aAccess)
	case sRTR, sRTS:
	default:
		return rsp, refusef(syscall.EINVAL, "init_qp_attr: no attributes for %v", to)
	}
	return rsp, nil
}

// accessStreamed is what the peer may do with the memory of a queue pair, as far as the keys allow.
const accessStreamed = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead |
	rdma.AccessRemoteAtomic
