package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Each program has a number and this many steps. Nothing may happen for a while until a step is
// over: longer in the guest, whose processor is emulated.
const (
	differentialSeeds = 20
	differentialSteps = 60
	hostSettle        = "10"
	guestSettle       = "40"
	differentialLanes = 4 // programs at once: they mostly sleep
	kernelAttempts    = 3
)

// TestDifferential_RandomPrograms_SameAsKernel plays random programs of verbs on a SoftRNIC and on
// the kernel's device, each within its own end, and compares what they tell, line by line. What is
// allowed to differ is in differences. RNIC_DIFFERENTIAL names other programs: "100" or "100-199".
func TestDifferential_RandomPrograms_SameAsKernel(t *testing.T) {
	img := requireInterop(t, rxe)
	first, last := differentialRange(t)
	g := bootGuest(t, img, 1500)
	h := newHost(t, g.ns, img)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the guest's console:\n%s", g.consoleText())
		}
	})
	lanes := make(chan struct{}, differentialLanes)
	t.Run("Seeds", func(t *testing.T) {
		for seed := first; seed <= last; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				lanes <- struct{}{}
				defer func() { <-lanes }()
				compareProgram(t, g, h, seed)
			})
		}
	})
}

func differentialRange(t *testing.T) (first, last int) {
	t.Helper()
	text := os.Getenv("RNIC_DIFFERENTIAL")
	if text == "" {
		return 1, differentialSeeds
	}
	from, to, isRange := strings.Cut(text, "-")
	first, err := strconv.Atoi(from)
	if err == nil && isRange {
		last, err = strconv.Atoi(to)
	} else {
		last = first
	}
	if err != nil {
		t.Fatalf("RNIC_DIFFERENTIAL=%s: %v", text, err)
	}
	return first, last
}

// compareProgram plays a program here once. On the kernel's device it is played again if something
// differs: on a busy machine the emulated one loses what it would not lose otherwise.
func compareProgram(t *testing.T, g *guest, h *host, seed int) {
	t.Helper()
	args := []string{"differential", fmt.Sprint(seed), fmt.Sprint(differentialSteps)}
	ours := played(t, h.start(t, append(args, hostSettle)...))
	keepTranscript(t, seed, "ours", ours)
	var found []string
	for range kernelAttempts {
		kernel := played(t, g.start(t, append(args, guestSettle)...))
		keepTranscript(t, seed, "kernel", kernel)
		if found = compareSteps(ours, kernel); len(found) == 0 {
			return
		}
	}
	t.Error(strings.Join(found, "\n"))
}

func played(t *testing.T, p *program) string {
	t.Helper()
	r := p.end(t)
	if r.Status != 0 {
		t.Fatalf("%s: status %d %s\n%s", p.name, r.Status, r.Error, r.Output)
	}
	return r.Output
}

func keepTranscript(t *testing.T, seed int, of, transcript string) {
	t.Helper()
	dir := os.Getenv("RNIC_DIFFERENTIAL_DIR")
	if dir == "" {
		return
	}
	name := filepath.Join(dir, fmt.Sprintf("%d.%s", seed, of))
	if err := os.WriteFile(name, []byte(transcript), 0o600); err != nil {
		t.Error(err)
	}
}

// compareSteps says which steps differ, and how.
func compareSteps(ours, kernel string) (found []string) {
	o, k := stepsOf(ours), stepsOf(kernel)
	for number := range max(len(o), len(k)) {
		text := o[fmt.Sprint(number)]
		other := k[fmt.Sprint(number)]
		if text == other {
			continue
		}
		allowed, ends := isAllowed(text, other)
		if !allowed {
			found = append(found, fmt.Sprintf("step %d:\n%sthe kernel:\n%s", number, text, other))
		}
		if ends {
			break
		}
	}
	return found
}

// stepsOf returns the lines of each step; each begins with the step's number.
func stepsOf(transcript string) map[string]string {
	steps := map[string]string{}
	for line := range strings.Lines(transcript) {
		number, words, _ := strings.Cut(line, " ")
		steps[number] += words
	}
	return steps
}
