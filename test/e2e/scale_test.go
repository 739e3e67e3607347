package e2e

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	many   = ownProgram{name: "many", libraries: "-libverbs"}
	cycles = ownProgram{name: "cycles", libraries: "-libverbs"}
)

// anonymous is the memory of a process that is its own, in KiB: of a NIC everything but the rings,
// which are shared with programs.
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no RssAnon in\n%s", text)
	return 0
}

// TestMany_10000QPs_OneProgram connects 10,000 queue pairs of one program, and passes data over
// each of them twice.
func TestMany_10000QPs_OneProgram(t *testing.T) {
	const count, most = 10000, 8 // KiB a queue pair
	m := anyMachine(t)
	nic := m.startNIC(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	before := anonymous(t, nic.pid())
	m.stdin = read
	p := m.run(t, many.build(t), strconv.Itoa(count))
	m.stdin = nil
	say := func(line string) {
		t.Helper()
		deadline := time.Now().Add(4 * patience)
		for !strings.HasSuffix(p.stdout.String(), line) {
			if p.hasEnded() || time.Now().After(deadline) {
				t.Fatalf("many said %q, %q", p.stdout.String(), p.stderr.String())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	say("idle\n")
	idle := anonymous(t, nic.pid()) - before
	for _, answers := range []string{"idle\nok\n", "ok\nok\n"} {
		if _, err := io.WriteString(write, "work\n"); err != nil {
			t.Fatal(err)
		}
		say(answers)
	}
	worked := anonymous(t, nic.pid()) - before
	t.Logf("%d KiB for %d queue pairs, %d after they have worked", idle, count, worked)
	if idle > most*count || worked > most*count {
		t.Errorf("%d KiB for %d queue pairs, %d after they have worked; at most %d", idle, count,
			worked, most*count)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if out := p.endWithin(t, 2*patience); out.status != 0 || !strings.HasSuffix(out.stdout, "done\n") {
		t.Errorf("status %d, %q, %q", out.status, out.stdout, out.stderr)
	}
}

// TestCycles_EveryObject_ProgramAndNICDoNotGrow makes one of everything and destroys it, 2,000
// times; RNIC_E2E_ALL=1 does it 200,000 times.
func TestCycles_EveryObject_ProgramAndNICDoNotGrow(t *testing.T) {
	rounds, each, limit := 4, 500, 3*patience
	if os.Getenv("RNIC_E2E_ALL") != "" {
		rounds, each, limit = 20, 10000, 2*time.Hour
	}
	m := anyMachine(t)
	nic := m.startNIC(t)
	fds, memory := descriptors(t, nic.pid()), 0
	p := m.run(t, cycles.build(t), strconv.Itoa(rounds), strconv.Itoa(each))
	for i := range rounds {
		deadline := time.Now().Add(limit)
		for strings.Count(p.stdout.String(), "\n") <= i && !p.hasEnded() {
			if time.Now().After(deadline) {
				t.Fatalf("round %d takes too long: %q", i, p.stdout.String())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if i == 0 {
			memory = anonymous(t, nic.pid())
		}
	}
	grown := anonymous(t, nic.pid()) - memory
	out := p.end(t)
	lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
	if out.status != 0 || len(lines) != rounds {
		t.Fatalf("status %d, %q, %q", out.status, out.stdout, out.stderr)
	}
	var first, last [3]int // KiB, mappings, descriptors
	for _, row := range []struct {
		line string
		into *[3]int
	}{{lines[0], &first}, {lines[rounds-1], &last}} {
		if _, err := fmt.Sscan(row.line, &row.into[0], &row.into[1], &row.into[2]); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("program from %v to %v; NIC grown by %d KiB", first, last, grown)
	// The Go runtime gives memory back when it likes.
	if last[0] > first[0]+256 || last[1] > first[1]+2 || last[2] > first[2] || grown > 16384 {
		t.Errorf("program grown from %v to %v, NIC by %d KiB", first, last, grown)
	}
	until(t, "the NIC has its descriptors back", func() bool {
		return descriptors(t, nic.pid()) <= fds
	})
}
