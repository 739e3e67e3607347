package verbs

import (
	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ring"
)

// Clock reads the NIC's clock, in nanoseconds, as WC.Timestamp has it.
func (c *Context) Clock() uint64 {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) // a clock that every Linux has
	return uint64(at.Nano()) - ring.Word64(c.lane.Bytes(), abi.OffLaneOrigin).Load()
}
