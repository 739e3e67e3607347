package iwarp

import (
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// setup is the exchange of MPA frames.
type setup struct {
	// in is what has come of the peer's frame, which private data in events point into.
	in     []byte
	peer   iwarp.Frame
	params Params // without private data
	// revision is the one in use.
	revision uint8
	hasCRC   bool // as it was agreed
	rtr      RTR  // the one that was chosen
	ird, ord uint16
	// isDone says that the queue pair has been brought to life; isTold, that the owner knows.
	isDone, isTold bool
}

// PrivateDataMax returns how much private data fits a frame of a revision.
func PrivateDataMax(revision uint8) int {
	if revision == iwarp.Revision1 {
		return iwarp.PrivateDataMax
	}
	return iwarp.PrivateDataMax - iwarp.SetupLen
}

// Request sends the MPA request of an initiator, for a queue pair that is not in use.
func (c *Conn) Request(now clock.Time, q *QP, p *Params) {
	c.enter(now)
	if c.phase != phaseIdle {
		return
	}
	if q.state == rdma.QPStateError || q.conn != nil {
		c.fail(End{How: HowError}, CloseAbort)
		return
	}
	c.qp, q.conn, q.now = q, c, now
	c.mpa.params = *p
	c.mpa.params.PrivateData = nil
	c.mpa.revision = c.cfg.Revision
	c.phase = phaseReply
	c.deadline = now.Add(limits.MPAReplyTimeout)
	f := iwarp.Frame{
		Revision: c.cfg.Revision, Markers: c.cfg.Markers, CRC: c.cfg.CRC,
		LargeFPDU: c.takesLarge(), Enhanced: c.cfg.Revision == iwarp.Revision2,
	}
	f.Setup = iwarp.Setup{
		IRD: min(p.IRD, iwarp.DepthUnknown), ORD: min(p.ORD, iwarp.DepthUnknown),
		PeerToPeer: p.RTR != 0, RTRSend: p.RTR&RTRSend != 0,
		RTRWrite: p.RTR&RTRWrite != 0, RTRRead: p.RTR&RTRRead != 0,
	}
	c.putFrame(&f, p.PrivateData)
}

// takesLarge reports whether the peer is told that this end takes FPDUs of any length. It always
// does; the bit is not RFC 5044's, so a stream that shall look like it goes without.
func (c *Conn) takesLarge() bool { return c.cfg.FPDU != FPDUMSS }

// putFrame queues an MPA frame.
func (c *Conn) putFrame(f *iwarp.Frame, private []byte) {
	f.PrivateData = private[:min(len(private), PrivateDataMax(f.Revision))]
	k := c.room(f.Len())
	b := f.Append(k.buf[k.used:k.used])
	k.used += len(b)
	c.tx.pushFrame(len(b))
}

// handleSetup takes bytes of the peer's frame and returns what follows it.
func (c *Conn) handleSetup(b []byte) []byte {
	switch c.phase {
	case phaseRequest:
		rest, n, err := c.gather(b, iwarp.ParseRequest)
		switch {
		case err != nil, n > 0 && len(rest) > 0:
			// An initiator has nothing to say before it has its reply (RFC 5044 7.1.2).
			c.fail(End{How: HowProtocol}, CloseAbort)
		case n > 0:
			c.handleRequest()
		}
		return nil
	case phaseReply:
		rest, n, err := c.gather(b, iwarp.ParseReply)
		if err != nil {
			c.fail(End{How: HowProtocol}, CloseAbort)
			return nil
		}
		if n > 0 {
			c.handleReply()
		}
		return rest
	case phaseIdle, phaseDecide:
		c.fail(End{How: HowProtocol}, CloseAbort)
	case phaseReject, phaseRTR, phaseOpen, phaseDrain, phaseTerminate, phaseClosed:
	}
	return nil
}

// gather collects a frame. The frame is parsed from memory of the connection, for events point
// into it.
func (c *Conn) gather(b []byte, parse func([]byte) (iwarp.Frame, int, error)) (
	rest []byte, n int, err error,
) {
	m := &c.mpa
	had := len(m.in)
	m.in = append(m.in, b[:min(len(b), iwarp.FrameMax-had)]...)
	m.peer, n, err = parse(m.in)
	if n == 0 || err != nil {
		return nil, 0, err
	}
	m.in = m.in[:n]
	return b[n-had:], n, nil
}

// handleRequest tells the owner of the peer's request.
func (c *Conn) handleRequest() {
	m := &c.mpa
	f := &m.peer
	m.revision = min(f.Revision, c.cfg.Revision)
	c.phase = phaseDecide
	c.deadline = clock.Never
	c.emit(Event{
		Kind: EventRequest, PrivateData: f.PrivateData, IRD: f.Setup.IRD, ORD: f.Setup.ORD,
		IsNegotiated: f.Enhanced, Revision: f.Revision, Markers: f.Markers, CRC: f.CRC,
		RTR: rtrOf(&f.Setup),
	})
}

// Reject refuses the peer's request.
func (c *Conn) Reject(now clock.Time, private []byte) {
	c.enter(now)
	if c.phase != phaseDecide {
		return
	}
	c.phase = phaseReject
	c.deadline = now.Add(limits.MPASendTimeout)
	f := c.reply()
	f.Reject = true
	f.Setup.IRD, f.Setup.ORD = c.mpa.peer.Setup.ORD, c.mpa.peer.Setup.IRD
	c.putFrame(&f, private)
}

// reply begins a reply to the peer's request.
func (c *Conn) reply() iwarp.Frame {
	m := &c.mpa
	return iwarp.Frame{
		IsReply: true, Revision: m.revision, Markers: c.cfg.Markers, CRC: c.cfg.CRC || m.peer.CRC,
		LargeFPDU: c.takesLarge(), Enhanced: m.peer.Enhanced && m.revision == iwarp.Revision2,
	}
}

// Accept takes the peer's request for a queue pair that is not in use. The peer's depths bound
// those of p (RFC 6581 9.1): this end has no more READs under way than the peer serves, and serves
// no more than the peer asked for.
func (c *Conn) Accept(now clock.Time, q *QP, p *Params) {
	c.enter(now)
	if c.phase != phaseDecide {
		return
	}
	if q.state == rdma.QPStateError || q.conn != nil {
		c.fail(End{How: HowError}, CloseAbort)
		return
	}
	m := &c.mpa
	m.ird, m.ord = p.IRD, p.ORD
	f := c.reply()
	if f.Enhanced {
		m.ird = bounded(p.IRD, m.peer.Setup.ORD)
		m.ord = bounded(p.ORD, m.peer.Setup.IRD)
		f.Setup = iwarp.Setup{IRD: m.ird, ORD: m.ord, PeerToPeer: m.peer.Setup.PeerToPeer}
		if m.peer.Setup.PeerToPeer {
			m.rtr = chooseRTR(rtrOf(&m.peer.Setup), p.RTR)
			f.Setup.RTRSend = m.rtr == RTRSend
			f.Setup.RTRWrite = m.rtr == RTRWrite
			f.Setup.RTRRead = m.rtr == RTRRead
		}
	}
	c.putFrame(&f, p.PrivateData)
	c.qp = q
	q.now = now
	c.open(f.CRC)
	if m.rtr != 0 {
		c.phase = phaseRTR
		c.deadline = now.Add(limits.MPARTRTimeout)
	} else {
		c.phase, c.isHeld = phaseOpen, true
		c.deadline = now.Add(limits.MPAHoldTime)
		c.beginNudging(c.deadline)
	}
	q.loadSendRing()
}

// bounded returns the lesser of own and the peer's depth, if the peer has one.
func bounded(own, peer uint16) uint16 {
	if peer == iwarp.DepthUnknown {
		return own
	}
	return min(own, peer)
}

// chooseRTR takes one of the messages that were offered: the one that costs least. An initiator
// that wants to be a peer and offers none of those accepted is told of one, as siw does: the
// initiator is who ends a connection without agreement (RFC 6581 9.2).
func chooseRTR(offered, accepted RTR) RTR {
	if accepted == 0 {
		accepted = RTRAny
	}
	if offered&accepted != 0 {
		accepted &= offered
	}
	for _, r := range [...]RTR{RTRWrite, RTRRead} {
		if accepted&r != 0 {
			return r
		}
	}
	return RTRSend
}

func rtrOf(s *iwarp.Setup) RTR {
	var r RTR
	if !s.PeerToPeer {
		return 0
	}
	if s.RTRWrite {
		r |= RTRWrite
	}
	if s.RTRRead {
		r |= RTRRead
	}
	if s.RTRSend {
		r |= RTRSend
	}
	return r
}

// handleReply takes the peer's answer to the request.
func (c *Conn) handleReply() {
	m := &c.mpa
	f := &m.peer
	if f.Reject {
		c.emit(Event{
			Kind: EventRejected, PrivateData: f.PrivateData, IRD: f.Setup.IRD, ORD: f.Setup.ORD,
			IsNegotiated: f.Enhanced, Revision: f.Revision,
		})
		c.close(End{How: HowPeer}, CloseFIN)
		return
	}
	m.revision = min(m.revision, f.Revision)
	m.ird, m.ord = m.params.IRD, m.params.ORD
	code := iwarp.Code(0)
	if f.Enhanced {
		m.ord = bounded(m.ord, f.Setup.IRD)
		if f.Setup.ORD != iwarp.DepthUnknown && f.Setup.ORD > m.ird {
			code = iwarp.CodeMPAIRD
		}
	}
	if m.params.RTR != 0 && f.Enhanced && f.Setup.PeerToPeer {
		m.rtr = rtrOf(&f.Setup)
		if m.rtr&m.params.RTR == 0 || m.rtr&(m.rtr-1) != 0 {
			code = iwarp.CodeMPARTR
		}
	}
	c.open(c.cfg.CRC || f.CRC)
	if code != 0 {
		c.refuseSetup(code)
		return
	}
	c.phase, c.isShy = phaseOpen, true
	c.deadline = c.now.Add(c.cfg.Shyness)
	if c.cfg.Shyness == 0 || f.LargeFPDU {
		c.beginTalking() // no driver that needs it says this
	}
	m.isTold = true
	c.emit(Event{
		Kind: EventReply, PrivateData: f.PrivateData, IRD: m.ird, ORD: m.ord,
		IsNegotiated: f.Enhanced, Revision: f.Revision, Markers: f.Markers, CRC: f.CRC,
	})
	c.qp.loadSendRing()
}

// open brings both directions and the queue pair to life.
func (c *Conn) open(hasCRC bool) {
	m := &c.mpa
	m.isDone = true
	c.tx.origin = c.tx.made
	m.hasCRC = hasCRC
	if c.isLocal && !c.cfg.Markers && !m.peer.Markers {
		hasCRC = false
	}
	c.tx.hasCRC, c.tx.hasMarkers = hasCRC, m.peer.Markers
	c.rx.open(hasCRC, c.cfg.Markers)
	c.setMULPDU(c.isLocal || c.cfg.FPDU == FPDULarge ||
		c.cfg.FPDU == FPDUAuto && m.peer.LargeFPDU)
	served := m.ird
	if !m.peer.Enhanced || m.revision != iwarp.Revision2 {
		served = limits.MaxRDAtomic // the peer was not told how many
	}
	if m.rtr == RTRRead {
		served = max(served, 1)
	}
	c.qp.connect(c, m.ird, m.ord, served)
}

// setMULPDU decides on the longest ULPDU.
func (c *Conn) setMULPDU(isLarge bool) {
	mss := max(c.cfg.MSS, segmentMin)
	c.mulpdu = iwarp.MULPDU(mss, c.tx.hasMarkers)
	if isLarge {
		c.mulpdu = largeULPDU
	}
}

const (
	// segmentMin is the least segment size that is worked with: the least MSS of IPv4.
	segmentMin = 536
	// largeULPDU makes an FPDU of 64 KiB at most, markers included.
	largeULPDU = 64<<10 - 1<<10
)

// establish tells the owner of a responder that both may send.
func (c *Conn) establish() {
	m := &c.mpa
	if m.isTold {
		return
	}
	m.isTold = true
	c.emit(Event{
		Kind: EventEstablished, IRD: m.ird, ORD: m.ord, IsNegotiated: m.peer.Enhanced,
		Revision: m.peer.Revision, Markers: m.peer.Markers, CRC: m.peer.CRC, RTR: m.rtr,
	})
}
