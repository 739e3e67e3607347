package nic

import (
	"strconv"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
)

// TestStreams_Backlog_WhatIsBeyondWaits connects four times to a program that has room for two and
// takes its time: all are served, in order, but for one that gives up.
func TestStreams_Backlog_WhatIsBeyondWaits(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	listener, r := y.listen("0.0.0.0", lanPort, 2)
	y.granted(r)
	var ids []uint32
	for n := range 5 {
		q, id := x.queue(), x.caller(y)
		p := params(q.q.rsp.QPN, "number "+strconv.Itoa(n))
		x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: p}))
		ids = append(ids, id)
		l.run(time.Second)
	}
	take := func(n int) uint32 {
		t.Helper()
		e := y.expect(eventConnectRequest, 0)
		if got := string(e.Param.PrivateData[:8]); got != "number "+strconv.Itoa(n) {
			t.Errorf("%q instead of number %d", got, n)
		}
		return e.ID
	}
	first := take(0)
	take(1)
	l.run(40 * time.Second)
	y.silent(0)
	x.granted(x.s.DestroyID(l.now, ids[2])) // it gives up
	l.run(time.Second)
	y.silent(0)
	for range 2 { // who looks at a request twice has taken one
		_, r = y.s.QueryID(first)
		y.granted(r)
	}
	third := take(3)
	l.run(time.Second)
	y.silent(0)
	q := y.queue()
	p := params(q.q.rsp.QPN, "")
	y.granted(y.s.Accept(l.now, &abi.CMConnReq{ID: third, Param: p}))
	x.expect(eventEstablished, ids[3])
	take(4)
	y.granted(y.s.DestroyID(l.now, listener))
	l.run(time.Second)
	if y.n.counters.TurnedAway != 0 {
		t.Errorf("%d turned away", y.n.counters.TurnedAway)
	}
}

// TestStreams_Backlog_ListenerGoes_TellsWhoWaits: nobody is left behind in a backlog.
func TestStreams_Backlog_ListenerGoes_TellsWhoWaits(t *testing.T) {
	for _, isWhole := range []bool{false, true} {
		l := newLAN(t)
		x, y := l.nodes[0], l.nodes[1]
		listener, r := y.listen("0.0.0.0", lanPort, 1)
		y.granted(r)
		var ids []uint32
		for range 3 {
			q, id := x.queue(), x.caller(y)
			x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(q.q.rsp.QPN, "")}))
			ids = append(ids, id)
			l.run(time.Second)
		}
		y.expect(eventConnectRequest, 0)
		if isWhole {
			y.n.CloseCM(l.now, y.s)
		} else {
			y.granted(y.s.DestroyID(l.now, listener))
		}
		l.run(time.Second)
		y.silent(0)
		x.expect(eventRejected, ids[1])
		x.expect(eventRejected, ids[2])
		if isWhole {
			x.expect(eventRejected, ids[0])
		}
		if n := len(y.n.streams.unasked); n != 0 {
			t.Errorf("%d wait for nobody", n)
		}
	}
}

// TestStreams_Backlog_WhoWaitsOutlastsWhoIsSilent: connections that say nothing give way to each
// other, and not one that has asked.
func TestStreams_Backlog_WhoWaitsOutlastsWhoIsSilent(t *testing.T) {
	l := newLAN(t)
	x, y := l.nodes[0], l.nodes[1]
	_, r := y.listen("0.0.0.0", lanPort, 1)
	y.granted(r)
	for range 2 {
		q, id := x.queue(), x.caller(y)
		x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: id, Param: params(q.q.rsp.QPN, "")}))
		l.run(time.Second)
	}
	first := y.expect(eventConnectRequest, 0).ID
	for range limits.MaxStreamsUnasked + 2 {
		l.dial(y, lanPort)
	}
	l.run(time.Second)
	if n := y.n.counters.StreamsDisplaced; n != 3 {
		t.Errorf("%d gave way", n)
	}
	_, r = y.s.QueryID(first)
	y.granted(r)
	y.expect(eventConnectRequest, 0)
}
