package verbs

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// TestSizes_BelowZero_AreNamedAsTheyWereGiven.
func TestSizes_BelowZero_AreNamedAsTheyWereGiven(t *testing.T) {
	r := newRig(t, QPConfig{})
	for want, call := range map[string]func() error{
		"Entries is -1": func() error { _, err := r.ctx.CreateCQ(CQConfig{Entries: -1}); return err },
		"MaxSendWR is -5": func() error {
			_, err := r.pd.CreateQP(QPConfig{Type: QPTypeRC, SendCQ: r.cq, MaxSendWR: -5})
			return err
		},
		"MaxWR is -2":       func() error { _, err := r.pd.CreateSRQ(SRQConfig{MaxWR: -2}); return err },
		"of entries is -30": func() error { return r.cq.Resize(-30) },
	} {
		if err := call(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
