package daemon

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/verbs"
)

type embedded struct{ d *Daemon }

func (e embedded) Connect(context.Context) (*net.UnixConn, error) { return e.d.Connect() }

type victim struct {
	ctx *verbs.Context
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

// newVictim is connected to itself.
func newVictim(t *testing.T, d *Daemon) *victim {
	t.Helper()
	v := new(victim)
	var pd *verbs.PD
	var local verbs.Endpoint
	for _, step := range []func() error{
		func() (err error) {
			v.ctx, err = verbs.Open(t.Context(), "", verbs.WithConnector(embedded{d}))
			return err
		},
		func() (err error) { pd, err = v.ctx.AllocPD(); return err },
		func() (err error) { v.cq, err = v.ctx.CreateCQ(verbs.CQConfig{Entries: 16}); return err },
		func() (err error) {
			v.qp, err = pd.CreateQP(verbs.QPConfig{Type: rdma.QPTypeRC, SendCQ: v.cq})
			return err
		},
		func() (err error) {
			v.mr, err = pd.AllocMemory(1<<16, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
			return err
		},
		func() (err error) { local, err = v.qp.Endpoint(); return err },
		func() error { return v.qp.ConnectTo(local) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = v.ctx.Close() })
	return v
}

// write writes within the victim's own region and reports whether that completed.
func (v *victim) write(t *testing.T) bool {
	t.Helper()
	_, err := v.qp.PostSend(verbs.SendWR{
		Opcode: rdma.WRWrite, Flags: rdma.SendSignaled, SGE: v.mr.SGE(0, 1<<15),
		RemoteAddr: v.mr.Addr() + 1<<15, RKey: v.mr.RKey(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var wcs [1]verbs.WC
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		n, err := v.cq.Poll(wcs[:])
		if err != nil {
			return false
		}
		if n == 1 {
			return wcs[0].Status == rdma.WCSuccess
		}
		select {
		case <-v.ctx.Dead():
			return false
		default:
			runtime.Gosched()
		}
	}
	t.Fatal("neither completed nor dead")
	return false
}

// Seals keep a program from truncating its memory under the NIC, but the kernel may have no page
// left to put behind a mapping. Then that program loses its device, and nobody else anything.
func TestLane_FaultInMappedMemory_EndsThatSessionOnly(t *testing.T) {
	d, err := Start(t.Context(), Config{Embedded: true, NoNetwork: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	v, other := newVictim(t, d), newVictim(t, d)
	if !v.write(t) || !other.write(t) {
		t.Fatal("no traffic before the fault")
	}
	d.lane.do(func(clock.Time) {
		for s := range d.lane.sessions {
			if s.context != nil && s.context.ID() == firstContext(d) {
				for _, segs := range s.mapped {
					// Stands in for a page that cannot be had: the access raises a signal.
					b := segs[0].Mapped
					if err := unix.Mprotect(b, unix.PROT_NONE); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
	if v.write(t) {
		t.Error("a write to memory that faults succeeded")
	}
	select {
	case <-v.ctx.Dead():
	case <-time.After(10 * time.Second):
		t.Error("the program was not told")
	}
	if !other.write(t) {
		t.Error("another program was hit")
	}
	s, ok := d.Status()
	if !ok || s.Lane["evicted_sessions"] != 1 || len(s.Contexts) != 1 {
		t.Errorf("evicted %d, contexts %d", s.Lane["evicted_sessions"], len(s.Contexts))
	}
}

// firstContext is the context that was opened first. Lane.
func firstContext(d *Daemon) uint32 { return d.lane.nic.Status().Contexts[0].ID }
