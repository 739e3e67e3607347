package sim

import (
	"slices"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/sim/check"
)

// window is a region of one end that the other end writes and reads.
type window struct {
	area  *area
	model *check.Window
	reads []span // open reads of the peer, by offset in the window
	seed  uint64 // UC: the content that all writes are pieces of
	n     int
}

// newWindow registers a region of n bytes for a peer, or nothing where there is no room.
func (a *app) newWindow(name string, n int) *window {
	off, ok := a.windows.take(n)
	if !ok {
		return nil
	}
	r := a.register(span{off, n}, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|
		rdma.AccessRemoteRead|rdma.AccessMWBind|a.world.flushable())
	if r == nil {
		return nil
	}
	return &window{
		area: r, n: n, seed: a.world.random.Uint64(),
		model: &check.Window{Mem: a.mem, Name: name, Off: off, Len: n},
	}
}

// renew forgets the peer's requests: its queue pair was reset.
func (x *window) renew() {
	a := x.area.app
	x.model.Close()
	x.reads, x.seed = nil, a.world.random.Uint64()
	x.model = &check.Window{Mem: a.mem, Name: x.model.Name, Off: x.area.off, Len: x.n}
}

// close ends the window after nobody can write to it any more.
func (x *window) close() {
	x.model.Close()
	x.area.app.deregister(x.area)
	x.area.app.windows.give(x.area.off, x.area.n)
}

// isRead reports an open read of the range.
func (x *window) isRead(off, n int) bool {
	return slices.ContainsFunc(x.reads, func(s span) bool {
		return s.off < off+n && off < s.end()
	})
}

func (x *window) endRead(s span) {
	if i := slices.Index(x.reads, s); i >= 0 {
		x.reads = slices.Delete(x.reads, i, i+1)
	}
}
