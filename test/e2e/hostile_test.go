package e2e

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	hostile   = ownProgram{name: "hostile", libraries: "-libverbs"}
	hostileCM = ownProgram{name: "hostilecm", libraries: "-libverbs -lrdmacm"}
)

// TestHostile_RandomCalls_OthersUndisturbed lets programs call verbs and rdma_cm anyhow, while
// another one passes data and checks it. What programs have made is gone in the end.
func TestHostile_RandomCalls_OthersUndisturbed(t *testing.T) {
	seeds, steps := 6, "4000"
	if os.Getenv("RNIC_E2E_ALL") != "" {
		seeds, steps = 60, "20000"
	}
	m := anyMachine(t)
	nic := m.startNIC(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	m.stdin = read
	other := m.run(t, many.build(t), "32")
	m.stdin = nil
	answers := 1
	await := func() {
		t.Helper()
		until(t, "the other program has passed data", func() bool {
			return other.hasEnded() || strings.Count(other.stdout.String(), "\n") == answers
		})
		if other.hasEnded() {
			out := other.end(t)
			t.Fatalf("the other program ended: status %d, %q, %q", out.status, out.stdout, out.stderr)
		}
	}
	await()
	fds := descriptors(t, nic.pid())
	m.env = append(m.env, "MALLOC_PERTURB_=165") // memory that was freed is something else at once
	for seed := range seeds {
		args := []string{hostile.build(t), strconv.Itoa(seed/2 + 1), steps}
		if seed%2 == 1 {
			args = []string{hostileCM.build(t), args[1], steps, strconv.Itoa(newPort())}
		}
		p := m.run(t, args...)
		for !p.hasEnded() {
			if _, err := io.WriteString(write, "work\n"); err != nil {
				t.Fatal(err)
			}
			answers++
			await()
			time.Sleep(5 * time.Millisecond)
		}
		if out := p.end(t); out.status != 0 || out.stderr != "" {
			t.Errorf("%v: status %d, %s\n%s", args, out.status, out.stdout, out.stderr)
		}
	}
	until(t, "everything is gone but the other program's", func() bool {
		u := m.users(t)
		return len(u.Contexts) == 1 && len(u.CMIDs) == 0 && descriptors(t, nic.pid()) <= fds
	})
}

// TestHostile_NICKilled_ProgramsCleanUp: what a program has made can be destroyed although there is
// no NIC any more, and no call waits for it.
func TestHostile_NICKilled_ProgramsCleanUp(t *testing.T) {
	for _, args := range [][]string{
		{hostile.build(t), "1", "200000", "doomed"},
		{hostileCM.build(t), "1", "100000", strconv.Itoa(newPort()), "doomed"},
	} {
		m := anyMachine(t)
		nic := m.startNIC(t)
		m.env = append(m.env, "MALLOC_PERTURB_=165")
		p := m.run(t, args...)
		until(t, "the program has opened the device", func() bool { return len(m.contexts(t)) > 0 })
		nic.kill()
		if p.hasEnded() {
			t.Logf("%v had ended before", args)
		}
		if out := p.endWithin(t, 2*patience); out.status != 0 {
			t.Errorf("%v: status %d, %s\n%s", args, out.status, out.stdout, tail(out.stderr, 20))
		}
	}
}
