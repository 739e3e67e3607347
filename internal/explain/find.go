package explain

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/softrnic/softrnic/internal/abi"
)

// plain reduces a name to what is said: lower-case words and numbers with single blanks.
func plain(name string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), " ")
}

// Find returns what a query means: a name, words, or a number, perhaps with its family in front
// ("wc status 12", "errno 22"). The best match comes first; none is an empty list. A bare number
// means something in most families: all are returned, completion statuses first.
func Find(query string) []Entry {
	wanted := plain(query)
	if wanted == "" {
		return nil
	}
	equal, within := findNames(wanted)
	if len(equal) > 0 {
		return equal
	}
	if found := terminateParts(query); len(found) > 0 {
		return found
	}
	if found := findNumbers(query); len(found) > 0 {
		return found
	}
	if len(within) > 0 {
		return within
	}
	if found := ofVerb(query); len(found) > 0 {
		return found
	}
	if family, name, ok := strings.Cut(wanted, " "); ok {
		if found := ofFamily(family, name); len(found) > 0 {
			return found
		}
	}
	if found := findInSentence(wanted); len(found) > 0 {
		return append(found, statusOf(&found[0], wanted)...)
	}
	return findPair(wanted)
}

// ofVerb finds what a verb's errnos mean: "ibv_modify_qp", "ibv_modify_qp EINVAL". Of their causes
// only those that are the verb's are kept.
func ofVerb(query string) []Entry {
	verb, rest := "", []string{}
	for _, w := range strings.Fields(strings.ToLower(query)) {
		w = strings.Trim(w, "():,.;\"'")
		if verb == "" && (strings.HasPrefix(w, "ibv_") || strings.HasPrefix(w, "rdma_")) {
			verb = w
		} else if w != "" {
			rest = append(rest, w)
		}
	}
	if verb == "" {
		return nil
	}
	meant := Find(strings.Join(rest, " "))
	var out []Entry
	for i := range sections {
		if sections[i].Kind != KindErrno {
			continue
		}
		for _, e := range sections[i].entries() {
			e.Causes = slices.DeleteFunc(slices.Clone(e.Causes), func(cause string) bool {
				about, _, _ := strings.Cut(cause, ":")
				return !slices.Contains(strings.Split(about, ", "), verb)
			})
			isMeant := len(rest) == 0 || slices.ContainsFunc(meant, func(f Entry) bool {
				return f.Kind == KindErrno && f.Code == e.Code
			})
			if len(e.Causes) > 0 && isMeant {
				out = append(out, e)
			}
		}
	}
	return out
}

// ofFamily finds a name in the families that a word stands for, as in "errno EINVAL".
func ofFamily(family, name string) []Entry {
	equal, within := findNames(name)
	return slices.DeleteFunc(append(equal, within...), func(e Entry) bool {
		return !slices.ContainsFunc(sections, func(s section) bool {
			return s.Kind == e.Kind && slices.Contains(s.words, family)
		})
	})
}

// findNames finds entries by a name, or by words of one.
func findNames(wanted string) (equal, within []Entry) {
	for i := range sections {
		for _, e := range sections[i].entries() {
			switch names := e.names(); {
			case slices.Contains(names, wanted):
				equal = append(equal, e)
			case slices.ContainsFunc(names, func(n string) bool { return hasWords(n, wanted) }):
				within = append(within, e)
			}
		}
	}
	return equal, within
}

// statusOf finds what the status of a connection event means that a line of a log tells with it,
// such as "RDMA_CM_EVENT_REJECTED, error 8".
func statusOf(e *Entry, text string) []Entry {
	fields := strings.Fields(text)
	for i := range len(fields) - 1 {
		isStatus := slices.Contains([]string{"error", "status", "reason", "errno"}, fields[i])
		n, err := strconv.ParseUint(fields[i+1], 0, 32)
		if e.Kind != KindCMEvent || !isStatus || err != nil {
			continue
		}
		if why, ok := Of(KindReject, uint32(n)); ok && e.Code == cmEventRejected {
			return []Entry{why}
		}
		if why, ok := Of(KindErrno, uint32(n)); ok {
			return []Entry{why}
		}
	}
	return nil
}

// findPair finds a family and a number side by side in a longer text, such as "status 12".
func findPair(text string) []Entry {
	fields := strings.Fields(text)
	for i := range len(fields) - 1 {
		number, err := strconv.ParseUint(fields[i+1], 0, 32)
		if err != nil {
			continue
		}
		if found := findNumber(uint32(number), fields[i:i+1], false); len(found) > 0 {
			return found
		}
	}
	return nil
}

// findInSentence finds entries whose words stand in a longer text, such as a line of a log.
func findInSentence(text string) []Entry {
	var out []Entry
	longest := 0
	for i := range sections {
		for _, e := range sections[i].entries() {
			for _, n := range e.names() {
				isSaid := len(strings.Fields(n)) > 1 || strings.Contains(n, "ibv")
				if !isSaid || !strings.Contains(" "+text+" ", " "+n+" ") || len(n) < longest {
					continue
				}
				if len(n) > longest {
					out, longest = nil, len(n)
				}
				out = append(out, e)
				break
			}
		}
	}
	return out
}

// hasWords reports that all words of part occur in name, in their order.
func hasWords(name, part string) bool {
	have := strings.Fields(name)
	for _, w := range strings.Fields(part) {
		at := slices.IndexFunc(have, func(h string) bool {
			return h == w || len(w) > 3 && stem(h) == stem(w)
		})
		if at < 0 {
			return false
		}
		have = have[at+1:]
	}
	return true
}

// stem lets "retry", "retries" and "exceed", "exceeded" meet.
func stem(w string) string {
	for _, end := range []string{"ies", "ied", "ed", "es", "s", "y"} {
		if short, ok := strings.CutSuffix(w, end); ok && len(short) > 2 {
			return short
		}
	}
	return w
}

// findNumbers finds a number with words in front. Programs print vendor_err in hexadecimal, often
// without 0x, and so people write codes of Terminates: what it means that way comes as well.
func findNumbers(query string) []Entry {
	number, words, ok := numberIn(query, 0)
	isHex := strings.Contains(query, "0x")
	var out []Entry
	if ok {
		out = findNumber(number, words, isHex)
	}
	bare, words, ok := numberIn(query, 16)
	if isHex || !ok || !slices.ContainsFunc(words, isHexadecimal) {
		return out
	}
	for _, e := range findNumber(bare, words, true) {
		isThere := slices.ContainsFunc(out, func(o Entry) bool { return o.Name == e.Name })
		if isThere || e.Kind == KindEvidence && e.Code == 0 && bare != 0 {
			continue
		}
		out = append(out, e)
	}
	return out
}

func isHexadecimal(word string) bool {
	return word == "vendor" || word == "vend" || slices.Contains(terminateWords, word)
}

// numberIn takes a query apart that is a number with words in front, such as "wc status=12". The
// base is that of digits; 0 lets the number say it.
func numberIn(query string, base int) (number uint32, words []string, ok bool) {
	fields := fieldsOf(query)
	if len(fields) == 0 {
		return 0, nil, false
	}
	last := fields[len(fields)-1]
	isNegative := strings.HasPrefix(last, "-")
	n, err := strconv.ParseUint(strings.TrimPrefix(last, "-"), base, 32)
	if err != nil {
		return 0, nil, false
	}
	words = meaningful(fields[:len(fields)-1])
	if isNegative && len(words) == 0 {
		words = []string{"errno"} // as events carry them
	}
	return uint32(n), words, true
}

func fieldsOf(query string) []string {
	return strings.FieldsFunc(query, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune("=:,()", r)
	})
}

// meaningful returns the words that may say what a number behind them is.
func meaningful(fields []string) (words []string) {
	for _, w := range strings.Fields(plain(strings.Join(fields, " "))) {
		if !slices.Contains(fillers, w) {
			words = append(words, w)
		}
	}
	return words
}

// fillers say nothing about the family of a number.
var fillers = []string{
	"ibv", "number", "no", "is", "value", "failed", "with", "returned", "returns", "code",
}

// findNumber returns the entries with a number in the families that all the words may mean.
func findNumber(number uint32, words []string, isHex bool) []Entry {
	var out []Entry
	for i := range sections {
		s := &sections[i]
		isOther := func(w string) bool { return !slices.Contains(s.words, w) }
		if slices.ContainsFunc(words, isOther) {
			continue
		}
		code := number
		if s.Kind == KindEvidence {
			code &= 0xff // the bits above hold a syndrome
		}
		isBare := len(words) == 0 && s.Kind == KindCounter // their numbers are nobody's
		if e, found := Of(s.Kind, code); found && !isBare {
			out = append(out, e)
		} else if s.Kind == KindTerminate && len(words) > 0 {
			if e, found := terminateOf(code); found {
				out = append(out, e)
			}
		}
		isNak := s.Kind == KindEvidence && abi.Vendor(code) == abi.VendorNak && code != number
		if nak, found := Of(KindSyndrome, number>>8&0xff); found && isNak {
			out = append(out, nak)
		}
	}
	if isHex && len(words) == 0 && number <= 0xff {
		// People write syndromes in hexadecimal, and most other things not.
		slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(hexRank(a), hexRank(b)) })
	}
	return out
}

func hexRank(e Entry) int {
	if e.Kind == KindSyndrome {
		return 0
	}
	return 1
}

// closestMax bounds what Closest returns.
const closestMax = 5

// Closest returns names that are spelled like the query, the nearest first.
func Closest(query string) []string {
	type candidate struct {
		name     string
		distance int
	}
	wanted := plain(query)
	var all []candidate
	for i := range sections {
		for _, e := range sections[i].entries() {
			best := len(wanted) + len(e.Name)
			for _, n := range e.names() {
				best = min(best, distance(wanted, n))
			}
			all = append(all, candidate{e.Name, best})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, c := range all {
		if len(out) == closestMax || c.distance > max(3, len(wanted)/2) {
			break
		}
		if !slices.Contains(out, c.name) {
			out = append(out, c.name)
		}
	}
	return out
}

// queryMax bounds what distance compares: nothing has a longer name.
const queryMax = 100

// distance is how many letters have to be changed, left out or put in (Levenshtein).
func distance(a, b string) int {
	a, b = a[:min(len(a), queryMax)], b[:min(len(b), queryMax)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
