package verbs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Prefetch pages memory in before it is used, so that no transfer waits for it: for reading, or for
// writing too. The pieces lie in regions with AccessOnDemand (ibv_advise_mr(3)).
func (p *PD) Prefetch(pieces []SGE, write bool) error {
	const op = "prefetch memory"
	req := abi.AdviseMRReq{
		PD: p.handle, Advice: uint32(rdma.AdvicePrefetch), Flags: rdma.AdviceFlush,
		NumSGE: uint32(len(pieces)),
	}
	if write {
		req.Advice = uint32(rdma.AdvicePrefetchWrite)
	}
	body := ctl.Bytes(&req)
	list := make([]abi.SGE, len(pieces))
	for i, s := range pieces {
		list[i] = abi.SGE{Addr: s.Addr, Length: s.Length, LKey: uint32(s.LKey)}
	}
	ranges, err := callList[abi.SGE](p.ctx, request{
		op: op, code: abi.OpAdviseMR, body: append(body, ctl.ListBytes(list)...), of: p,
	})
	if err != nil {
		return err
	}
	for _, s := range ranges {
		if err := populate(s.Addr, uint64(s.Length), write); err != nil {
			return &OpError{Op: op, Err: err}
		}
	}
	return nil
}

// populate brings pages in. A kernel that cannot (before 5.14) leaves them for the first access.
func populate(addr, n uint64, write bool) error {
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	if n == 0 {
		return nil
	}
	page := uint64(os.Getpagesize())
	start := addr &^ (page - 1)
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(addr+n-start),
		uintptr(advice))
	switch {
	case errno == 0 || errors.Is(errno, unix.EINVAL):
		return nil
	case errors.Is(errno, unix.ENOMEM): // nothing is mapped there
		return unix.EFAULT
	}
	return errno
}
