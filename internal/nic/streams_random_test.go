package nic

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// chaos is two nodes whose programs, peers and networks do anything at any time.
type chaos struct {
	*lan
	r     *rand.Rand
	ids   [2][]uint32
	qps   [2][]*end
	bytes [2]abi.SGE
	keys  [2]uint32
	seen  map[eventKind]int
}

func newChaos(t testing.TB, seed uint64) *chaos {
	c := &chaos{r: rand.New(rand.NewPCG(seed, 3)), seen: map[eventKind]int{}}
	o := StreamOptions{
		NoCRC: seed%2 != 0, Markers: seed%3 == 0, Revision: uint8(seed % 3), FPDU: FPDUSize(seed % 3),
	}
	c.lan = newLAN(t, DeviceConfig{Name: "iwarp0", Transport: TransportIWARP, Stream: o})
	c.lan.r = rand.New(rand.NewPCG(seed, 4))
	c.room = []int{3000, 20_000, 1 << 20}[seed%3]
	for i, h := range c.nodes {
		mr, addr, _ := h.region(30_000, everyRight)
		c.bytes[i], c.keys[i] = abi.SGE{Addr: addr, Length: 30_000, LKey: mr.LKey}, mr.RKey
		h.server()
	}
	return c
}

// pick returns an element, or the zero value of an empty list.
func pick[T any](r *rand.Rand, list []T) (out T) {
	if len(list) > 0 {
		out = list[r.IntN(len(list))]
	}
	return out
}

// do lets a node do one thing. Most are refused, since they come at the wrong time.
func (c *chaos) do(side int) {
	h, now := c.nodes[side], c.now
	id, e := pick(c.r, c.ids[side]), pick(c.r, c.qps[side])
	param := params(0x12345, "private")
	if e != nil {
		param.QPN = e.q.rsp.QPN
	}
	req := abi.CMConnReq{ID: id, Param: param}
	switch c.r.IntN(20) {
	case 0, 1:
		if len(c.qps[side]) < 6 {
			c.qps[side] = append(c.qps[side], h.queue())
		}
	case 2, 3:
		if len(c.ids[side]) < 12 {
			c.begin(side)
		}
	case 4, 5:
		if len(c.qps[side]) < 12 {
			e = h.queue()
			c.qps[side] = append(c.qps[side], e)
			req.Param.QPN = e.q.rsp.QPN
		}
		h.s.Connect(now, &req)
	case 6, 7, 8:
		h.s.Accept(now, &req)
	case 9:
		h.s.Reject(now, &req)
	case 10:
		h.s.Disconnect(now, id)
	case 11:
		h.s.DestroyID(now, id)
		c.ids[side] = slices.DeleteFunc(c.ids[side], func(o uint32) bool { return o == id })
	case 12:
		if e != nil {
			to := []rdma.QPState{sReset, sInit, sError, sSQD, sRTS}[c.r.IntN(5)]
			e.q.modify(abi.QPAttr{State: uint32(to)}, rdma.QPAttrState)
		}
	case 13:
		if e != nil && (e.q.state() == sError || c.r.IntN(3) == 0) {
			h.c.DestroyQP(now, e.q.rsp.Handle)
			c.qps[side] = slices.DeleteFunc(c.qps[side], func(o *end) bool { return o == e })
		}
	case 14:
		c.harm(h)
	default:
		if e != nil {
			c.post(side, e)
		}
	}
}

// heed takes a node's events; it accepts what it can, as often as not.
func (c *chaos) heed(side int) {
	h := c.nodes[side]
	for k := range h.events {
		e := &h.events[k].Record
		c.seen[eventKind(e.Event)]++
		if eventKind(e.Event) != eventConnectRequest {
			continue
		}
		if len(c.qps[side]) < 16 && c.r.IntN(3) > 0 {
			q := h.queue()
			c.qps[side] = append(c.qps[side], q)
			h.s.Accept(c.now, &abi.CMConnReq{ID: e.ID, Param: params(q.q.rsp.QPN, "")})
		}
		c.ids[side] = append(c.ids[side], e.ID)
	}
	h.events = nil
}

// begin takes a new identifier to where it may connect, to either node.
func (c *chaos) begin(side int) {
	h, to := c.nodes[side], c.nodes[c.r.IntN(2)]
	id := h.tcp()
	h.granted(h.s.ResolveAddr(c.now, &abi.CMAddrReq{ID: id, Dst: cmAddr(to.addr.String(), lanPort)}))
	h.s.ResolveRoute(c.now, &abi.CMAddrReq{ID: id})
	c.ids[side] = append(c.ids[side], id)
}

// post posts work while there is room for it.
func (c *chaos) post(side int, e *end) {
	e.cq.poll()
	mine := c.bytes[side]
	mine.Length = uint32(c.r.IntN(30_000))
	if c.r.IntN(2) == 0 {
		if e.q.rq.Free() > 0 {
			e.q.recv(1, c.bytes[side])
		}
		return
	}
	if e.q.sq.Free() == 0 {
		return
	}
	w := wr([]rdma.WROpcode{
		rdma.WRSend, rdma.WRWrite, rdma.WRRead, rdma.WRFetchAdd, rdma.WRSendWithImm, rdma.WRWriteWithImm,
	}[c.r.IntN(6)], 5)
	far := c.r.IntN(2)
	w.RemoteAddr, w.RKey = c.bytes[far].Addr, c.keys[far]
	if w.Opcode == uint8(rdma.WRFetchAdd) {
		mine.Length = 8
	}
	e.q.send(w, mine)
}

// harm lets the network or a peer do something to a stream.
func (c *chaos) harm(h *node) {
	socks := sorted(h.socks)
	s := pick(c.r, socks)
	if s == nil || s.peer == nil {
		return
	}
	switch c.r.IntN(4) {
	case 0:
		s.end(syscall.ECONNRESET)
		s.peer.end(syscall.ETIMEDOUT)
	case 1:
		junk := make([]byte, c.r.IntN(300))
		for i := range junk {
			junk[i] = byte(c.r.Uint32())
		}
		s.take(junk)
	case 2:
		s.end(0)
	case 3:
		w := c.dial(h, lanPort)
		w.write([]byte("MPA ID Req Frame\x00\x01\x00\x00")[:c.r.IntN(21)])
	}
}

// TestStreams_Random does anything at any time; nothing of it is left in the end.
func TestStreams_Random_LeavesNothing(t *testing.T) {
	rounds := uint64(60)
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		c := newChaos(t, seed)
		for range 1000 {
			side := c.r.IntN(2)
			c.do(side)
			c.heed(0)
			c.heed(1)
			c.run(time.Duration(c.r.IntN(200)) * time.Microsecond)
			if c.r.IntN(100) == 0 {
				c.run(time.Duration(c.r.IntN(20)) * time.Second)
			}
		}
		if c.seen[eventEstablished] == 0 {
			t.Errorf("events %v are too few to tell anything", c.seen)
		}
		c.clean()
		c.empty()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
