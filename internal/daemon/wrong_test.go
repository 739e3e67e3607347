package daemon_test

import (
	"errors"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

// errnoOf is the errno that an error of verbs has, EBADF for an object that is closed, and 0 for
// none.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.Is(err, verbs.ErrClosed) {
		return unix.EBADF
	}
	_ = errors.As(err, &errno)
	return errno
}

// attempt is a call that has to fail, with one of a few numbers.
type attempt struct {
	name   string
	try    func() error
	errnos []syscall.Errno
}

func checkAttempts(t *testing.T, list []attempt) {
	t.Helper()
	for _, a := range list {
		err := a.try()
		if !slices.Contains(a.errnos, errnoOf(err)) || err.Error() == "" {
			t.Errorf("%s: %v, want one of %v", a.name, err, a.errnos)
		}
	}
}

var invalid = []syscall.Errno{unix.EINVAL}

// only keeps the error of a call.
func only[T any](_ T, err error) error { return err }

func TestVerbs_SizesOutOfRange_Refused(t *testing.T) {
	a, b := pair(t, startLocal(t), 4096, true)
	dm, err := a.ctx.AllocDeviceMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	qp := func(c verbs.QPConfig) func() error {
		c.SendCQ = a.cq
		return func() error { return only(a.pd.CreateQP(c)) }
	}
	cq := func(n int) func() error {
		return func() error { return only(a.ctx.CreateCQ(verbs.CQConfig{Entries: n})) }
	}
	memory := func(n int) func() error {
		return func() error { return only(a.pd.AllocMemory(n, allRights)) }
	}
	device := func(off, n int) func() error {
		return func() error { return only(a.pd.RegisterDevice(dm, off, n, allRights)) }
	}
	checkAttempts(t, []attempt{
		{"CQ of -1", cq(-1), invalid},
		{"CQ of 2^40", cq(1 << 40), invalid},
		{"resize to 0", func() error { return a.cq.Resize(0) }, invalid},
		{"resize to -1", func() error { return a.cq.Resize(-1) }, invalid},
		{"moderate by 2^33", func() error { return a.cq.Moderate(1<<33, 0) }, invalid},
		{"moderate by -1 s", func() error { return a.cq.Moderate(1, -time.Second) }, invalid},
		{"memory of -1", memory(-1), invalid},
		{"memory of 2^62", memory(1 << 62), []syscall.Errno{unix.EINVAL, unix.ENOMEM, unix.EFBIG}},
		{"no memory", func() error { return only(a.pd.Register(nil, allRights)) }, invalid},
		{"device memory of -1", func() error { return only(a.ctx.AllocDeviceMemory(-1)) }, invalid},
		{"much device memory", func() error {
			return only(a.ctx.AllocDeviceMemory(math.MaxInt))
		}, invalid},
		{"device memory before its start", device(-1, 8), invalid},
		{"negative device memory", device(0, -8), invalid},
		{"device memory beyond its end", device(4090, 8), invalid},
		{"window of type 9", func() error { return only(a.pd.AllocWindow(9)) }, invalid},
		{"SRQ of 2^31", func() error {
			return only(a.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 1 << 31}))
		}, invalid},
		{"sends of -1", qp(verbs.QPConfig{Type: rdma.QPTypeRC, MaxSendWR: -1}), invalid},
		{"entries of 2^33", qp(verbs.QPConfig{Type: rdma.QPTypeRC, MaxRecvSGE: 1 << 33}), invalid},
		{"inline of 2^20", qp(verbs.QPConfig{Type: rdma.QPTypeRC, MaxInline: 1 << 20}), invalid},
		{"QP type 99", qp(verbs.QPConfig{Type: 99}), invalid},
		{"raw packets", qp(verbs.QPConfig{Type: 8}), []syscall.Errno{unix.EOPNOTSUPP}},
		{"no CQ", func() error {
			return only(a.pd.CreateQP(verbs.QPConfig{Type: rdma.QPTypeRC}))
		}, invalid},
		{"AH to nowhere", func() error {
			return only(a.pd.CreateAH(verbs.AHAttr{SGIDIndex: 200}))
		}, invalid},
		{"port 9", func() error { return only(a.ctx.Port(9)) }, invalid},
		{"multicast on RC", func() error { return a.qp.AttachMulticast(verbs.GID{0: 0xff}) }, invalid},
		{"state 77", func() error {
			return a.qp.Modify(verbs.QPAttr{State: 77}, verbs.QPAttrState)
		}, invalid},
		{"attributes of nothing", func() error { return a.qp.Modify(verbs.QPAttr{}, 1<<31) }, invalid},
	})
	exchange(t, a, b)
}

func TestVerbs_ObjectsOfOthersAndClosed_Refused(t *testing.T) {
	a, b := pair(t, startLocal(t), 4096, true)
	gone := newEnd(t, a.ctx, rdma.QPTypeRC, 64, true)
	srq, err := gone.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 4})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(gone.qp.Close(), srq.Close(), gone.mr.Close(), gone.cq.Close(), gone.pd.Close())
	if err != nil {
		t.Fatal(err)
	}
	closed := []syscall.Errno{unix.EBADF, unix.EINVAL}
	with := func(pd *verbs.PD, c verbs.QPConfig) func() error {
		c.Type = rdma.QPTypeRC
		return func() error { return only(pd.CreateQP(c)) }
	}
	bare := verbs.SendWR{Opcode: rdma.WRSend}
	checkAttempts(t, []attempt{
		{"QP with another's CQ", with(a.pd, verbs.QPConfig{SendCQ: b.cq}), invalid},
		{"QP with a closed CQ", with(a.pd, verbs.QPConfig{SendCQ: gone.cq}), closed},
		{"QP with a closed SRQ", with(a.pd, verbs.QPConfig{SendCQ: a.cq, SRQ: srq}), closed},
		{"QP in a closed PD", with(gone.pd, verbs.QPConfig{SendCQ: a.cq}), closed},
		{"memory in a closed PD", func() error {
			return only(gone.pd.AllocMemory(64, allRights))
		}, closed},
		{"window in a closed PD", func() error {
			return only(gone.pd.AllocWindow(verbs.MWType2))
		}, closed},
		{"send on a closed QP", func() error { return only(gone.qp.PostSend(bare)) }, closed},
		{"receive on a closed QP", func() error {
			return only(gone.qp.PostRecv(verbs.RecvWR{}))
		}, closed},
		{"receive on a closed SRQ", func() error { return only(srq.PostRecv(verbs.RecvWR{})) }, closed},
		{"limit of a closed SRQ", func() error { return srq.SetLimit(1) }, closed},
		{"poll of a closed CQ", func() error {
			return only(gone.cq.Poll(make([]verbs.WC, 1)))
		}, closed},
		{"notice of a closed CQ", func() error { return gone.cq.RequestNotify(false) }, closed},
		{"resize of a closed CQ", func() error { return gone.cq.Resize(100) }, closed},
		{"state of a closed QP", func() error { return gone.qp.ToError() }, closed},
		{"attributes of a closed QP", func() error { return only(gone.qp.Query()) }, closed},
		{"end of a PD in use", a.pd.Close, []syscall.Errno{unix.EBUSY}},
		{"end of a CQ in use", a.cq.Close, []syscall.Errno{unix.EBUSY}},
	})
	exchange(t, a, b)
}
