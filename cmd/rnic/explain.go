package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/softrnic/softrnic/internal/explain"
)

// explainedMax is how many meanings of one word are told in full; more are listed.
const explainedMax = 3

// textColumns is the width of explanations.
const textColumns = 80

func newExplain() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "explain [STATUS|EVENT|ERRNO|NAK|TERMINATE|…]",
		Short: "Say what a status, event, errno, NAK or state means and what usually causes it",
		Long: "Say what a status, event, errno, NAK, reject reason or state means, what usually\n" +
			"causes it and where to look. Any form that programs print will do; without an\n" +
			"argument, print all that can be explained.\n\n" +
			"  rnic explain IBV_WC_RETRY_EXC_ERR\n" +
			"  rnic explain retry exceeded\n" +
			"  rnic explain wc status 12\n" +
			"  rnic explain ibv_modify_qp EINVAL\n" +
			"  rnic explain reject 28\n" +
			"  rnic explain syndrome 0x62\n" +
			"  rnic explain terminate 0x1101   (or 1101)\n" +
			"  rnic explain -110",
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true, // it takes -110 for flags
		RunE: func(c *cobra.Command, args []string) error {
			if err := c.Flags().Parse(shieldNumbers(args)); err != nil {
				return err
			}
			if help, err := c.Flags().GetBool("help"); err == nil && help {
				return c.Help()
			}
			query := strings.Join(c.Flags().Args(), " ")
			out := c.OutOrStdout()
			if strings.TrimSpace(query) == "" {
				if asJSON {
					return printJSON(out, explain.All())
				}
				printContents(out)
				return nil
			}
			found := explain.Find(query)
			if len(found) == 0 {
				return fail(unknownName(query))
			}
			if asJSON {
				return printJSON(out, found)
			}
			printEntries(out, found)
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// shieldNumbers puts a blank before negative numbers, so that they are words and not flags.
func shieldNumbers(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if len(a) > 1 && a[0] == '-' && a[1] >= '0' && a[1] <= '9' {
			out[i] = " " + a
		}
	}
	return out
}

// unknownName says which numbers there are, or suggests what may have been meant.
func unknownName(query string) error {
	if text := explain.Absent(query); text != "" {
		return fmt.Errorf("%s; \"rnic explain\" lists all", text)
	}
	names := explain.Closest(query)
	if len(names) == 0 {
		return fmt.Errorf("nothing is called %q; \"rnic explain\" lists what is", query)
	}
	return fmt.Errorf("nothing is called %q; did you mean %s?", query, strings.Join(names, ", "))
}

// printContents is the table of contents.
func printContents(out io.Writer) {
	for _, s := range explain.All() {
		fmt.Fprintln(out, s.Title)
		printColumns(out, func(row func(string, ...any)) {
			for _, e := range s.Entries {
				row("  %s\t%s\t%s", e.Name, e.Number(), e.Words)
			}
		})
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "rnic explain NAME tells more.")
}

// printEntries tells the best matches in full and the others in a line.
func printEntries(out io.Writer, found []explain.Entry) {
	told := 1
	if len(found) <= explainedMax {
		told = len(found)
	}
	for i := range found[:told] {
		if i > 0 {
			fmt.Fprintln(out)
		}
		printEntry(out, &found[i])
	}
	if told == len(found) {
		return
	}
	fmt.Fprintln(out, "\nIt can also be:")
	printColumns(out, func(row func(string, ...any)) {
		for i := range found[told:] {
			e := &found[told+i]
			row("  %s %s\t%s\t%s", e.Kind, e.Number(), e.Name, e.Words)
		}
	})
}

func printEntry(out io.Writer, e *explain.Entry) {
	which := string(e.Kind)
	if e.Kind != explain.KindCounter {
		which += " " + e.Number()
	}
	fmt.Fprintf(out, "%s: %s (%s)\n\n", e.Name, e.Words, which)
	printWrapped(out, "  ", "  ", e.Means)
	printList(out, "Usually because", e.Causes)
	printList(out, "Look at", e.Look)
	if e.Source != "" {
		fmt.Fprintf(out, "\n  Defined in: %s\n", e.Source)
	}
}

func printList(out io.Writer, title string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(out, "\n  %s:\n", title)
	for _, item := range list {
		printWrapped(out, "  - ", "    ", item)
	}
}

// printColumns aligns rows.
func printColumns(out io.Writer, rows func(row func(format string, args ...any))) {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	rows(func(format string, args ...any) { fmt.Fprintf(table, format+"\n", args...) })
	_ = table.Flush() // its only failure is the writer's, which the command line ignores
}

// printWrapped breaks a text between words; the first line begins with head, the others with
// indent.
func printWrapped(out io.Writer, head, indent, text string) {
	line, columns := head, len([]rune(head))
	isEmpty := true
	for _, word := range strings.Fields(text) {
		width := len([]rune(word))
		if !isEmpty && columns+1+width > textColumns {
			fmt.Fprintln(out, line)
			line, columns, isEmpty = indent, len([]rune(indent)), true
		}
		if !isEmpty {
			line, columns = line+" ", columns+1
		}
		line, columns, isEmpty = line+word, columns+width, false
	}
	fmt.Fprintln(out, line)
}
