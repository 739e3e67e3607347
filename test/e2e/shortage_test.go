package e2e

import (
	"strings"
	"testing"
)

// TestShortage_NIC_SaysWhatToRaise starts NICs, in the foreground and for a program, where they may
// not have what they need.
func TestShortage_NIC_SaysWhatToRaise(t *testing.T) {
	for _, row := range []struct{ limit, command, want string }{
		{"ulimit -n 16", "up", "ulimit -n"},
		{"ulimit -n 40", "up", "ulimit -n"},
		{"ulimit -n 40", "run -- true", "ulimit -n"},
		{"ulimit -f 0", "up", "ulimit -f"},
	} {
		m := anyMachine(t)
		out := m.start(t, "sh", "-c", row.limit+"; exec "+rnic+" "+row.command).end(t)
		if out.status == 0 || out.status >= 128 || !strings.Contains(out.stderr, row.want) ||
			strings.Contains(out.stderr, "goroutine") {
			t.Errorf("%s; rnic %s: status %d, %q", row.limit, row.command, out.status, out.stderr)
		}
	}
}

// TestShortage_Program_IsToldAndNothingStays lets a program run out of descriptors in the middle.
func TestShortage_Program_IsToldAndNothingStays(t *testing.T) {
	m := anyMachine(t)
	nic := m.startNIC(t)
	m.env = append(m.env, "RNIC_VERBOSE=1")
	program := cycles.build(t)
	fds := descriptors(t, nic.pid())
	told := 0
	for n := 5; n < 14; n++ {
		limit := strings.Repeat("x", n) // the shell counts
		out := m.run(t, "sh", "-c", "ulimit -n ${#0}; exec "+program+" 1 3", limit).end(t)
		if out.status != 0 && out.status != 1 && out.status != 127 {
			t.Errorf("%d descriptors: status %d, %s", n, out.status, out.stderr)
		}
		if strings.Contains(out.stderr, "ulimit -n") {
			told++
		}
	}
	if told == 0 {
		t.Error("no program was told what to raise")
	}
	if out := m.run(t, program, "1", "3").end(t); out.status != 0 {
		t.Errorf("afterwards: status %d, %s", out.status, out.stderr)
	}
	until(t, "the NIC has its descriptors back", func() bool {
		return len(m.contexts(t)) == 0 && descriptors(t, nic.pid()) <= fds
	})
}

// TestShortage_ProgramMayWriteNoFile_StillWorks: registered memory stays where it is then.
func TestShortage_ProgramMayWriteNoFile_StillWorks(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	m.run(t, "sh", "-c", "ulimit -f 0; exec "+cycles.build(t)+" 1 3 2>&1 | cat").succeed(t)
}
