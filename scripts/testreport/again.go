package main

import (
	"regexp"
	"slices"
	"strings"
)

// againMax is how many tests are run once more at most: when more fail, it was not chance.
const againMax = 3

// failure is a test that failed, without sub-tests that have failed.
type failure struct {
	pkg, test string
	crashed   bool // by a panic, or by a data race: that happened, whatever comes of another run
}

// hasCrashed reports output of a panic or of the race detector.
func hasCrashed(output []string) bool {
	return slices.ContainsFunc(output, func(line string) bool {
		return strings.Contains(line, "WARNING: DATA RACE") || strings.HasPrefix(line, "panic:")
	})
}

// runAgain runs tests that failed once more, each alone, and reports whether one has failed for
// good. What passes then is counted as passed, and finish names it.
func runAgain(report *report, args []string, failures []failure) (failed bool, err error) {
	isFinal := func(f failure) bool { return f.crashed || f.test == "" }
	n := len(failures)
	if n == 0 || n > againMax || slices.ContainsFunc(failures, isFinal) {
		return true, nil
	}
	for _, f := range slices.Clone(failures) {
		report.printf("\nonce more: %s %s\n", f.pkg, f.test)
		report.failed--
		passed := report.passed
		bad, err := runOnce(report, argumentsFor(args, f))
		if err != nil {
			return true, err
		}
		if bad || report.passed == passed {
			report.failed = max(report.failed, 1)
			failed = true
			continue
		}
		report.second = append(report.second, f.pkg+" "+f.test)
	}
	return failed, nil
}

// argumentsFor makes the arguments of "go test" that run one test of what args run.
func argumentsFor(args []string, f failure) []string {
	isOption := func(arg string) bool { return strings.HasPrefix(arg, "-") }
	var out []string
	for i, arg := range args {
		// The value of an option, as in "-timeout 30m", stands alone.
		if isOption(arg) || i > 0 && isOption(args[i-1]) && !isPackage(arg) {
			out = append(out, arg)
		}
	}
	levels := strings.Split(f.test, "/")
	for i, level := range levels {
		levels[i] = "^" + regexp.QuoteMeta(level) + "$"
	}
	return append(out, "-count=1", "-run", strings.Join(levels, "/"), f.pkg)
}

// isPackage tells packages from values of options.
func isPackage(arg string) bool { return strings.HasPrefix(arg, ".") || strings.Contains(arg, "/") }
