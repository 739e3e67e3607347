package softrnic_test

import (
	"errors"
	"testing"

	"github.com/softrnic/softrnic"
	"github.com/softrnic/softrnic/test/nictest"
	"github.com/softrnic/softrnic/verbs"
)

// TestClosed_EveryCall_SaysSo: not that the NIC knows no such handle.
func TestClosed_EveryCall_SaysSo(t *testing.T) {
	dev := open(t, verbs.WithConnector(nictest.Start(t, softrnic.Config{})))
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(verbs.CQConfig{})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeUD, SendCQ: cq})
	if err != nil {
		t.Fatal(err)
	}
	srq, err := pd.CreateSRQ(verbs.SRQConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time is nothing
		if err := errors.Join(qp.Close(), srq.Close(), cq.Close(), pd.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range map[string]func() error{
		"QP.Query":   func() error { _, err := qp.Query(); return err },
		"QP.Modify":  func() error { return qp.Modify(verbs.QPAttr{}, verbs.QPAttrState) },
		"QP.ToError": qp.ToError,
		"QP.ToReset": qp.ToReset,
		"QP.AttachMulticast": func() error {
			return qp.AttachMulticast(verbs.GID{0: 0xff, 15: 1})
		},
		"QP.PostSend":    func() error { _, err := qp.PostSend(verbs.SendWR{}); return err },
		"SRQ.SetLimit":   func() error { return srq.SetLimit(1) },
		"CQ.Moderate":    func() error { return cq.Moderate(1, 1) },
		"CQ.Resize":      func() error { return cq.Resize(1) },
		"PD.AllocMemory": func() error { _, err := pd.AllocMemory(10, 0); return err },
		"PD.Register":    func() error { _, err := pd.Register(make([]byte, 8), 0); return err },
		"PD.AllocNull":   func() error { _, err := pd.AllocNull(); return err },
		"PD.AllocWindow": func() error { _, err := pd.AllocWindow(verbs.MWType2); return err },
		"PD.CreateAH":    func() error { _, err := pd.CreateAH(verbs.AHAttr{}); return err },
		"PD.CreateSRQ":   func() error { _, err := pd.CreateSRQ(verbs.SRQConfig{}); return err },
		"PD.CreateQP": func() error {
			_, err := pd.CreateQP(verbs.QPConfig{Type: verbs.QPTypeRC, SendCQ: cq})
			return err
		},
	} {
		if err := call(); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
