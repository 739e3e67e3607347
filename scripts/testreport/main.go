package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
)

func main() {
	args, isAgain := os.Args[1:], false
	if len(args) > 0 && args[0] == "-again" {
		args, isAgain = args[1:], true
	}
	failed, err := run(args, isAgain)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	case failed:
		os.Exit(1)
	}
}

// run does each run of "go test" in turn and reports whether anything failed. With isAgain, a few
// tests that failed are run once more.
func run(args []string, isAgain bool) (failed bool, err error) {
	report := newReport(os.Stdout)
	for _, args := range splitRuns(args) {
		before := len(report.failures)
		bad, err := runOnce(report, args)
		if err != nil {
			return true, err
		}
		if bad && isAgain {
			if bad, err = runAgain(report, args, report.failures[before:]); err != nil {
				return true, err
			}
		}
		failed = failed || bad
	}
	report.finish()
	if report.ran() == 0 && !failed {
		return true, errors.New("no test ran")
	}
	return failed || report.failed > 0, nil
}

// splitRuns splits arguments at "--".
func splitRuns(args []string) [][]string {
	var out [][]string
	for {
		end := slices.Index(args, "--")
		if end < 0 {
			return append(out, args)
		}
		out = append(out, args[:end])
		args = args[end+1:]
	}
}

// runOnce feeds the report from one "go test". That command gets the terminal's signals as well,
// so an interrupt ends it and what it started.
func runOnce(report *report, args []string) (failed bool, err error) {
	test := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	test.Stderr = os.Stderr
	events, err := test.StdoutPipe()
	if err != nil {
		return false, fmt.Errorf("pipe: %w", err)
	}
	if err := test.Start(); err != nil {
		return false, fmt.Errorf("start go test: %w", err)
	}
	readErr := report.read(events)
	waitErr := test.Wait()
	var exit *exec.ExitError
	if waitErr != nil && !errors.As(waitErr, &exit) {
		return true, fmt.Errorf("go test: %w", waitErr)
	}
	if readErr != nil {
		return true, fmt.Errorf("read the output of go test: %w", readErr)
	}
	return exit != nil, nil
}
