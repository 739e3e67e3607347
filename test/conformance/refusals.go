package conformance

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// Asker is a fabric that can be asked for a feature by its verbs alone, whether it has it or not.
type Asker interface {
	Ask(t *testing.T, feature Feature) error
}

// refusals are what a device answers who asks for what it has not.
var refusals = []struct {
	feature Feature
	errno   syscall.Errno
	says    string // what the reason holds, where there is more than an errno
}{
	{FeatureUC, syscall.EOPNOTSUPP, "has no UC queue pairs"},
	{FeatureUD, syscall.EOPNOTSUPP, "has no UD queue pairs"},
	{FeatureXRC, syscall.EOPNOTSUPP, "has no XRC"},
	{FeatureGroups, syscall.EOPNOTSUPP, ""},
	{FeatureAH, syscall.EOPNOTSUPP, ""},
	{FeatureManual, syscall.EINVAL, "iWARP connections are made by rdma_cm"},
}

// runRefusals asks for each feature: a fabric that has it grants it, and one that has not refuses
// with the errno that is documented (case W06), and disturbs nothing.
func runRefusals(t *testing.T, f Fabric) {
	asker, isAsker := f.(Asker)
	if !isAsker {
		t.Skip("unsupported: this fabric cannot be asked for what it has not")
	}
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
	for _, x := range refusals {
		t.Run(string(x.feature), func(t *testing.T) {
			err := asker.Ask(t, x.feature)
			switch {
			case f.Lacks(x.feature) == "":
				if err != nil {
					t.Errorf("refused: %v", err)
				}
			case !errors.Is(err, x.errno):
				t.Errorf("%v, want %v", err, x.errno)
			case err.Error() != x.errno.Error() && !strings.Contains(err.Error(), x.says):
				t.Errorf("%v, want a reason like %q", err, x.says)
			}
		})
	}
	if a.State() != verbs.QPStateRTS || b.State() != verbs.QPStateRTS {
		t.Errorf("a connection is in %v, %v", a.State(), b.State())
	}
}

// runPlacement writes and flushes what it wrote, and writes a word at once. Where there is no such
// operation the request fails before it is sent, and says so (IBTA 1.5, annex A19).
func runPlacement(t *testing.T, f Fabric) {
	require(t, f, FeatureFlushWR)
	for _, op := range []verbs.WROpcode{verbs.WRFlush, verbs.WRAtomicWrite} {
		t.Run(op.String(), func(t *testing.T) { place(t, f, op) })
	}
}

func place(t *testing.T, f Fabric, op verbs.WROpcode) {
	a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
	ra := a.Region(t, RegionConfig{Size: 4096, Access: verbs.AccessAll})
	rb := b.Region(t, RegionConfig{Size: 4096, Access: verbs.AccessAll})
	want := pattern(4096, 0x21)
	ra.Store(want)
	last := verbs.SendWR{
		ID: 2, Opcode: op, RemoteAddr: rb.Addr(), RKey: rb.RKey(), Flags: verbs.SendSignaled,
	}
	if op == verbs.WRFlush {
		last.Flush = &verbs.Flush{Length: 4096}
	} else {
		last.Inline = bytes.Repeat([]byte{0xa5}, 8)
	}
	_, err := a.Send(
		verbs.SendWR{
			ID: 1, Opcode: verbs.WRWrite, SGE: []verbs.SGE{ra.Piece(0, 4096)},
			RemoteAddr: rb.Addr(), RKey: rb.RKey(),
		}, last)
	if err != nil {
		t.Fatal(err)
	}
	status := verbs.WCSuccess
	if f.Lacks(FeatureFlush) != "" {
		status = verbs.WCLocQPOpErr
	}
	if wc := next(t, a); wc.ID != 2 || wc.Status != status {
		t.Fatalf("%+v: %v, want %v", wc, wc.Err(), status)
	}
	if status != verbs.WCSuccess {
		// The completion may be seen before the state that came with it.
		eventually(t, "a queue pair that was asked for what is not there is in ERR", func() bool {
			return a.State() == verbs.QPStateError
		})
		return
	}
	copy(want, last.Inline)
	compare(t, "written", rb.Load(), want)
}

// asks are how a Go program asks for a feature.
var asks = map[Feature]func(*testing.T, *GoFabric) error{
	FeatureUC: func(t *testing.T, f *GoFabric) error {
		_, err := f.spareQP(t, verbs.QPTypeUC)
		return err
	},
	FeatureUD: func(t *testing.T, f *GoFabric) error {
		_, err := f.spareQP(t, verbs.QPTypeUD)
		return err
	},
	FeatureXRC: func(t *testing.T, f *GoFabric) error {
		d, err := f.a.ctx.OpenXRCD(verbs.XRCDConfig{Create: true})
		if err == nil {
			closeAtEnd(t, d)
		}
		return err
	},
	FeatureGroups: func(t *testing.T, f *GoFabric) error {
		service := verbs.QPTypeUD
		if f.Lacks(FeatureUD) != "" {
			service = verbs.QPTypeRC
		}
		qp, err := f.spareQP(t, service)
		if err != nil {
			return err
		}
		group := verbs.GID{0: 0xff, 1: 0x0e, 10: 0xff, 11: 0xff, 12: 239, 15: 7}
		return errors.Join(qp.AttachMulticast(group), qp.DetachMulticast(group))
	},
	FeatureAH: func(t *testing.T, f *GoFabric) error {
		loopback := verbs.GID{10: 0xff, 11: 0xff, 12: 127, 15: 1}
		ah, err := f.a.pd.CreateAH(verbs.AHAttr{DGID: loopback, Port: 1})
		if err == nil {
			closeAtEnd(t, ah)
		}
		return err
	},
	FeatureManual: func(t *testing.T, f *GoFabric) error {
		qp, err := f.spareQP(t, verbs.QPTypeRC)
		if err != nil {
			return err
		}
		return connectToItself(qp)
	},
}

// Ask implements Asker.
func (f *GoFabric) Ask(t *testing.T, feature Feature) error {
	t.Helper()
	ask := asks[feature]
	if ask == nil {
		return errors.ErrUnsupported
	}
	return ask(t, f)
}

// spareQP makes a queue pair that connects to nobody.
func (f *GoFabric) spareQP(t *testing.T, service verbs.QPType) (*verbs.QP, error) {
	t.Helper()
	qp, err := f.a.pd.CreateQP(f.a.newEnd(t, EndConfig{}).config(service, EndConfig{}))
	if err == nil {
		closeAtEnd(t, qp)
	}
	return qp, err
}

// connectToItself takes a queue pair to RTS by the program's own hand.
func connectToItself(qp *verbs.QP) error {
	if point, err := qp.Endpoint(); err == nil {
		return qp.ConnectTo(point)
	}
	attr := verbs.QPAttr{Port: 1, PathMTU: verbs.MTU1024, DestQPN: qp.QPN()}
	if err := qp.ToInit(attr); err != nil {
		return err
	}
	return qp.ToRTR(attr)
}
