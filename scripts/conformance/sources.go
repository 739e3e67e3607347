package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// sources is what the C libraries define.
type sources struct {
	// functions are the bodies of all functions, by name.
	functions map[string]string
	// exported are those that programs can link.
	exported map[string]bool
	// tables maps a field of a table of functions to what was put there.
	tables map[string]string
}

var (
	comment    = regexp.MustCompile(`(?s)/\*.*?\*/`)
	definition = regexp.MustCompile(
		`(?m)^([A-Za-z_][^;{}()=#]*?)\b([a-z_][a-z_0-9]*)\(([^;{}]*)\)\s*\n\{`)
	prototype  = regexp.MustCompile(`(?m)^(?:VERBS|CM|RS)_API\b[^;{}()]*?\b([a-z_][a-z_0-9]*)\(`)
	assignment = regexp.MustCompile(`(?:->|\.)([a-z_][a-z_0-9]*)\s*=\s*([a-z_][a-z_0-9]*)[;,]`)
)

// readSources reads the libraries below clib.
func readSources(clib string) (*sources, error) {
	s := &sources{
		functions: map[string]string{}, exported: map[string]bool{}, tables: map[string]string{},
	}
	for _, dir := range []string{"verbs", "rdmacm", "rsocket"} {
		names, err := filepath.Glob(filepath.Join(clib, dir, "*.[ch]"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			s.add(comment.ReplaceAllString(string(text), ""))
		}
	}
	return s, nil
}

func (s *sources) add(text string) {
	for _, m := range definition.FindAllStringSubmatchIndex(text, -1) {
		name := text[m[4]:m[5]]
		body := text[m[1]:]
		if end := strings.Index(body, "\n}"); end >= 0 {
			body = body[:end]
		}
		s.functions[name] = body
	}
	for _, m := range prototype.FindAllStringSubmatch(text, -1) {
		s.exported[m[1]] = true
	}
	for _, m := range assignment.FindAllStringSubmatch(text, -1) {
		s.tables[m[1]] = m[2]
	}
}

var (
	unused     = regexp.MustCompile(`\(void\)\w+(?:,\s*\(void\)\w+)*;`)
	unsupports = regexp.MustCompile(
		`^(?:return rnic_fail\(EOPNOTSUPP\);|rnic_fail\(EOPNOTSUPP\);return (?:NULL|-1);|` +
			`errno = EOPNOTSUPP;return (?:NULL|-1);|return EOPNOTSUPP;|` +
			`return errno = EOPNOTSUPP;|build_qp\(\w+\)->build_error = EOPNOTSUPP;|` +
			`struct rnic_qp \*qp = build_qp\(\w+\);qp->build_error = EOPNOTSUPP;)$`)
	blanks = regexp.MustCompile(`\s*\n\s*`)
)

// refuses reports a function that does nothing but say EOPNOTSUPP.
func (s *sources) refuses(name string) bool {
	body := unused.ReplaceAllString(s.functions[name], "")
	body = strings.TrimSpace(blanks.ReplaceAllString(body, ""))
	return unsupports.MatchString(body)
}
