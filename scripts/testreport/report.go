package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// event is one line of "go test -json" (see "go doc test2json").
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Elapsed    float64
	Output     string
	OutputType string
}

// report follows the events and writes what matters.
type report struct {
	out     *bufio.Writer
	output  map[string][]string // by test, of those that run
	parents map[string]bool     // tests that have sub-tests, which are counted instead
	skips   map[string][]string // tests by reason
	passed  int
	failed  int
	skipped int
	// failures are the tests that failed, second those of them that passed when run once more.
	failures []failure
	second   []string
}

func newReport(w io.Writer) *report {
	return &report{
		out:     bufio.NewWriter(w),
		output:  map[string][]string{},
		parents: map[string]bool{},
		skips:   map[string][]string{},
	}
}

func (r *report) ran() int { return r.passed + r.failed }

// read handles events until the end. A line that is no event, such as what a test binary writes
// past its framework, is passed on.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.printf("%s\n", lines.Bytes())
			continue
		}
		r.handle(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	return nil
}

func (r *report) handle(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "run":
		for parent := path.Dir(e.Test); parent != "."; parent = path.Dir(parent) {
			r.parents[e.Package+" "+parent] = true
		}
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "build-output":
		r.printf("%s", e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e, key)
		}
		delete(r.output, key)
		_ = r.out.Flush() // the next write meets the same error
	}
}

// slowSeconds is how long a test takes that is worth a line of its own, so that whoever waits sees
// what for. Sub-tests count to the second level, lest their parents repeat them.
const slowSeconds = 10

func (r *report) endTest(e event, key string) {
	counts := !r.parents[key]
	if e.Elapsed >= slowSeconds && strings.Count(e.Test, "/") <= 1 {
		r.printf("    %s after %.0fs: %s.%s\n", e.Action, e.Elapsed, path.Base(e.Package), e.Test)
	}
	switch {
	case e.Action == "fail":
		r.printf("%s", strings.Join(r.output[key], ""))
		if counts {
			r.failed++
			r.fail(e)
		}
	case e.Action == "skip":
		r.skipped++
		reason := skipReason(r.output[key])
		r.skips[reason] = append(r.skips[reason], path.Base(e.Package)+"."+e.Test)
	case counts:
		r.passed++
	}
}

// fail remembers a failure. What crashed a sub-test may be in the output of its parents or package.
func (r *report) fail(e event) {
	crashed := hasCrashed(r.output[e.Package+" "])
	for at := e.Test; at != "" && at != "."; at = path.Dir(at) {
		crashed = crashed || hasCrashed(r.output[e.Package+" "+at])
	}
	r.failures = append(r.failures, failure{pkg: e.Package, test: e.Test, crashed: crashed})
}

// skipReason takes the message of t.Skip out of a test's output: the last line that names a
// source file, without the name.
func skipReason(output []string) string {
	for _, line := range slices.Backward(output) {
		line = strings.TrimSpace(line)
		if at, text, ok := strings.Cut(line, ": "); ok && strings.Contains(at, ".go:") {
			return text
		}
	}
	return "no reason given"
}

func (r *report) endPackage(e event) {
	// Packages without tests end with "skip".
	switch e.Action {
	case "pass":
		r.printf("ok  \t%s\t%.3fs\n", e.Package, e.Elapsed)
	case "fail":
		r.printf("%s", strings.Join(r.output[e.Package+" "], ""))
		// Without a test that failed it did not build, or ended outside a test.
		if !slices.ContainsFunc(r.failures, func(f failure) bool { return f.pkg == e.Package }) {
			r.failed++
			r.fail(e)
		}
	}
}

// finish writes what was skipped, and the counts.
func (r *report) finish() {
	if r.skipped > 0 {
		r.printf("\nskipped:\n")
		for _, reason := range slices.Sorted(maps.Keys(r.skips)) {
			r.printf("  %s\n", reason)
			for _, test := range r.skips[reason] {
				r.printf("      %s\n", test)
			}
		}
	}
	if len(r.second) > 0 {
		r.printf("\npassed only when run once more, their failures are above:\n")
		for _, test := range r.second {
			r.printf("      %s\n", test)
		}
	}
	r.printf("\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	_ = r.out.Flush() // nothing is left to be told to
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }
