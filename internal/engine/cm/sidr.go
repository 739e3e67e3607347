package cm

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// QueryService asks the peer which datagram queue pair serves a service (IBTA 12.11).
// EventServiceReply or EventUnreachable say what came of it. Errors: EINVAL, ENOMEM.
func (e *Engine) QueryService(now clock.Time, p *SIDRParams) (ID, *rdma.Refusal) {
	switch {
	case len(p.PrivateData) > mad.SIDRREQPrivateLen:
		return 0, rdma.Refuse(syscall.EINVAL, "a SIDR_REQ has room for 216 bytes of private data")
	case p.ResponseTimeout > 31:
		return 0, rdma.Refuse(syscall.EINVAL, "a timeout is larger than 31")
	}
	c := e.create(&p.Path, StateQuerySent)
	if c == nil {
		return 0, rdma.Refuse(syscall.ENOMEM, "too many connections")
	}
	c.active = true
	c.service = p.ServiceID
	c.timeout = orDefault(p.ResponseTimeout, DefaultResponseTimeout)
	c.triesMax = p.MaxCMRetries
	m := mad.SIDRREQ{RequestID: mad.CommID(c.id), PKey: p.PKey, ServiceID: p.ServiceID}
	copy(m.PrivateData[:], p.PrivateData)
	compose(&c.sent, c.transactionID(), mad.AttributeSIDRREQ, &m)
	e.await(now, c, StateQuerySent)
	return c.id, nil
}

// handleSIDRREP takes the answer to a query.
func (e *Engine) handleSIDRREP(in *arrival) {
	var m mad.SIDRREP
	if m.Parse(in.data) != nil {
		return
	}
	c := e.conns[ID(m.RequestID)]
	if c == nil || c.state != StateQuerySent || !e.fromPeer(in, c) {
		e.stats.Ignored++
		return
	}
	v := Event{
		Kind: EventServiceReply, Path: *in.path, ServiceID: m.ServiceID, Status: uint8(m.Status),
		RemoteQPN: m.QPN, QKey: m.QKey, PrivateLen: mad.SIDRREPPrivateLen,
		AdditionalLen: int(m.InfoLen),
	}
	copy(v.PrivateData[:], m.PrivateData[:])
	copy(v.AdditionalInfo[:], m.Info[:])
	e.close(c)
	e.raise(c, &v)
}

// handleSIDRREQ takes a query.
func (e *Engine) handleSIDRREQ(in *arrival) {
	var m mad.SIDRREQ
	if m.Parse(in.data) != nil {
		return
	}
	if c := e.queries[queryKey{in.path.DGID, m.RequestID}]; c != nil {
		if c.service == m.ServiceID && c.tid == in.header.TransactionID {
			e.stats.Duplicates.add(mad.AttributeSIDRREQ)
			if c.state == StateQueryAnswered {
				e.transmit(c)
				e.timers.set(c, in.now.Add(2*duration(c.peerTimeout)))
			}
			return
		}
		e.detach(c) // the peer was restarted and asks something else by the same name
	}
	l := e.listeners.find(m.ServiceID)
	switch {
	case in.header.ClassVersion != mad.ClassVersionCM:
		e.refuseQuery(in, &m, mad.SIDRStatusUnsupportedVersion)
	case l == nil:
		e.refuseQuery(in, &m, mad.SIDRStatusUnsupportedService)
	case !e.enqueue(l):
		e.refuseQuery(in, &m, mad.SIDRStatusNoQP)
	default:
		e.admitQuery(in, &m, l)
	}
}

func (e *Engine) refuseQuery(in *arrival, m *mad.SIDRREQ, status mad.SIDRStatus) {
	e.answer(in, mad.AttributeSIDRREP,
		&mad.SIDRREP{RequestID: m.RequestID, ServiceID: m.ServiceID, Status: status})
}

// admitQuery keeps a query that counts against l's backlog already.
func (e *Engine) admitQuery(in *arrival, m *mad.SIDRREQ, l *listener) {
	c := e.create(in.path, StateQueryReceived)
	if c == nil {
		l.pending--
		e.pending--
		e.refuseQuery(in, m, mad.SIDRStatusNoQP)
		return
	}
	c.listener = l
	c.dest = in.source
	c.peerID = m.RequestID
	c.tid = in.header.TransactionID
	c.service = m.ServiceID
	c.peerTimeout = DefaultResponseTimeout // a query does not say
	e.queries[c.queryKey()] = c
	v := Event{
		Kind: EventServiceRequest, Cookie: l.cookie, Path: c.path, ServiceID: m.ServiceID,
		PKey: m.PKey, QPType: rdma.QPTypeUD, PrivateLen: mad.SIDRREQPrivateLen,
	}
	copy(v.PrivateData[:], m.PrivateData[:])
	e.raise(c, &v)
}

// AnswerService answers a query. Errors: EINVAL where there is none, or for private data that does
// not fit into the message.
func (e *Engine) AnswerService(now clock.Time, id ID, a *SIDRAnswer) *rdma.Refusal {
	c, refusal := e.owned(id)
	switch {
	case refusal != nil:
		return refusal
	case c.state != StateQueryReceived:
		return rdma.Refuse(syscall.EINVAL, "there is no query to answer")
	case len(a.PrivateData) > mad.SIDRREPPrivateLen:
		return rdma.Refuse(syscall.EINVAL, "a SIDR_REP has room for 136 bytes of private data")
	}
	e.answerQuery(now, c, a)
	return nil
}

func (e *Engine) answerQuery(now clock.Time, c *conn, a *SIDRAnswer) {
	m := mad.SIDRREP{
		RequestID: c.peerID, Status: mad.SIDRStatus(a.Status), ServiceID: c.service,
	}
	if m.Status == mad.SIDRStatusOK {
		m.QPN, m.QKey = a.QPN, a.QKey
		c.localQPN = a.QPN
	}
	copy(m.PrivateData[:], a.PrivateData)
	compose(&c.sent, c.tid, mad.AttributeSIDRREP, &m)
	e.transmit(c)
	e.linger(c, StateQueryAnswered, now.Add(2*duration(c.peerTimeout)))
}

// handleLAP declines to load an alternate path, which Ethernet has no use for (annex A16.5.2), so
// that the peer need not wait.
func (e *Engine) handleLAP(in *arrival) {
	var m mad.LAP
	if m.Parse(in.data) != nil {
		return
	}
	status := mad.APRStatusUnsupported
	if c := e.conns[ID(m.RemoteID)]; c == nil || c.state != StateEstablished {
		status = mad.APRStatusInvalidCommID
	}
	e.answer(in, mad.AttributeAPR,
		&mad.APR{LocalID: m.RemoteID, RemoteID: m.LocalID, Status: status})
}
