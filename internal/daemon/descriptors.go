package daemon

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

const (
	// descriptorsMin is what a NIC needs for its own sockets and one program. With fewer it would
	// let nobody in, for as long as it runs.
	descriptorsMin = 48
	// descriptorsReserved are, where the limit is high enough, left for programs to come: one that
	// makes channels without end does not keep the others out.
	descriptorsReserved = 256
)

func checkDescriptors() error {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= descriptorsMin {
		return nil
	}
	return fmt.Errorf("daemon: a NIC may open %d files here and needs %d, and some more for each"+
		" program: raise the limit (ulimit -n)", limit.Cur, descriptorsMin)
}

// mayKeep refuses a descriptor that the NIC would keep for a program's object, where few are left.
// The kernel gives the lowest number that is free, so that a high one tells how many are open.
func mayKeep(fd int) *rdma.Refusal {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return nil
	}
	if most := keptBelow(limit.Cur); uint64(fd) >= most {
		return rdma.Refuse(unix.EMFILE, fmt.Sprintf("the NIC has %d descriptors open and keeps the"+
			" rest for other programs (ulimit -n)", most))
	}
	return nil
}

// keptBelow is where numbers begin that are left for others.
func keptBelow(limit uint64) uint64 { return limit - min(limit/4, descriptorsReserved) }

// streamDescriptorMax is where the numbers end that connections of peers may take, who are
// strangers: they leave another share to the programs of this host.
func streamDescriptorMax() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(keptBelow(keptBelow(limit.Cur)), math.MaxInt32))
}

// eventPipe makes the pipe of a channel, whose write end the NIC keeps.
func eventPipe() (read, write int, r *rdma.Refusal) {
	read, write, err := shm.Pipe()
	if err != nil {
		return -1, -1, rdma.Refuse(unix.EMFILE, err.Error())
	}
	if r = mayKeep(write); r != nil {
		_, _ = unix.Close(read), unix.Close(write)
	}
	return read, write, r
}
