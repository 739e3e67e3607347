package daemon

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// budget bounds what applications can make the NIC map. The kernel limits the number of mappings
// of a process, and address space ends too; the Go runtime cannot go on where either is used up,
// so a part of both is out of the applications' reach.
type budget struct {
	maps, bytes       atomic.Int64
	mapsMax, bytesMax int64
}

const (
	// mapCountDefault is the kernel's limit unless sysctl vm.max_map_count says otherwise.
	mapCountDefault = 65530
	// mapCountReserved are the mappings that the NIC keeps for itself: about a thousand for the
	// runtime, one for the doorbells of each context.
	mapCountReserved = 8192
	// mappedBytesMax is a quarter of the address space of a process on amd64 and arm64.
	mappedBytesMax = 1 << 45
	// sessionBytesMax bounds the memfds of one application, so that a few sparse ones do not use
	// everybody's share. More is reached as process memory.
	sessionBytesMax = 1 << 42
)

func newBudget() *budget {
	limit := int64(mapCountDefault)
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if n, e := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && e == nil {
		limit = n
	}
	return &budget{mapsMax: max(limit-mapCountReserved, limit/4), bytesMax: mappedBytesMax}
}

// take reserves one mapping.
func (b *budget) take(bytes int64) error {
	if maps := b.maps.Add(1); maps > b.mapsMax {
		b.maps.Add(-1)
		return fmt.Errorf("daemon: the NIC has %d queues and regions mapped; sysctl"+
			" vm.max_map_count bounds them", maps-1)
	}
	if total := b.bytes.Add(bytes); bytes > b.bytesMax || total > b.bytesMax {
		b.bytes.Add(-bytes)
		b.maps.Add(-1)
		return fmt.Errorf("daemon: the NIC has %d bytes mapped already", total-bytes)
	}
	return nil
}

// give returns a reservation.
func (b *budget) give(bytes int64) {
	b.maps.Add(-1)
	b.bytes.Add(-bytes)
}
