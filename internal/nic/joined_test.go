package nic

import (
	"bytes"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
)

// TestStreams_HandleJoined_MovesDataAndIsShown connects two queue pairs of one NIC, whose shell
// says so between the request and the reply of MPA.
func TestStreams_HandleJoined_MovesDataAndIsShown(t *testing.T) {
	l := newLAN(t, DeviceConfig{Name: "iwarp0", Transport: TransportIWARP})
	x := l.nodes[0]
	x.server()
	a, z := x.queue(), x.queue()
	a.id = x.caller(x)
	x.granted(x.s.Connect(l.now, &abi.CMConnReq{ID: a.id, Param: params(a.q.rsp.QPN, "hello")}))
	z.id = x.expect(eventConnectRequest, 0).ID
	id, _ := x.n.StreamOf(rdma.QPN(a.q.rsp.QPN))
	x.n.HandleJoined(l.now, id, x.socks[id].peer.id)
	x.n.HandleJoined(l.now, 999, 998) // late news of others
	x.granted(x.s.Accept(l.now, &abi.CMConnReq{ID: z.id, Param: params(z.q.rsp.QPN, "welcome")}))
	x.expect(eventEstablished, a.id)
	x.expect(eventEstablished, z.id)
	const size = 100_000
	amr, aaddr, amem := a.region(size, everyRight)
	zmr, zaddr, zmem := z.region(size, everyRight)
	for i := range amem {
		amem[i] = byte(i * 11)
	}
	z.q.recv(9, abi.SGE{Addr: zaddr, Length: size, LKey: zmr.LKey})
	a.q.send(wr(rdma.WRSend, 1), abi.SGE{Addr: aaddr, Length: size, LKey: amr.LKey})
	a.polled(1, rdma.WCSuccess)
	z.polled(1, rdma.WCSuccess)
	if !bytes.Equal(amem, zmem) {
		t.Error("other bytes arrived")
	}
	for _, c := range x.n.Status().Contexts {
		for _, q := range c.QPs {
			if s := q.Stream; s == nil || !s.IsInside || !s.CRC || s.FPDUMax < 60_000 {
				t.Errorf("queue pair %#x: %+v", q.QPN, s)
			}
		}
	}
	l.empty()
}

func TestStreams_SetUp_NeedsNoTimer(t *testing.T) {
	l := newLAN(t)
	a, z, _ := l.pair()
	l.run(time.Second)
	for _, h := range []*end{a, z} {
		if at := h.n.PollTimeout(); at != clock.Never {
			t.Errorf("%v wants to be woken at %v, it is %v", h.addr, at, l.now)
		}
	}
}
