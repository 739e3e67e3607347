package nic

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// directTransport is what the direct path asks of a queue pair's transport.
type directTransport interface {
	// peer returns the queue pair of this NIC that this one is connected with, both ways and with
	// nothing in between that an operation could overtake; else nil.
	peer() *qp
	// begins returns the operations, as grant bits, that the transport would begin in RTS, and
	// serves those that it would carry out for the peer where the region allows it.
	begins() uint32
	serves() uint32
	// done returns the index in the send queue below which everything is complete, shown, and has
	// been handled at the peer. Preconditions: the queue pair is linked.
	done() uint32
}

// depthBits are the operations that need a responder's resources.
const depthBits = abi.GrantRead | abi.GrantAtomic

// packetLink is a queue pair of RoCE.
type packetLink struct{ *qp }

func (l packetLink) peer() *qp {
	if !isConnected(l.state()) {
		return nil
	}
	a := l.ibt.Attr()
	p := l.nic.qps[a.DestQPN]
	if p == nil || p.ibt == nil || !isConnected(p.state()) || !l.nic.IsLocal(a.AV.DGID) {
		return nil
	}
	b := p.ibt.Attr()
	if b.DestQPN != l.qpn || a.AV.DGID != b.AV.SGID || b.AV.DGID != a.AV.SGID || a.PKey != b.PKey {
		return nil
	}
	return p
}

func isConnected(s rdma.QPState) bool { return s == sRTR || s == sRTS || s == sSQD }

func (l packetLink) begins() uint32 {
	bits := abi.GrantWrite | abi.GrantAtomicWrite
	if l.ibt.Attr().MaxRdAtomic > 0 {
		bits |= depthBits
	}
	return bits
}

func (l packetLink) serves() (bits uint32) {
	a := l.ibt.Attr()
	if a.Access.Has(rdma.AccessRemoteWrite) {
		bits |= abi.GrantWrite | abi.GrantAtomicWrite
	}
	if a.Access.Has(rdma.AccessRemoteRead) {
		bits |= abi.GrantRead
	}
	if a.Access.Has(rdma.AccessRemoteAtomic) {
		bits |= abi.GrantAtomic
	}
	if a.MaxDestRdAtomic == 0 {
		bits &^= depthBits
	}
	return bits
}

// done is below what the peer has acknowledged.
func (l packetLink) done() uint32 { return l.ibt.SendDone() }

// streamLink is a queue pair of iWARP.
type streamLink struct{ *qp }

// peer wants a stream whose bytes pass in memory: what one engine has sent the other has.
func (l streamLink) peer() *qp {
	s := l.stream
	if s == nil || s.twin == nil || !s.isPlain() || !s.twin.isPlain() {
		return nil
	}
	return s.twin.qp
}

// isPlain reports a stream whose connection is its queue pair's, and steady.
func (s *stream) isPlain() bool {
	return s.conn != nil && s.qp != nil && s.qp.stream == s && s.conn.QP() == s.qp.iwarp &&
		s.conn.IsSteady()
}

func (l streamLink) begins() uint32 {
	if !l.iwarp.BeginsReads() {
		return abi.GrantWrite
	}
	return abi.GrantWrite | depthBits
}

// serves asks the queue pair's own rights for WRITE and READ, as the engine does (ADR 0023).
func (l streamLink) serves() (bits uint32) {
	access := l.iwarp.Attr().Access
	if access.Has(rdma.AccessRemoteWrite) {
		bits |= abi.GrantWrite
	}
	if !l.iwarp.ServesReads() {
		return bits
	}
	if access.Has(rdma.AccessRemoteRead) {
		bits |= abi.GrantRead
	}
	return bits | abi.GrantAtomic
}

// done stays as it is while the peer keeps a message that waits for a receive: the request of that
// is complete, and so may be others behind it.
func (l streamLink) done() uint32 {
	if p := l.direct.peer; p.stream != nil && p.stream.conn.IsWaiting() {
		return l.direct.shown
	}
	return l.iwarp.SendDone()
}

// followDirect tells the direct path what a call into the engine of q has changed: q may go direct,
// or no more, and what its peer has sent is handled.
func (t *streams) followDirect(s *stream, q *qp) {
	if isSteady := s.conn.IsSteady(); isSteady != s.isSteady {
		s.isSteady = isSteady
		t.nic.direct.follow(q)
	}
	if p := q.direct.peer; p != nil && p.direct.rights != 0 {
		p.showDone()
	}
}
