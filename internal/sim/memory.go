package sim

import (
	"slices"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// span is a range of an application's memory, by offset from its start.
type span struct{ off, n int }

func (s span) end() int { return s.off + s.n }

// process is an application's memory as the NIC reaches it from outside: mem.Space.
type process struct {
	app *app
	// pinned are the ranges that the NIC has a reason to touch.
	pinned []span
	isDead bool // the process is gone, its context not yet
}

// Read implements mem.Space.
func (p *process) Read(addr uint64, dst []byte) bool {
	b := p.at(addr, len(dst))
	copy(dst, b)
	return b != nil || len(dst) == 0
}

// Write implements mem.Space.
func (p *process) Write(addr uint64, src []byte) bool {
	b := p.at(addr, len(src))
	p.app.judgeStore(addr-p.app.base, len(src))
	copy(b, src)
	return b != nil || len(src) == 0
}

// IsGone implements mem.Space.
func (p *process) IsGone() bool { return p.isDead }

// at returns the memory of an access, nil where there is none. The NIC may look at registered
// memory only.
func (p *process) at(addr uint64, n int) []byte {
	if p.isDead || n == 0 {
		return nil
	}
	off := addr - p.app.base
	for _, s := range p.pinned {
		if off >= uint64(s.off) && off+uint64(n) <= uint64(s.end()) {
			return p.app.mem.Bytes[off : off+uint64(n)]
		}
	}
	p.app.world.court.Failf("%s: the NIC touches %d bytes at offset %#x, outside all regions",
		p.app.name, n, off)
	return nil
}

// areaUse is what a buffer is for.
type areaUse int

const (
	forSend    areaUse = iota // the NIC reads it
	forResult                 // the NIC writes what a READ or an atomic brings
	forReceive                // the NIC writes what a peer sends
)

// area is a registered region from which buffers are cut.
type area struct {
	span
	app    *app
	access rdma.Access
	iova   uint64
	handle uint32
	key    uint32
	used   []span // sorted
	isGone bool
}

// address returns the address of an offset as work requests and peers name it.
func (a *area) address(off int) uint64 { return a.iova + uint64(off-a.off) }

// take cuts n bytes out of an area. Neighbours mostly touch, so that an overrun by one byte hits
// somebody.
func (a *area) take(n int) (off int, ok bool) {
	w := a.app.world
	if len(a.used) >= 512 {
		return 0, false
	}
	start := w.random.IntN(len(a.used) + 1)
	for i := range len(a.used) + 1 {
		at := (start + i) % (len(a.used) + 1)
		lo, hi := a.off, a.end()
		if at > 0 {
			lo = a.used[at-1].end()
		}
		if at < len(a.used) {
			hi = a.used[at].off
		}
		if hi-lo < n {
			continue
		}
		off = lo + w.random.IntN(min(hi-lo-n, 8)+1)
		a.used = slices.Insert(a.used, at, span{off, n})
		return off, true
	}
	return 0, false
}

// give returns what take cut.
func (a *area) give(off, n int) {
	i, _ := slices.BinarySearchFunc(a.used, off, func(s span, off int) int { return s.off - off })
	for ; i < len(a.used) && a.used[i].off == off; i++ { // empty ones share an offset with others
		if a.used[i].n == n {
			a.used = slices.Delete(a.used, i, i+1)
			return
		}
	}
}

// register makes a region of a span.
func (a *app) register(s span, access rdma.Access) *area {
	w := a.world
	r := &area{span: s, app: a, access: access, iova: a.base + uint64(s.off)}
	if w.chance(0.3) {
		// An address of its own for work requests, as ibv_reg_mr_iova gives.
		r.iova = uint64(w.between(0, 1<<20)) * 4096
	}
	segs := a.segments(s)
	rsp, refusal := a.ctx.RegMR(&abi.RegMRReq{
		PD: a.pd, Access: uint32(access), Addr: a.base + uint64(s.off), Length: uint64(s.n),
		IOVA: r.iova, NumSegments: uint32(len(segs)),
	}, segs)
	if refusal != nil {
		w.court.Failf("%s: reg_mr: %v", a.name, refusal)
		return nil
	}
	r.handle, r.key = rsp.Handle, rsp.RKey
	a.process.pinned = append(a.process.pinned, s)
	a.segmentsHeld += len(segs)
	return r
}

// segments decides how the NIC reaches a span: mapped, through the process, or both in turn.
func (a *app) segments(s span) []mem.Segment {
	w := a.world
	isRemote := w.chance(w.plan.remote)
	pieces := 1
	if s.n >= 4096 && w.chance(0.3) {
		pieces = w.between(2, 4)
	}
	var out []mem.Segment
	for i := range pieces {
		n := s.n / pieces
		if i == pieces-1 {
			n = s.n - n*(pieces-1)
		} else {
			n = n&^7 + w.between(0, 7)
		}
		off := s.off
		if i > 0 {
			last := out[i-1]
			off = int(last.Addr-a.base) + int(last.Length)
			if i == pieces-1 {
				n = s.end() - off
			}
		}
		seg := mem.Segment{Addr: a.base + uint64(off), Length: uint64(n)}
		if !isRemote {
			seg.Mapped = a.mem.Bytes[off : off+n : off+n]
		}
		isRemote = isRemote != (pieces > 1)
		out = append(out, seg)
	}
	return out
}

// deregister ends a region.
func (a *app) deregister(r *area) {
	if r.isGone || a.isGone {
		return
	}
	r.isGone = true
	segs, refusal := a.ctx.DeregMR(r.handle)
	if refusal != nil {
		a.world.court.Failf("%s: dereg_mr: %v", a.name, refusal)
	}
	a.releaseSegments(segs)
	if i := slices.Index(a.process.pinned, r.span); i >= 0 {
		a.process.pinned = slices.Delete(a.process.pinned, i, i+1)
	}
}

func (a *app) releaseSegments(segs []mem.Segment) { a.segmentsHeld -= len(segs) }

// piece is a part of a message in memory.
type piece struct {
	area *area
	span
}

// cut finds room for a message of total bytes in up to most pieces whose areas grant access; nil
// where there is none now. Receives have areas of their own: a program whose sends leave no room
// for receives can come to a standstill with its peers.
func (a *app) cut(total, most int, use areaUse) []piece {
	w := a.world
	count := 1
	if most > 1 && w.chance(0.5) {
		count = w.between(1, w.pick(min(most, 6), most))
	}
	out := make([]piece, 0, count)
	for left := total; count > 0; count-- {
		n := left
		if count > 1 {
			n = w.between(0, left)
			if w.chance(0.3) {
				n = min(left, w.pick(1, 4, 7, 64))
			}
		}
		p, ok := a.place(n, use)
		if !ok {
			a.uncut(out)
			return nil
		}
		out = append(out, p)
		left -= n
	}
	return out
}

func (a *app) place(n int, use areaUse) (piece, bool) {
	list := a.areas[:receiveAreas]
	if use != forReceive {
		list = a.areas[receiveAreas:]
	}
	first := a.world.random.IntN(len(list))
	for i := range list {
		r := list[(first+i)%len(list)]
		if use == forResult && !r.access.Has(rdma.AccessLocalWrite) {
			continue
		}
		if off, ok := r.take(n); ok {
			return piece{r, span{off, n}}, true
		}
	}
	return piece{}, false
}

func (a *app) uncut(list []piece) {
	for _, p := range list {
		p.area.give(p.off, p.n)
	}
}

// sges describes pieces to the NIC, until the next call.
func (a *app) sges(list []piece) []abi.SGE {
	out := a.list[:0]
	for _, p := range list {
		out = append(out, abi.SGE{
			Addr: p.area.address(p.off), Length: uint32(p.n), LKey: p.area.key,
		})
	}
	a.list = out
	return out
}

// gather copies what lies in pieces, at most n bytes from offset skip on.
func (a *app) gather(list []piece, skip, n int) []byte {
	out := a.scratch[:0]
	for _, p := range list {
		b := a.mem.Bytes[p.off:p.end()]
		k := min(skip, len(b))
		b, skip = b[k:], skip-k
		b = b[:min(len(b), n)]
		out, n = append(out, b...), n-len(b)
	}
	a.scratch = out
	return out
}
