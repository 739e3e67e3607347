package main

import (
	"fmt"
	"os"
	"strings"
)

// readExceptions reads where iWARP is not as RoCE: verdicts by name.
func readExceptions(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		name, code, found := strings.Cut(line, " | ")
		if !found || out[name] != "" {
			return nil, fmt.Errorf("%s:%d: %q is no exception, or comes twice", path, number+1, line)
		}
		if out[name], err = verdict(code); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
	}
	return out, nil
}

// streams is what a device of iWARP does with a row that RoCE does ours with.
func (j *judge) streams(r *row, ours string) (string, error) {
	if text, found := j.exceptions[r.name]; found {
		j.used[r.name] = true
		return text, nil
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
