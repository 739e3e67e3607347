package sim

import (
	"sync"

	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/invariant"
	"github.com/softrnic/softrnic/internal/nic"
)

// stock is memory that worlds hand on to each other: many are played a second, and new memory costs
// more than most of what happens in it.
type stock struct {
	// scratch serves all NICs of the world, as one thread drives them all.
	scratch *work.Scratch
	flights []*flight
	slabs   map[int][]*slab // that were used, by size
	spares  map[int][]*slab // that were not yet
}

// slabsMax bounds what a stock keeps of one size; the rest is for the garbage collector.
const slabsMax = 64

var stocks = sync.Pool{New: func() any {
	return &stock{
		scratch: work.NewScratch(), slabs: map[int][]*slab{}, spares: map[int][]*slab{},
	}
}}

// close hands the stock on. Nobody uses anything of it any more.
func (s *stock) close() {
	for n, list := range s.slabs {
		all := append(s.spares[n], list...)
		s.spares[n] = all[:min(len(all), slabsMax)]
	}
	clear(s.slabs)
	stocks.Put(s)
}

// heap is a NIC's queue memory in slices, which knows what is not given back.
type heap struct {
	stock *stock
	live  int
}

type slab struct {
	heap *heap
	mem  []byte
	gone bool
}

// Alloc implements nic.Allocator.
func (h *heap) Alloc(n int) (nic.Shared, error) {
	h.live++
	s := h.stock.takeSlab(n)
	s.heap, s.gone = h, false
	return s, nil
}

// takeSlab returns memory of zeroes. What was used in this world is not used in it again: somebody
// may still look at it.
func (s *stock) takeSlab(n int) *slab {
	// Words are accessed atomically, up to 8 bytes at a time: slices of this size begin at one.
	x := &slab{}
	if list := s.spares[n]; len(list) > 0 {
		x = list[len(list)-1]
		s.spares[n] = list[:len(list)-1]
		clear(x.mem)
	} else {
		x.mem = make([]byte, n)
	}
	s.slabs[n] = append(s.slabs[n], x)
	return x
}

func (s *slab) Bytes() []byte { return s.mem }

func (s *slab) Release() {
	invariant.Assert(!s.gone, "queue memory released twice")
	s.gone = true
	s.heap.live--
}
