package main

import (
	"fmt"
	"io"
	"time"

	"github.com/softrnic/softrnic/internal/nic"
)

// errorReport is what failed lately.
type errorReport struct {
	Errors []nic.ErrorStatus `json:"errors"`
}

// printErrors tells each error: whom it hit, then what happened, each line explaining the one
// before.
func printErrors(out io.Writer, list []nic.ErrorStatus) {
	if len(list) == 0 {
		fmt.Fprintln(out, "nothing has failed")
		return
	}
	for i := range list {
		e := &list[i]
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "#%d %s%s\n", e.Number, errorOwner(e), when(e))
		for j, text := range e.Chain {
			head := "  "
			if j > 0 {
				head = "    "
			}
			printWrapped(out, head, "      ", text)
		}
	}
}

// errorOwner is whom an error hit.
func errorOwner(e *nic.ErrorStatus) string {
	text := ""
	if e.Program != "" {
		text = fmt.Sprintf("%s[%d]", e.Program, e.PID)
		if e.Ended {
			text += " (ended)"
		}
		text += ", "
	}
	if e.QPN != 0 {
		text += fmt.Sprintf("QP %#06x, ", e.QPN)
	}
	return text + string(e.Kind) + ", "
}

// when an error happened; of what happened again and again, from when on.
func when(e *nic.ErrorStatus) string {
	if e.Count < 2 {
		return age(e.AgeSeconds)
	}
	return fmt.Sprintf("%d times, first %s, last %s", e.Count, age(e.FirstAgeSeconds),
		age(e.AgeSeconds))
}

func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Second {
		return "just now"
	}
	return d.Round(time.Second).String() + " ago"
}
