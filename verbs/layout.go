package verbs

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/ring"
)

// layout is where a ring lies in a queue's memory, as the NIC says.
type layout struct {
	offset, bytes uint32 // bytes of the whole memory
	geo           ring.Geometry
	strideMin     uint32
}

// check refuses what does not fit: a NIC of another make must not crash the program.
func (l layout) check() error {
	n := l.geo.Entries
	end := uint64(l.offset) + uint64(n)*uint64(l.geo.Stride)
	if n == 0 || n&(n-1) != 0 || n > limits.MaxCQE || l.geo.Stride < l.strideMin ||
		l.offset < abi.QueueHeaderBytes || l.offset%8 != 0 || l.geo.Stride%8 != 0 ||
		end > uint64(l.bytes) {
		return fmt.Errorf("the NIC describes a queue of %d entries of %d bytes at %d of %d",
			n, l.geo.Stride, l.offset, l.bytes)
	}
	return nil
}
