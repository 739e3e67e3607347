package main

import (
	"fmt"
	"os"
	"strings"
)

// part is one data file.
type part struct {
	title    string
	sections []section
}

type section struct {
	title string
	rows  []row
}

// row is one verb, or something that verbs carry.
type row struct {
	name string
	// where says how to learn what SoftRNIC does with it; see facts.go.
	where string
	// rxe, siw and mlx5 are verdicts as the data file writes them.
	rxe, siw, mlx5 string
	tests          []string
	note           string
	at             string // file and line, for errors
}

const columns = 7

// readData reads a data file: sections after "# ", rows of columns between "|", remarks after ";".
func readData(path string) ([]section, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []section
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		at := fmt.Sprintf("%s:%d", path, number+1)
		switch {
		case line == "" || line[0] == ';':
			continue
		case strings.HasPrefix(line, "# "):
			out = append(out, section{title: line[2:]})
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != columns || len(out) == 0 {
			return nil, fmt.Errorf("%s: %d columns instead of %d", at, len(fields), columns)
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		r := row{
			name: fields[0], where: fields[1], rxe: fields[2], siw: fields[3], mlx5: fields[4],
			tests: strings.Fields(fields[5]), note: fields[6], at: at,
		}
		last := &out[len(out)-1]
		last.rows = append(last.rows, r)
	}
	return out, nil
}

// verdict is a verdict of a data file in words.
func verdict(code string) (string, error) {
	switch {
	case code == "+":
		return "works", nil
	case code == "lib":
		return "library", nil
	case code == ".":
		return "absent", nil
	case code == "?":
		return "not known", nil
	case code == "-":
		return "EOPNOTSUPP", nil
	case strings.HasPrefix(code, "-E"):
		return code[1:], nil
	case strings.HasPrefix(code, "="):
		return code[1:], nil
	}
	return "", fmt.Errorf("verdict %q", code)
}
