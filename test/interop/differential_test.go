package interop

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Each program has a number and this many steps. Nothing may happen for a while until a step is
// over: longer in the guest, whose processor is emulated.
const (
	differentialSeeds = 24
	differentialSteps = 60
	hostSettle        = "10"
	guestSettle       = "40"
	differentialLanes = 4 // programs at once: they mostly sleep
)

// TestDifferential_RandomPrograms_SameAsKernel plays random programs of verbs on a SoftRNIC and on
// the kernel's device, each within its own end, and compares what they tell, line by line. What is
// allowed to differ is in differences. RNIC_DIFFERENTIAL names other programs: "100" or "100-199".
func TestDifferential_RandomPrograms_SameAsKernel(t *testing.T) {
	img := requireInterop(t)
	first, last := differentialRange(t)
	g := bootGuest(t, img, 1500)
	h := newHost(t, g.ns, img.programs)
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

func compareProgram(t *testing.T, g *guest, h *host, seed int) {
	t.Helper()
	args := []string{"differential", fmt.Sprint(seed), fmt.Sprint(differentialSteps)}
	theirs := g.start(t, append(args, guestSettle)...)
	ours := h.start(t, append(args, hostSettle)...).end(t)
	if ours.Status != 0 {
		t.Fatalf("status %d %s\n%s", ours.Status, ours.Error, ours.Output)
	}
	kernel := theirs.end(t)
	if kernel.Status != 0 {
		t.Fatalf("the kernel: status %d %s\n%s", kernel.Status, kernel.Error, kernel.Output)
	}
	if dir := os.Getenv("RNIC_DIFFERENTIAL_DIR"); dir != "" {
		_ = os.WriteFile(fmt.Sprintf("%s/%d.ours", dir, seed), []byte(ours.Output), 0o600)
		_ = os.WriteFile(fmt.Sprintf("%s/%d.kernel", dir, seed), []byte(kernel.Output), 0o600)
	}
	compareSteps(t, ours.Output, kernel.Output)
}

// compareSteps says which steps differ, and how.
func compareSteps(t *testing.T, ours, kernel string) {
	t.Helper()
	o, k := stepsOf(ours), stepsOf(kernel)
	if len(o) != len(k) {
		t.Errorf("%d steps, the kernel has %d", len(o), len(k))
	}
	for number, text := range o {
		if text != k[number] && !isAllowed(text, k[number]) {
			t.Errorf("step %s:\n%sthe kernel:\n%s", number, text, k[number])
		}
	}
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
