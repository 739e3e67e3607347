package sim

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// requested judges a request and makes the passive end of its call.
func (c *caller) requested(r *abi.CMEvent, channel uint32) *callEnd {
	w := c.world
	l := c.ends[r.ListenID]
	private := r.Param.PrivateData[:r.Param.PrivateDataLen]
	if l == nil || l.fate.State() != check.EndListening || len(private) < 8 {
		w.court.Failf("%s: a request for %d, which does not listen", c.name, r.ListenID)
		return nil
	}
	k := w.board.calls[binary.BigEndian.Uint64(private)]
	if k == nil || k.target != c.service(l.kind) || k.askedAt > w.now {
		w.court.Failf("%s: a request that nobody made for it: %x", l.fate.Name, private)
		return nil
	}
	if !isPadded(private, k.private) {
		w.court.Failf("%s: private data %x, sent was %x", l.fate.Name, private, k.private)
	}
	e := c.addEnd(r.ID, channel, l.kind)
	e.call, e.remote = k, k.number
	if e.channel != l.channel {
		w.court.Failf("%s: a request comes by channel %d, not the listener's %d", l.fate.Name,
			channel, l.channel)
	}
	for _, o := range k.to {
		// What was refused or answered for good may be asked again once the answer is forgotten.
		if o.caller.host == c.host && o.caller.life == c.life && !k.isDeclined &&
			o.fate.State() != check.EndServing {
			w.court.Failf("%s: token %d makes a second request, the first is %v", l.fate.Name, k.token,
				&o.fate)
		}
	}
	if k.from.plug != nil && r.Param.QPN != k.from.plug.qpn {
		w.court.Failf("%s: the request is of QP %#x, not %#x", l.fate.Name, r.Param.QPN, k.from.plug.qpn)
	}
	k.to = append(k.to, e)
	e.fate.Move(check.EndRequested)
	w.mark("call.requested." + e.kind.String())
	return e
}

// isPadded reports that got is want and zeros: a message does not say how much is used.
func isPadded(got, want []byte) bool {
	return len(got) >= len(want) && bytes.Equal(got[:len(want)], want) &&
		bytes.Count(got[len(want):], []byte{0}) == len(got)-len(want)
}

// peer returns the other end of a connection.
func (e *callEnd) peer() *callEnd {
	k := e.call
	if k == nil || e.plug == nil {
		return nil
	}
	if !e.isActive {
		if f := k.from; !f.isGone && f.plug != nil && f.rtr.DestQPN == e.plug.qpn {
			return f
		}
		return nil
	}
	for _, o := range k.to {
		if !o.isGone && o.plug != nil && o.plug.qpn == e.rtr.DestQPN {
			return o
		}
	}
	return nil
}

// judge looks at what an event says about a call.
func (e *callEnd) judge(kind check.CMEvent, r *abi.CMEvent) {
	w, k := e.caller.world, e.call
	private := r.Param.PrivateData[:r.Param.PrivateDataLen]
	switch kind {
	case check.ConnectResponse:
		e.remote = number{k.target.host, r.Param.QPN}
		if !isPadded(private, k.reply) {
			w.court.Failf("%s: private data %x, sent was %x", e.fate.Name, private, k.reply)
		}
	case check.Established:
		if e.kind != rdma.QPTypeUD {
			e.judgePair()
			return
		}
		e.judgeService(r, private)
	case check.Rejected:
		e.judgeRefusal(mad.Reason(r.Status))
	case check.Unreachable:
		if w.isBenign() && r.Status < 0 && !k.isEnding && w.board.plan.isBrisk() {
			w.court.Failf("%s: unreachable (%d) in a good world", e.fate.Name, r.Status)
		}
		k.end(false)
	case check.Disconnected:
		if !k.isEnding {
			w.court.Failf("%s: disconnected (%d), and nobody wanted that", e.fate.Name, r.Status)
		}
		e.due("TIMEWAIT", timewaitTime)
	default:
	}
}

// judgeService judges the answer to a query.
func (e *callEnd) judgeService(r *abi.CMEvent, private []byte) {
	w, k := e.caller.world, e.call
	if !isPadded(private, k.reply) {
		w.court.Failf("%s: private data %x, sent was %x", e.fate.Name, private, k.reply)
	}
	isTrue := slices.ContainsFunc(k.to, func(o *callEnd) bool {
		return o.caller.own.qpn == r.Param.QPN
	})
	if !isTrue || r.Param.QKey != callQKey {
		w.court.Failf("%s: the service is at QP %#x with key %#x, they say", e.fate.Name, r.Param.QPN,
			r.Param.QKey)
	}
	w.mark("call.up.UD")
	if c := e.caller; c.own != nil {
		ah, refusal := c.ctx.CreateAH(&abi.CreateAHReq{PD: c.pd, Attr: r.Param.AH})
		if refusal != nil {
			if !c.host.isHidden() {
				w.court.Failf("%s: create_ah: %v", e.fate.Name, refusal)
			}
			return
		}
		c.own.say(k, abi.SendWQE{AH: ah, RemoteQPN: r.Param.QPN, RemoteQKey: r.Param.QKey})
	}
}

// isBenign reports a world in which nothing gets lost and nobody dies.
func (w *World) isBenign() bool {
	p := &w.plan
	return p.loss() == 0 && p.profile.Reorder == 0 && !p.partitions && !p.restarts && !p.deaths &&
		!w.board.plan.addresses
}

// judgeRefusal finds the cause of a rejection.
func (e *callEnd) judgeRefusal(reason mad.Reason) {
	w, k := e.caller.world, e.call
	w.mark("call.refused." + reason.String())
	hasCause := false
	since, isLit := w.board.lit[k.target]
	switch reason {
	case mad.ReasonInvalidServiceID:
		hasCause = e.isActive && (!isLit || since >= k.askedAt)
	case mad.ReasonConsumer:
		hasCause = k.isEnding
	case mad.ReasonNoResources:
		hasCause = e.isActive && w.board.plan.small > 0
	case mad.ReasonStaleConnection:
		// A number that was not connected before has no old connection (case C02); the old one hears of
		// the new.
		hasCause = e.isActive && !k.isFirst || w.board.numbers[e.remote] > 1
	case mad.ReasonTimeout, mad.ReasonInvalidCommID:
		hasCause = k.isEnding || !w.isBenign()
	default:
	}
	if !hasCause {
		w.court.Failf("%s: rejected with %v without a cause", e.fate.Name, reason)
	}
	k.end(!e.isActive)
}

// judgeAnswer compares what the active end was told with what the passive one is.
func (e *callEnd) judgeAnswer() {
	p := e.peer()
	if p == nil {
		k, w := e.call, e.caller.world
		if !k.isEnding {
			w.court.Failf("%s: its peer is QP %#x, which is nobody's", e.fate.Name, e.rtr.DestQPN)
		}
		return
	}
	e.judgeBoth(p)
}

// judgePair judges an end that is up.
func (e *callEnd) judgePair() {
	w := e.caller.world
	w.mark("call.up." + e.kind.String())
	f := e.call.from
	if p := e.peer(); p != nil {
		p.judgeBoth(e)
	} else if !e.call.isEnding {
		w.court.Failf("%s: established with QP %#x, which knows nothing of it", e.fate.Name,
			e.rtr.DestQPN)
	}
	if f.fate.State() < check.EndAnswered {
		w.court.Failf("%s: established while the other end is %v", e.fate.Name, f.fate.State())
	}
}

// judgeBoth compares the attributes of both ends, the active one first.
func (e *callEnd) judgeBoth(p *callEnd) {
	w := e.caller.world
	a, b := &e.rtr, &p.rtr
	most := min(e.caller.host.mtu, p.caller.host.mtu)
	if e.caller.host == p.caller.host {
		most = rdma.MTU4096
	}
	switch {
	case a.DestQPN != p.plug.qpn || b.DestQPN != e.plug.qpn:
		w.court.Failf("%s and %s: QP numbers %#x, %#x", e.fate.Name, p.fate.Name, a.DestQPN, b.DestQPN)
	case a.RQPSN != p.rts.SQPSN || b.RQPSN != e.rts.SQPSN:
		w.court.Failf("%s and %s: PSNs %d, %d and %d, %d", e.fate.Name, p.fate.Name, a.RQPSN,
			p.rts.SQPSN, b.RQPSN, e.rts.SQPSN)
	case a.PathMTU != b.PathMTU || rdma.MTU(a.PathMTU) > most:
		w.court.Failf("%s and %s: path MTUs %d, %d", e.fate.Name, p.fate.Name, a.PathMTU, b.PathMTU)
	case e.rts.MaxRdAtomic > b.MaxDestRdAtomic || p.rts.MaxRdAtomic > a.MaxDestRdAtomic:
		w.court.Failf("%s and %s: READs %d to %d and %d to %d", e.fate.Name, p.fate.Name,
			e.rts.MaxRdAtomic, b.MaxDestRdAtomic, p.rts.MaxRdAtomic, a.MaxDestRdAtomic)
	}
}

// sayFarewell is called when the end is about to vanish: a peer that believes in the connection has
// to learn. That the RTU has not come changes nothing, but that a REJ is not answered and may get
// lost as often as it is repeated.
func (e *callEnd) sayFarewell() {
	w, s := e.caller.world, e.fate.State()
	p := e.peer()
	if p == nil || p.fate.State() != check.EndUp {
		return
	}
	isMild := w.plan.loss() < 0.1 && !w.plan.partitions && !w.board.plan.addresses
	if s == check.EndUp || s == check.EndAccepted && isMild {
		w.mark("call.farewell." + s.String())
		p.expectFarewell(e.caller.host)
	}
}

// expectFarewell judges that an end hears that its peer, on the host given, is gone.
func (e *callEnd) expectFarewell(from *host) {
	w, lives, own := e.caller.world, from.lives, e.caller
	w.at(w.now.Add(callTime+outageMax), func() {
		if e.fate.State() != check.EndUp || e.isGone || own.isGone {
			return
		}
		if from.lives == lives && !from.isDown {
			w.court.Failf("%v: its peer is gone and has said nothing", &e.fate)
		}
	})
}
