package interop

import (
	"testing"
)

type wiretap struct{}

func (w *wiretap) begin()                       {}
func newWiretap(t *testing.T, l *link) *wiretap { return &wiretap{} }
