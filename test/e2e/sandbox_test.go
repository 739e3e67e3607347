package e2e

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var deny = ownProgram{name: "deny"}

// denied is the command line for a program that may not make some system calls.
func denied(t *testing.T, program []string, calls ...int) []string {
	t.Helper()
	numbers := strings.Trim(strings.ReplaceAll(fmt.Sprint(calls), " ", ","), "[]")
	return append([]string{deny.build(t), fmt.Sprint(int(unix.EPERM)), numbers}, program...)
}

// TestSandbox_NICWithoutSharedMemory_SaysWhy: it is nothing without.
func TestSandbox_NICWithoutSharedMemory_SaysWhy(t *testing.T) {
	m := anyMachine(t)
	args := denied(t, []string{rnic, "up"}, unix.SYS_MEMFD_CREATE)
	out := m.start(t, args[0], args[1:]...).end(t)
	if out.status != 1 || !strings.Contains(out.stderr, "memfd_create") ||
		!strings.Contains(out.stderr, "seccomp") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
}

// TestSandbox_NICWithoutProcessMemory_RegistrationSaysWhy, while it lets the program do all else.
func TestSandbox_NICWithoutProcessMemory_RegistrationSaysWhy(t *testing.T) {
	m := anyMachine(t)
	args := denied(t, []string{rnic, "up"}, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV)
	up := m.start(t, args[0], args[1:]...)
	until(t, "the NIC is ready", func() bool { return strings.Contains(up.stdout.String(), "ready") })
	out := m.run(t, cycles.build(t), "1", "1").end(t)
	if out.status != 1 || !strings.Contains(out.stderr, "forbids process_vm_readv") ||
		!strings.Contains(out.stderr, "ibv_reg_mr: Operation not permitted") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
}

// TestSandbox_LessThanUsual_StillWorks: what makes things faster or tidier is no condition.
func TestSandbox_LessThanUsual_StillWorks(t *testing.T) {
	program := cycles.build(t)
	m := anyMachine(t)
	args := denied(t, []string{rnic, "up"}, unix.SYS_PIDFD_OPEN, unix.SYS_SCHED_SETSCHEDULER,
		unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETATTR)
	up := m.start(t, args[0], args[1:]...)
	until(t, "the NIC is ready", func() bool { return strings.Contains(up.stdout.String(), "ready") })
	m.run(t, program, "1", "2").succeed(t)
	m.run(t, denied(t, []string{program, "1", "2"}, unix.SYS_MEMFD_CREATE)...).succeed(t)
}
