package nic

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
)

// xrcStorm is a receiving XRC queue pair under fire: a peer that sends anything, and a program that
// makes and destroys the queues of the domain meanwhile.
type xrcStorm struct {
	*bench
	r      *rand.Rand
	domain uint32
	cq     *appCQ
	ini    *appQP
	tgt    *appQP
	srqs   []*appSRQ
	mr     abi.RegMRRsp
	addr   uint64
	good   int // receives that completed well
}

func newXRCStorm(t *testing.T, seed uint64) *xrcStorm {
	s := &xrcStorm{bench: newBench(t), r: rand.New(rand.NewPCG(seed, 1))}
	s.domain, s.cq = s.xrcd(nil), s.bench.cq(64, 0)
	s.ini, s.tgt = s.xrcPair(s.domain, s.cq)
	s.mr, s.addr, _ = s.region(8192, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|
		rdma.AccessRemoteRead|rdma.AccessRemoteAtomic)
	return s
}

// step does one thing that peer or program may do.
func (s *xrcStorm) step() {
	switch s.r.IntN(12) {
	case 0:
		if len(s.srqs) < 3 {
			q := s.xrcSRQ(s.domain, s.pd, s.cq)
			q.recv(1, abi.SGE{Addr: s.addr, Length: uint32(s.r.IntN(4096)), LKey: s.mr.LKey})
			s.srqs = append(s.srqs, q)
		}
	case 1:
		if len(s.srqs) > 0 {
			s.granted(s.c.DestroySRQ(s.srqs[0].rsp.Handle))
			s.srqs = s.srqs[1:]
		}
	case 2:
		if s.tgt.state() == sError {
			s.granted(s.tgt.modify(abi.QPAttr{State: uint32(sReset)}, rdma.QPAttrState))
			s.tgt.revive(s.ini.rsp.QPN)
		}
	default:
		p := s.packet()
		s.n.HandlePacket(s.now, &p)
	}
	var out ibt.Packet
	for s.n.PollTransmit(s.now, &out) {
	}
	for _, e := range s.cq.poll() {
		if e.Status == 0 {
			s.good++
		}
	}
}

// revive brings a queue pair back from RESET.
func (q *appQP) revive(dest uint32) {
	a := fullAttr(dest)
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{{sInit, toInit}, {sRTR, toRTR}, {sRTS, toRTS}} {
		a.State = uint32(step.to)
		q.b.granted(q.modify(a, step.mask))
	}
}

// packet is one of a peer that knows the sequence numbers and little else.
func (s *xrcStorm) packet() ibt.Packet {
	var p ibt.Packet
	q := s.n.qps[rdma.QPN(s.tgt.rsp.QPN)]
	p.SGID, p.DGID = gid(1), gid(1)
	h := &p.Headers
	h.BTH = ib.BTH{
		Opcode: ib.XRCSendFirst + ib.Opcode(s.r.IntN(0x18)), DestQPN: rdma.QPN(s.tgt.rsp.QPN),
		PKey: rdma.PKeyDefault, PSN: q.ibt.Attr().RQPSN, AckReq: s.r.IntN(2) == 0,
	}
	if s.r.IntN(8) == 0 {
		h.BTH.PSN = h.BTH.PSN.Add(uint32(s.r.IntN(5)) - 2)
	}
	h.XRC = ib.XRCETH(s.r.IntN(1 << 16))
	if len(s.srqs) > 0 && s.r.IntN(8) != 0 {
		h.XRC = ib.XRCETH(s.srqs[s.r.IntN(len(s.srqs))].rsp.SRQN)
	}
	length := []int{0, 8, 1024, s.r.IntN(1025)}[s.r.IntN(4)]
	h.RETH = ib.RETH{
		VA: s.addr + uint64(s.r.IntN(8)*8), RKey: rdma.Key(s.mr.RKey), Length: uint32(length),
	}
	h.Atomic = ib.AtomicETH{VA: h.RETH.VA, RKey: h.RETH.RKey, SwapAdd: 1}
	p.Payload = make([]byte, length)
	h.BTH.PadCount = ib.PadCount(length)
	return p
}

func TestXRC_HostilePeerAndBusyProgram_LeaveNothingBehind(t *testing.T) {
	good := 0
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newXRCStorm(t, seed)
			for range 400 {
				s.step()
			}
			good += s.good
			s.n.CloseContext(s.now, s.c)
			if s.heap.live != 0 || len(s.n.qps) != 0 || len(s.n.srqns) != 0 {
				t.Errorf("left: %d blocks, %d QPs, %d numbers", s.heap.live, len(s.n.qps), len(s.n.srqns))
			}
		})
	}
	if good < 100 {
		t.Errorf("only %d messages arrived: the peer is too hostile to test anything", good)
	}
}
