package check

import (
	"errors"
	"strings"
	"testing"
)

// lives are what may and may not happen to an identifier: states that the program moves it to, and
// events.
//
//tidy:table
var lives = []struct {
	name string
	live func(e *End)
	want string // in the failure; empty: there is none
}{
	{"active", func(e *End) {
		e.Move(EndResolving)
		e.Take(AddrError, -113)
		e.Move(EndResolving)
		e.Take(AddrResolved, 0)
		e.Move(EndRouting)
		e.Take(RouteResolved, 0)
		e.Move(EndAsking)
		e.Take(ConnectResponse, 0)
		e.Agrees("establish", true, nil)
		e.Move(EndUp)
		e.Take(Disconnected, -110)
		e.Take(TimewaitExit, 0)
	}, ""},
	{"passive", func(e *End) {
		e.Move(EndRequested)
		e.Move(EndAccepted)
		e.Take(Established, 0)
		e.Take(Disconnected, 0)
	}, ""},
	{"rejected", func(e *End) { e.Move(EndAsking); e.Take(Rejected, 28) }, ""},
	{"two outcomes", func(e *End) {
		e.Move(EndAsking)
		e.Take(Rejected, 28)
		e.Take(Unreachable, -110)
	}, "when the end is over"},
	{"established twice", func(e *End) {
		e.Move(EndAccepted)
		e.Take(Established, 0)
		e.Take(Established, 0)
	}, "when the end is up"},
	{"TIMEWAIT without a connection", func(e *End) {
		e.Move(EndAsking)
		e.Take(TimewaitExit, 0)
	}, "when the end is asking"},
	{"an event before the first call", func(e *End) { e.Take(AddrResolved, 0) }, "is idle"},
	{"a rejection without a reason", func(e *End) {
		e.Move(EndAsking)
		e.Take(Rejected, 0)
	}, "has status 0"},
	{"success with a status", func(e *End) {
		e.Move(EndAccepted)
		e.Take(Established, -5)
	}, "has status -5"},
	{"refused for nothing", func(e *End) {
		e.Move(EndAnswered)
		e.Agrees("establish", true, errors.New("no"))
	}, "establish while the end is answered: no"},
	{"granted for nothing", func(e *End) { e.Agrees("establish", false, nil) }, "is idle: <nil>"},
}

func TestEnd_Lives_AreJudged(t *testing.T) {
	for _, l := range lives {
		var court Court
		l.live(&End{Court: &court, Name: "end"})
		got := strings.Join(court.Failures(), "; ")
		if l.want == "" && got != "" || !strings.Contains(got, l.want) {
			t.Errorf("%s: found %q, want %q", l.name, got, l.want)
		}
	}
}
