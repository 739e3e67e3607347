package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// judge decides what SoftRNIC does with a row, and which tests show it.
type judge struct {
	sources *sources
	tests   *tests
	device  *device
	unshown []string // work, and no test shows it
}

// ours looks at the facts that a row names:
//
//	sym [NAME]   an exported function, of the row's name by default
//	op NAME      a function of the context's tables
//	qpex NAME    one of the work request builder
//	cqex NAME    one of the extended completion queue
//	inl          a function that the header has whole
//	post NAME    an operation that the C library posts, by type of queue pair
//	qpt N, access N, cap N, limit FIELD   what a NIC answers
//	said WORDS   what the data file says, for want of a fact
func (j *judge) ours(r *row) (string, error) {
	kind, argument, _ := strings.Cut(r.where, " ")
	switch kind {
	case "sym":
		name := r.name
		if argument != "" {
			name = argument
		}
		return j.function(name, j.sources.exported[name]), nil
	case "op", "qpex", "cqex":
		name, ok := j.sources.tables[argument]
		return j.function(name, ok), nil
	case "inl":
		return "library", nil
	case "post":
		return j.posts(argument)
	case "said":
		return argument, nil
	}
	return j.device.ask(kind, argument)
}

func (j *judge) function(name string, exists bool) string {
	if !exists || j.sources.refuses(name) {
		return "EOPNOTSUPP"
	}
	return "works"
}

var postSet = regexp.MustCompile(`(?s)const unsigned int (\w+) =\s*([^;]*);`)

// posts tells the types of queue pairs whose operations include one.
func (j *judge) posts(operation string) (string, error) {
	body, ok := j.sources.functions["post_opcode_is_allowed"]
	if !ok {
		return "", errors.New("clib/verbs has no post_opcode_is_allowed")
	}
	sets := map[string]string{}
	for _, m := range postSet.FindAllStringSubmatch(body, -1) {
		sets[m[1]] = m[2]
	}
	var has func(set string) bool
	has = func(set string) bool {
		text := sets[set]
		if regexp.MustCompile(`\b` + operation + `\b`).MatchString(text) {
			return true
		}
		for other := range sets {
			if other != set && regexp.MustCompile(`\b`+other+`\b`).MatchString(text) && has(other) {
				return true
			}
		}
		return false
	}
	var types []string
	for _, set := range []string{"rc", "xrc", "uc", "ud"} {
		if _, known := sets[set]; known && has(set) {
			types = append(types, strings.ToUpper(set))
		}
	}
	if len(types) == 0 {
		return "EINVAL", nil
	}
	return strings.Join(types, " "), nil
}

// testsMax is how many tests a row shows.
const testsMax = 2

// shown returns the tests of a row.
func (j *judge) shown(r *row) ([]string, error) {
	var out []string
	for _, name := range r.tests {
		if !j.tests.exists(name) {
			return nil, fmt.Errorf("%s: there is no test %s", r.at, name)
		}
		out = append(out, name)
	}
	for _, name := range j.tests.of(r.name) {
		if len(out) == testsMax {
			break
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}
