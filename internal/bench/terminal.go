package bench

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// clearLine takes a terminal's cursor to the beginning of its line, and empties that.
const clearLine = "\r\x1b[K"

// Ticker shows on one line what is being measured.
func Ticker(out io.Writer, rounds int) func(round, index, count int, g *Gauge) {
	return func(round, index, count int, g *Gauge) {
		fmt.Fprintf(out, "%sround %d of %d, %d of %d: %s", clearLine, round+1, rounds, index+1, count,
			g.Key)
		if round+1 == rounds && index+1 == count {
			fmt.Fprint(out, clearLine)
		}
	}
}

// Complainer tells at once of what failed.
func Complainer(out io.Writer) func(g *Gauge, err error) {
	return func(g *Gauge, err error) { fmt.Fprintf(out, "%s%s: %v\n", clearLine, g.Key, err) }
}

// Differences tells people what changed since an earlier run, a line for each row.
func Differences(before, now *Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\ncompared with the stored run, SoftRNIC %s of %s:\n", before.Version,
		before.Begun.Format("2006-01-02 15:04"))
	changes := Compare(before, now)
	for i := range changes {
		fmt.Fprintln(&b, changes[i].String())
	}
	if len(changes) == 0 {
		b.WriteString("no row changed by more than a tenth and its spread\n")
	}
	return b.String()
}

// Select keeps the rows whose title and name match an expression, whatever the case; the empty one
// keeps all.
func Select(figures []Figure, expression string) ([]Figure, error) {
	wanted, err := regexp.Compile("(?i)" + expression)
	if err != nil {
		return nil, err
	}
	var out []Figure
	for _, f := range figures {
		rows := f.Rows
		f.Rows = nil
		for _, row := range rows {
			if wanted.MatchString(f.Title + ": " + row.Name) {
				f.Rows = append(f.Rows, row)
			}
		}
		if len(f.Rows) > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}
