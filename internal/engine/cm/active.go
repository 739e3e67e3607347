package cm

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// lidPermissive stands for the local identifiers that Ethernet does not have (annex A16.4.3).
const lidPermissive rdma.LID = 0xffff

// Connect sends a REQ and repeats it until the peer answers. What comes of it is an event.
// Errors: EINVAL for parameters that do not fit into the message, ENOMEM.
func (e *Engine) Connect(now clock.Time, p *ConnectParams) (ID, *rdma.Refusal) {
	transport, refusal := p.check()
	if refusal != nil {
		return 0, refusal
	}
	c := e.create(&p.Path, StateRequestSent)
	if c == nil {
		return 0, rdma.Refuse(syscall.ENOMEM, "too many connections")
	}
	c.active = true
	c.tid = c.transactionID()
	c.service = p.ServiceID
	c.localQPN = p.LocalQPN
	c.xrc = transport == mad.TransportXRC
	c.timeout = orDefault(p.CMResponseTimeout, DefaultResponseTimeout)
	c.peerTimeout = c.timeout
	c.triesMax = p.MaxCMRetries
	c.ackTimeout = orDefault(p.AckTimeout, DefaultAckTimeout)
	m := mad.REQ{
		LocalID: mad.CommID(c.id), VendorID: p.ECE.VendorID, ServiceID: p.ServiceID,
		LocalGUID: e.cfg.NodeGUID,
		LocalQPN:  p.LocalQPN, ResponderResources: p.ResponderResources,
		InitiatorDepth: p.InitiatorDepth, RemoteResponseTimeout: c.timeout,
		Transport: transport, FlowControl: p.FlowControl, StartPSN: p.StartPSN,
		LocalResponseTimeout: c.timeout, RetryCount: p.RetryCount, PKey: p.PKey,
		PathMTU: p.PathMTU, RNRRetry: p.RNRRetry, MaxCMRetries: p.MaxCMRetries, SRQ: p.SRQ,
		Primary: mad.PathRecord{
			LocalLID: lidPermissive, RemoteLID: lidPermissive,
			LocalGID: p.Path.SGID, RemoteGID: p.Path.DGID, FlowLabel: p.Path.FlowLabel,
			TrafficClass: p.Path.TrafficClass, HopLimit: p.Path.HopLimit, SL: p.Path.SL,
			AckTimeout: c.ackTimeout,
		},
	}
	copy(m.PrivateData[:], p.PrivateData)
	composeOptions(c, mad.AttributeREQ, &m, p.ECE.Options)
	e.await(now, c, StateRequestSent)
	return c.id, nil
}

func orDefault(n, otherwise uint8) uint8 {
	if n == 0 {
		return otherwise
	}
	return n
}

// check says which transport the parameters mean, or which of them is wrong.
func (p *ConnectParams) check() (mad.Transport, *rdma.Refusal) {
	transports := map[rdma.QPType]mad.Transport{
		rdma.QPTypeRC: mad.TransportRC, rdma.QPTypeUC: mad.TransportUC,
		rdma.QPTypeXRCSend: mad.TransportXRC,
	}
	transport, known := transports[p.QPType]
	switch {
	case !known:
		return 0, rdma.Refuse(syscall.EINVAL, "this type of queue pair does not connect")
	case !p.PathMTU.IsValid():
		return 0, rdma.Refuse(syscall.EINVAL, "invalid path MTU")
	case p.RetryCount > 7 || p.RNRRetry > 7:
		return 0, rdma.Refuse(syscall.EINVAL, "a retry count is larger than 7")
	case p.CMResponseTimeout > 31 || p.AckTimeout > 31:
		return 0, rdma.Refuse(syscall.EINVAL, "a timeout is larger than 31")
	case p.MaxCMRetries > 15:
		return 0, rdma.Refuse(syscall.EINVAL, "more than 15 retries")
	case len(p.PrivateData) > mad.REQPrivateLen:
		return 0, rdma.Refuse(syscall.EINVAL, "a REQ has room for 92 bytes of private data")
	}
	return transport, nil
}

// Ready sends the RTU: the owner's queue pair is in RTS. From now on the connection is established
// on this side, without an event. Errors: EINVAL where no reply has come.
func (e *Engine) Ready(_ clock.Time, id ID) *rdma.Refusal {
	c, refusal := e.owned(id)
	if refusal != nil {
		return refusal
	}
	if c.state != StateReplyReceived {
		return rdma.Refuse(syscall.EINVAL, "there is no reply to complete")
	}
	c.state = StateEstablished
	compose(&c.sent, c.tid, mad.AttributeRTU,
		&mad.RTU{LocalID: mad.CommID(c.id), RemoteID: c.peerID})
	e.transmit(c)
	return nil
}

// handleREP takes an acceptance (IBTA 12.9.7.1).
func (e *Engine) handleREP(in *arrival) {
	var m mad.REP
	if m.Parse(in.data) != nil {
		return
	}
	c := e.conns[ID(m.RemoteID)]
	if c == nil || !c.active || c.isQuery() {
		e.refuseREP(in, &m)
		return
	}
	if !e.fromPeer(in, c) {
		return
	}
	if c.state == StateRequestSent {
		e.acceptREP(in, c, &m)
		return
	}
	e.stats.Duplicates.add(mad.AttributeREP)
	switch {
	case c.peerID != m.LocalID:
		// The peer has two connections out of one REQ of ours: it was restarted in between.
		e.refuseREP(in, &m)
	case c.state == StateReplyReceived:
		e.excuse(in.now, c)
	case c.state == StateEstablished, c.state == StateRejected:
		e.transmit(c)
	case c.state == StateClosed, c.state == StateTimewait:
		e.refuseREP(in, &m)
	}
}

// refuseREP ends a connection that only the peer believes in.
func (e *Engine) refuseREP(in *arrival, m *mad.REP) {
	e.refuse(in, mad.REJ{
		LocalID: m.RemoteID, RemoteID: m.LocalID, Answered: mad.AnsweredREP,
		Reason: mad.ReasonInvalidCommID,
	})
}

func (e *Engine) acceptREP(in *arrival, c *conn, m *mad.REP) {
	e.timers.stop(c)
	c.state = StateReplyReceived
	c.path, c.dest = *in.path, in.source
	c.guid, c.peerID = m.LocalGUID, m.LocalID
	c.remoteQPN, c.remotePSN = m.LocalQPN, m.StartPSN
	if c.xrc {
		c.remoteQPN = rdma.QPN(m.LocalEECN)
	}
	// Another connection to this QPN is one that the peer has forgotten. The standard would have
	// us reject the REP and try once more; but the peer has just told us what its QP is for.
	if old := e.qps[c.qpKey()]; old != nil {
		e.supersede(in.now, old)
	}
	e.qps[c.qpKey()] = c
	v := Event{
		Kind: EventReplyReceived, Path: c.path, ServiceID: c.service,
		RemoteQPN: c.remoteQPN, StartPSN: m.StartPSN, ResponderResources: m.ResponderResources,
		InitiatorDepth: m.InitiatorDepth, RNRRetry: m.RNRRetry, SRQ: m.SRQ,
		FlowControl: m.FlowControl, AckDelay: m.AckDelay,
		AckTimeout: sumTimeouts(m.AckDelay, c.ackTimeout), PrivateLen: mad.REPPrivateLen,
		ECE: ECE{VendorID: m.VendorID, Options: in.header.Modifier},
	}
	copy(v.PrivateData[:], m.PrivateData[:])
	e.letDecide(in.now, c, &v)
}
