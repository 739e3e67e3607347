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

// TestLimits_OfAProgram_AreTold: what the operator allows is what a program sees as the device's,
// and what it is refused beyond that is told afterwards.
func TestLimits_OfAProgram_AreTold(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t, "--limit", "qps=5,mrs=3,queue-memory=3000000")
	seen := m.run(t, "ibv_devinfo", "-v").succeed(t).stdout
	for _, want := range []string{"max_qp:\t\t\t\t5\n", "max_mr:\t\t\t\t3\n"} {
		if !strings.Contains(seen, want) {
			t.Errorf("ibv_devinfo does not say %q:\n%s", want, seen)
		}
	}
	out := m.run(t, many.build(t), "20").end(t)
	if out.status != 1 || !strings.Contains(out.stderr, "ibv_create_qp: Cannot allocate memory") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
	causes := m.start(t, rnic, "ps", "--errors").succeed(t).stdout
	for _, want := range []string{
		"ibv_create_qp failed with ENOMEM", "limit of 5 queue pairs a program",
	} {
		if !strings.Contains(causes, want) {
			t.Errorf("ps --errors does not say %q:\n%s", want, causes)
		}
	}
	told := m.start(t, rnic, "devinfo", "-v").succeed(t).stdout
	if !strings.Contains(told, "limits of one program") || !strings.Contains(told, "3000000") {
		t.Errorf("devinfo -v does not tell the limits:\n%s", told)
	}
}
