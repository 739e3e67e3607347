package main

import (
	"fmt"
	"os"
	"strings"
)

// exception is where iWARP is not as RoCE: its verdict, and the tests that show it.
type exception struct {
	verdict string
	tests   []string
}

// readExceptions reads the exceptions by name.
func readExceptions(path string) (map[string]exception, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]exception{}
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "|")
		name := strings.TrimSpace(fields[0])
		if _, isTwice := out[name]; isTwice || len(fields) < 2 || len(fields) > 3 {
			return nil, fmt.Errorf("%s:%d: %q is no exception, or comes twice", path, number+1, line)
		}
		var x exception
		if x.verdict, err = verdict(strings.TrimSpace(fields[1])); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
		if len(fields) == 3 {
			x.tests = strings.Fields(fields[2])
		}
		out[name] = x
	}
	return out, nil
}

// streams is what a device of iWARP does with a row that RoCE does ours with.
func (j *judge) streams(r *row, ours string) (string, error) {
	if x, found := j.exceptions[r.name]; found {
		j.used[r.name] = true
		return x.verdict, nil
	}
	kind, argument, _ := strings.Cut(r.where, " ")
	switch kind {
	case "sym", "op", "qpex", "cqex", "inl", "said":
		return ours, nil
	case "post":
		if strings.HasPrefix(ours, "RC") {
			return "RC", nil
		}
		return ours, nil
	}
	return j.iwarp.ask(kind, argument)
}

// unused names exceptions for which there is no row.
func (j *judge) unused() error {
	for name := range j.exceptions {
		if !j.used[name] {
			return fmt.Errorf("iwarp.txt: there is no row for %s", name)
		}
	}
	return nil
}
