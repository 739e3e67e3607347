package explain

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Absent says why a number with its family in front ("wc status 99", "terminate 12345") finds
// nothing: which numbers there are. Of other queries it says nothing.
func Absent(query string) string {
	written, words := lastOf(query)
	if len(words) == 0 {
		return ""
	}
	var out []string
	for i := range sections {
		s := &sections[i]
		isOther := func(w string) bool { return !slices.Contains(s.words, w) }
		if s.Kind == KindCounter || slices.ContainsFunc(words, isOther) {
			continue
		}
		number, isNumber := anyNumber(written, s.Kind)
		switch {
		case !isNumber:
		case s.Kind == KindTerminate && number > math.MaxUint16:
			out = append(out, fmt.Sprintf("%s is out of range: a Terminate code has four hexadecimal"+
				" digits", written))
		default:
			first, last := s.span()
			out = append(out, fmt.Sprintf("there is no %s %s: they go from %s to %s", s.Kind, written,
				first.Number(), last.Number()))
		}
	}
	return strings.Join(out, "; ")
}

// lastOf takes a query apart into what should be a number and the words in front.
func lastOf(query string) (written string, words []string) {
	fields := fieldsOf(query)
	if len(fields) == 0 {
		return "", nil
	}
	return fields[len(fields)-1], meaningful(fields[:len(fields)-1])
}

// anyNumber reads a number of any size, in the forms that Find takes for a family.
func anyNumber(written string, kind Kind) (n uint64, ok bool) {
	written = strings.TrimPrefix(written, "-")
	n, err := strconv.ParseUint(written, 0, 64)
	if err != nil && kind == KindTerminate {
		n, err = strconv.ParseUint(written, 16, 64)
	}
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

// span returns the rows with the least and the greatest number.
func (s *section) span() (first, last Entry) {
	rows := s.entries()
	first, last = rows[0], rows[0]
	for _, e := range rows {
		if e.Code < first.Code {
			first = e
		}
		if e.Code > last.Code {
			last = e
		}
	}
	return first, last
}
