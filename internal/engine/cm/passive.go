package cm

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// handleREQ takes a request for a connection (IBTA 12.9.7.2).
func (e *Engine) handleREQ(in *arrival) {
	var m mad.REQ
	if m.Parse(in.data) != nil {
		return
	}
	old := e.peers[peerKey{in.path.DGID, m.LocalGUID, m.LocalID}]
	if old != nil && old.remoteQPN == m.LocalQPN && old.remotePSN == m.StartPSN {
		e.repeatAnswer(in, old, &m)
		return
	}
	l := e.listeners.find(m.ServiceID)
	reason := e.judge(in, &m, l)
	if reason == 0 && e.hasStale(in, old, &m) {
		reason = mad.ReasonStaleConnection
	}
	if reason == 0 && !e.enqueue(l) {
		if !l.isStuck(in.now) {
			return
		}
		reason = mad.ReasonNoResources
	}
	if reason != 0 {
		e.refuseREQ(in, &m, reason)
		return
	}
	e.admit(in, &m, l)
}

// repeatAnswer answers the duplicate of a request.
func (e *Engine) repeatAnswer(in *arrival, c *conn, m *mad.REQ) {
	e.stats.Duplicates.add(mad.AttributeREQ)
	switch c.state {
	case StateReplySent:
		e.transmit(c)
	case StateRequestReceived:
		e.excuse(in.now, c)
	case StateRejected:
		e.transmit(c)
		e.timers.set(c, in.now.Add(2*duration(c.peerTimeout)))
	case StateTimewait:
		// An old packet, or a peer that starts every time with the same numbers: to accept it
		// would let old packets of the last connection into this one.
		e.refuseREQ(in, m, mad.ReasonStaleConnection)
	default: // established: the peer has our REP
	}
}

// judge returns why a request cannot even be asked about, or 0.
func (e *Engine) judge(in *arrival, m *mad.REQ, l *listener) mad.Reason {
	switch {
	case in.header.ClassVersion != mad.ClassVersionCM:
		return mad.ReasonInvalidClassVersion
	case m.LocalID == 0:
		return mad.ReasonInvalidCommID
	case l == nil:
		return mad.ReasonInvalidServiceID
	case m.Transport != mad.TransportRC && m.Transport != mad.TransportUC &&
		m.Transport != mad.TransportXRC:
		return mad.ReasonInvalidTransport
	case !m.PathMTU.IsValid():
		return mad.ReasonInvalidMTU
	case m.LocalQPN <= rdma.QPNGSI || m.LocalQPN == rdma.QPNMulticast:
		return mad.ReasonUnsupportedRequest
	}
	return 0
}

func (e *Engine) refuseREQ(in *arrival, m *mad.REQ, reason mad.Reason) {
	e.refuse(in, mad.REJ{RemoteID: m.LocalID, Answered: mad.AnsweredREQ, Reason: reason})
}

// hasStale ends what the peer has forgotten: the connection that has its communication ID, and
// the one that has its queue pair. It reports one that was established, for which the standard
// refuses the request (IBTA 12.9.8.3.1). One in TIMEWAIT is no reason to refuse.
func (e *Engine) hasStale(in *arrival, byID *conn, m *mad.REQ) bool {
	stale := false
	if byID != nil {
		stale = e.supersede(in.now, byID)
	}
	if byQP := e.qps[qpKey{in.path.DGID, m.LocalGUID, m.LocalQPN}]; byQP != nil {
		stale = e.supersede(in.now, byQP) || stale
	}
	return stale
}

// supersede ends a connection of which the peer shows that it has forgotten it. It reports whether
// it was established.
func (e *Engine) supersede(now clock.Time, old *conn) bool {
	switch old.state {
	case StateEstablished:
		e.sendDREQ(old, nil)
		e.disconnected(now, old, &Event{How: DisconnectedStale})
		e.detach(old)
		return true
	case StateDisconnectSent:
		e.disconnected(now, old, &Event{How: DisconnectedStale})
		e.detach(old)
	case StateRequestReceived, StateReplySent, StateReplyReceived:
		e.close(old)
		e.raise(old, &Event{Kind: EventRejected, Reason: uint16(mad.ReasonStaleConnection)})
	default:
		// It goes on answering late copies of its REQ, which else would pass for a new one, and
		// show that what follows is stale.
		if key := old.qpKey(); e.qps[key] == old {
			delete(e.qps, key)
		}
	}
	return false
}

// admit makes a connection of a request that counts against l's backlog already.
func (e *Engine) admit(in *arrival, m *mad.REQ, l *listener) {
	c := e.create(in.path, StateRequestReceived)
	if c == nil {
		l.pending--
		e.pending--
		e.refuseREQ(in, m, mad.ReasonNoResources)
		return
	}
	c.listener = l
	c.dest = in.source
	c.guid, c.peerID = m.LocalGUID, m.LocalID
	c.tid = in.header.TransactionID
	c.service = m.ServiceID
	c.remoteQPN, c.remotePSN = m.LocalQPN, m.StartPSN
	c.xrc = m.Transport == mad.TransportXRC
	c.timeout, c.peerTimeout = m.LocalResponseTimeout, m.RemoteResponseTimeout
	c.triesMax = m.MaxCMRetries
	c.ackTimeout = m.Primary.AckTimeout
	e.peers[c.peerKey()] = c
	e.qps[c.qpKey()] = c
	v := Event{
		Kind: EventRequestReceived, Cookie: l.cookie, Path: c.path, ServiceID: m.ServiceID,
		PKey: m.PKey, RemoteQPN: m.LocalQPN, StartPSN: m.StartPSN,
		ResponderResources: m.ResponderResources, InitiatorDepth: m.InitiatorDepth,
		RetryCount: m.RetryCount, RNRRetry: m.RNRRetry, SRQ: m.SRQ, FlowControl: m.FlowControl,
		PathMTU: m.PathMTU, QPType: queuePairType(m.Transport),
		AckTimeout: m.Primary.AckTimeout, PrivateLen: mad.REQPrivateLen,
		ECE: ECE{VendorID: m.VendorID, Options: in.header.Modifier},
	}
	// The GIDs are those of the packet, which has reached us; the rest is what the peer asks for.
	v.Path.FlowLabel, v.Path.TrafficClass = m.Primary.FlowLabel, m.Primary.TrafficClass
	v.Path.HopLimit, v.Path.SL = m.Primary.HopLimit, m.Primary.SL
	copy(v.PrivateData[:], m.PrivateData[:])
	e.letDecide(in.now, c, &v)
}

// queuePairType is what the passive side makes. Precondition: judge has let the transport pass.
func queuePairType(t mad.Transport) rdma.QPType {
	switch t {
	case mad.TransportUC:
		return rdma.QPTypeUC
	case mad.TransportXRC:
		return rdma.QPTypeXRCRecv
	default:
		return rdma.QPTypeRC
	}
}

// Accept sends a REP and repeats it until the peer answers. The owner's queue pair is in RTR:
// packets may come as soon as the peer has the REP. Errors: EINVAL where there is no request, or
// for parameters that do not fit into the message.
func (e *Engine) Accept(now clock.Time, id ID, p *AcceptParams) *rdma.Refusal {
	c, refusal := e.owned(id)
	switch {
	case refusal != nil:
		return refusal
	case c.state != StateRequestReceived:
		return rdma.Refuse(syscall.EINVAL, "there is no request to accept")
	case p.RNRRetry > 7:
		return rdma.Refuse(syscall.EINVAL, "a retry count is larger than 7")
	case len(p.PrivateData) > mad.REPPrivateLen:
		return rdma.Refuse(syscall.EINVAL, "a REP has room for 196 bytes of private data")
	}
	e.unqueue(c)
	c.localQPN = p.QPN
	m := mad.REP{
		LocalID: mad.CommID(c.id), RemoteID: c.peerID, VendorID: p.ECE.VendorID,
		LocalQPN: p.QPN, StartPSN: p.StartPSN,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		AckDelay: e.cfg.AckDelay, FlowControl: p.FlowControl, RNRRetry: p.RNRRetry, SRQ: p.SRQ,
		LocalGUID: e.cfg.NodeGUID,
	}
	if c.xrc {
		m.LocalQPN, m.LocalEECN, m.SRQ = 0, uint32(p.QPN), true
	}
	copy(m.PrivateData[:], p.PrivateData)
	composeOptions(c, mad.AttributeREP, &m, p.ECE.Options)
	e.await(now, c, StateReplySent)
	return nil
}

// Established says that a packet has come in on the passive side's queue pair, which stands for an
// RTU that was lost (IBTA 12.9.7.2, COMM_EST). The event is that of an RTU.
func (e *Engine) Established(_ clock.Time, id ID) {
	if c := e.conns[id]; c != nil && c.state == StateReplySent {
		e.establish(c, &Event{})
	}
}

func (e *Engine) establish(c *conn, v *Event) {
	e.timers.stop(c)
	c.state = StateEstablished
	v.Kind = EventEstablished
	e.raise(c, v)
}

// handleRTU takes the news that the peer is ready.
func (e *Engine) handleRTU(in *arrival) {
	var m mad.RTU
	if m.Parse(in.data) != nil {
		return
	}
	c := e.conns[ID(m.RemoteID)]
	switch {
	case c == nil, c.active, c.isQuery(), c.peerID != m.LocalID, c.state == StateClosed:
		// The peer believes in a connection that we know nothing of; it may have come about
		// before we were restarted. It learns so now, and not from its first lost packet.
		e.refuse(in, mad.REJ{
			LocalID: m.RemoteID, RemoteID: m.LocalID, Answered: mad.AnsweredOther,
			Reason: mad.ReasonInvalidCommID,
		})
	case !e.fromPeer(in, c):
	case c.state == StateReplySent:
		v := Event{PrivateLen: mad.RTUPrivateLen}
		copy(v.PrivateData[:], m.PrivateData[:])
		e.establish(c, &v)
	case c.state == StateRejected:
		e.transmit(c)
	default:
		e.stats.Duplicates.add(mad.AttributeRTU)
	}
}
