package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/nic"
)

// judge decides what SoftRNIC does with a row, and which tests show it.
type judge struct {
	sources *sources
	tests   *tests
	device  *device
	iwarp   *device
	// exceptions are where iWARP is not as RoCE, by name; used those that were looked at.
	exceptions map[string]exception
	used       map[string]bool
	unshown    []string // work, and no test shows it
}

func newJudge(s *sources, t *tests, exceptions map[string]exception) *judge {
	return &judge{
		sources: s, tests: t, exceptions: exceptions, used: map[string]bool{},
		device: newDevice(nic.TransportRoCE), iwarp: newDevice(nic.TransportIWARP),
	}
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

var (
	postSet   = regexp.MustCompile(`(?s)const unsigned int (\w+) =\s*([^;]*);`)
	postTypes = regexp.MustCompile(`(?s)type == IBV_QPT_(\w+)\)\s*allowed = ([^;]*);`)
	postWords = regexp.MustCompile(`\w+`)
)

// posts tells the types of queue pairs that have an operation, by the C library's own rule.
func (j *judge) posts(operation string) (string, error) {
	body, ok := j.sources.functions["post_opcode_is_allowed"]
	if !ok {
		return "", errors.New("clib/verbs has no post_opcode_is_allowed")
	}
	sets := map[string]string{}
	for _, m := range postSet.FindAllStringSubmatch(body, -1) {
		sets[m[1]] = m[2]
	}
	own := strings.Replace(operation, "IBV_", "POST_", 1) // where the system's header lacks it
	var has func(set string) bool
	has = func(set string) bool {
		for _, word := range postWords.FindAllString(set, -1) {
			if word == operation || word == own || sets[word] != "" && has(sets[word]) {
				return true
			}
		}
		return false
	}
	var types []string
	for _, m := range postTypes.FindAllStringSubmatch(body, -1) {
		if has(m[2]) {
			types = append(types, strings.TrimSuffix(m[1], "_SEND"))
		}
	}
	if len(types) == 0 {
		return "EINVAL", nil
	}
	slices.Sort(types)
	return strings.Join(types, " "), nil
}

// shown returns the tests of a row.
func (j *judge) shown(r *row) ([]string, error) {
	var out []string
	for _, name := range append(slices.Clone(r.tests), j.exceptions[r.name].tests...) {
		if !j.tests.exists(name) {
			return nil, fmt.Errorf("%s: there is no test %s", r.at, name)
		}
		out = append(out, name)
	}
	// Where nobody named one, the one that is most about it.
	if found := j.tests.of(r.name); len(r.tests) == 0 && len(found) > 0 {
		out = slices.Insert(out, 0, found[0])
	}
	return out, nil
}
