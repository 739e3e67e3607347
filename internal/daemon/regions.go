package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

// regMR registers memory: pieces that come as memfds are mapped, the others are probed, so that
// what cannot work fails here and not at a peer's first access.
func (s *session) regMR(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.RegMRReq
	rest, ok := ctl.DecodeHead(m.Body, &req)
	list, whole := ctl.DecodeList[abi.Segment](rest)
	if !ok || !whole || uint32(len(list)) != req.NumSegments {
		return reply{}, badBody(m)
	}
	p, refusal := s.prepare(list, m.FDs, rdma.Access(req.Access))
	if refusal != nil {
		return reply{}, refusal
	}
	var rsp abi.RegMRRsp
	r := s.do(func(clock.Time) {
		if rsp, refusal = s.context.RegMR(&req, p.segs); refusal == nil {
			s.note(rsp.Handle, &p)
		}
	})
	if r == nil {
		r = refusal
	}
	if r != nil {
		s.maps.put(p.maps)
		return reply{}, r
	}
	s.maps.byMR[rsp.Handle] = p.maps
	return reply{body: ctl.Bytes(&rsp)}, nil
}

// prepared is the memory of a region as the NIC can use it.
type prepared struct {
	segs  []mem.Segment
	maps  []*foreignMap // of the mapped ones, in order
	files []segmentFile
}

// note keeps what the lane has to know of a region. Lane.
func (s *session) note(handle uint32, p *prepared) {
	s.mapped[handle], s.files[handle] = segmentsOf(p.segs), p.files
}

// prepare turns the segments of a request into memory that the NIC can use. On refusal nothing
// stays mapped.
func (s *session) prepare(list []abi.Segment, fds []int, access rdma.Access) (
	p prepared, refusal *rdma.Refusal,
) {
	if len(list) > limits.MaxMRSegments {
		return p, rdma.Refuse(unix.EINVAL,
			fmt.Sprintf("%d segments; at most %d", len(list), limits.MaxMRSegments))
	}
	p.segs = make([]mem.Segment, len(list))
	for i := range list {
		piece := &list[i]
		p.segs[i] = mem.Segment{Addr: piece.Addr, Length: piece.Length}
		m, refusal := s.mapPiece(piece, fds, access)
		if refusal == nil && m == nil {
			refusal = s.probe(piece, access)
		}
		if refusal != nil {
			s.maps.put(p.maps)
			return prepared{}, refusal
		}
		if m != nil {
			end := piece.FDOffset + piece.Length
			p.segs[i].Mapped = m.Bytes()[piece.FDOffset:end:end]
			p.maps = append(p.maps, m)
			p.addFile(&p.segs[i], s.keepFile(m, fds[piece.FD], access), piece.FDOffset)
		}
	}
	return p, nil
}

// mapPiece maps a piece that lies in a memfd; nil for one that is to be reached as process memory.
func (s *session) mapPiece(piece *abi.Segment, fds []int, access rdma.Access) (
	*foreignMap, *rdma.Refusal,
) {
	switch {
	case piece.FD == -1:
		return nil, nil
	case piece.FD < 0 || int(piece.FD) >= len(fds):
		return nil, rdma.Refuse(unix.EINVAL,
			fmt.Sprintf("a segment names descriptor %d of %d", piece.FD, len(fds)))
	case piece.Length == 0:
		return nil, rdma.Refuse(unix.EINVAL, "a segment of no bytes")
	}
	file, err := shm.CheckForeign(fds[piece.FD])
	if err != nil {
		return nil, rdma.Refuse(unix.EINVAL, err.Error())
	}
	if !file.Covers(piece.FDOffset, piece.Length) {
		return nil, rdma.Refuse(unix.EINVAL, fmt.Sprintf("a segment of %d bytes at %d lies outside"+
			" its memfd of %d", piece.Length, piece.FDOffset, file.Size))
	}
	return s.maps.get(&file, access.Has(rdma.AccessLocalWrite)), nil
}

// probe finds out whether a piece can be reached. One that is paged on demand need not be there
// yet, but the process must let the NIC in.
func (s *session) probe(piece *abi.Segment, access rdma.Access) *rdma.Refusal {
	if s.space == nil {
		return s.noSpace
	}
	r := s.space.Probe(piece.Addr, piece.Length)
	if r != nil && r.Errno == unix.EFAULT && access.Has(rdma.AccessOnDemand) {
		return nil
	}
	return r
}

func (s *session) deregMR(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.HandleMsg
	if !ctl.Decode(m.Body, &req) {
		return reply{}, badBody(m)
	}
	var refusal *rdma.Refusal
	r := s.do(func(clock.Time) {
		if _, refusal = s.context.DeregMR(req.Handle); refusal == nil {
			delete(s.mapped, req.Handle)
			delete(s.files, req.Handle)
		}
	})
	if r == nil {
		r = refusal
	}
	if r == nil {
		s.maps.put(s.maps.byMR[req.Handle])
		delete(s.maps.byMR, req.Handle)
	}
	return reply{}, r
}

// reregMR changes a region. What the NIC does not map any more is given up once the change is done.
func (s *session) reregMR(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.ReregMRReq
	rest, ok := ctl.DecodeHead(m.Body, &req)
	list, whole := ctl.DecodeList[abi.Segment](rest)
	if !ok || !whole || uint32(len(list)) != req.NumSegments {
		return reply{}, badBody(m)
	}
	access := rdma.Access(req.Access)
	if rdma.ReregMask(req.Flags)&rdma.ReregAccess == 0 {
		// It keeps its own, which the lane knows.
		if r := s.do(func(clock.Time) { access, _ = s.context.AccessOf(req.Handle) }); r != nil {
			return reply{}, r
		}
	}
	p, refusal := s.prepare(list, m.FDs, access)
	if refusal != nil {
		return reply{}, refusal
	}
	var rsp abi.RegMRRsp
	var old []mem.Segment
	r := s.do(func(clock.Time) {
		rsp, old, refusal = s.context.ReregMR(&req, p.segs)
		if refusal == nil && old != nil {
			s.note(req.Handle, &p)
		}
	})
	if r == nil {
		r = refusal
	}
	if r != nil || old == nil {
		s.maps.put(p.maps)
		return reply{body: ctl.Bytes(&rsp)}, r
	}
	s.maps.put(s.maps.byMR[req.Handle])
	s.maps.byMR[req.Handle] = p.maps
	return reply{body: ctl.Bytes(&rsp)}, nil
}

func (s *session) adviseMR(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.AdviseMRReq
	rest, ok := ctl.DecodeHead(m.Body, &req)
	list, whole := ctl.DecodeList[abi.SGE](rest)
	if !ok || !whole || uint32(len(list)) != req.NumSGE {
		return reply{}, badBody(m)
	}
	var places []abi.SGE
	var refusal *rdma.Refusal
	if r := s.do(func(clock.Time) { places, refusal = s.context.AdviseMR(&req, list) }); r != nil {
		return reply{}, r
	}
	return reply{body: ctl.ListBytes(places)}, refusal
}
