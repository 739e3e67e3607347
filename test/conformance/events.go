package conformance

import (
	"testing"

	"github.com/softrnic/softrnic/verbs"
)

// runEvents causes what a program hears of only by an asynchronous event (IBTA 11.6.3).
func runEvents(t *testing.T, f Fabric) {
	t.Run("AccessError", func(t *testing.T) {
		a, b := f.Connect(t, Link{Type: verbs.QPTypeRC})
		wr := verbs.SendWR{ID: 1, Opcode: verbs.WRWrite, Inline: []byte("x"), RKey: 0xdead00}
		if _, err := a.Send(wr); err != nil {
			t.Fatal(err)
		}
		if isAcked(f) {
			if wc := next(t, a); wc.Status != verbs.WCRemAccessErr {
				t.Fatalf("%+v", wc)
			}
		}
		if got := b.Event(t); got != verbs.EventQPAccessErr {
			t.Errorf("the responder hears of %v", got)
		}
	})
	t.Run("LastWQE", func(t *testing.T) {
		require(t, f, FeatureSRQ)
		_, b := f.Connect(t, Link{Type: verbs.QPTypeRC, B: EndConfig{UseSRQ: true}})
		b.Fail(t)
		if got := b.Event(t); got != verbs.EventQPLastWQEReached {
			t.Errorf("a queue pair with shared receives hears of %v", got)
		}
	})
}
