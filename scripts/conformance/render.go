package main

import (
	"errors"
	"fmt"
	"strings"
)

const head = `# Conformance

<!-- Written by scripts/conformance; "go generate ./scripts/conformance" writes it anew. -->

What each verb does on SoftRNIC's devices of RoCE (` + "`rnic0`" + `) and of iWARP
(` + "`iwarp0`" + `), and on three devices that programs know: the kernel's soft RoCE
(` + "`rdma_rxe`" + `), its soft iWARP (` + "`siw`" + `), and NVIDIA's adapters (` + "`mlx5`" + `).

| word | meaning |
|---|---|
| works | it does what its manual page says |
| library | rdma-core does it by itself, on any device |
| an errno | the verb is there and refuses with it |
| absent | there is no such thing |
| of some | receives, READs and atomics complete with it; others are flushed, or complete |

SoftRNIC's columns are taken from its sources and from what a NIC answers. The others are what their
user-space providers in rdma-core 65.0 (August 2026) and their drivers in current Linux kernels
offer at best; remarks say what Debian 12's 6.1 lacks. mlx5 is a ConnectX-5 or later, and some of it
depends on firmware and configuration. Tests are those of this repository that show what our columns
say: names of Go tests, with a slash and the case where one test runs several. The suite of
` + "`test/conformance`" + ` runs on both devices, from Go and from C; what a device lacks it
asks for and wants refused.
` + "`TestSuite`" + ` in ` + "`test/pyverbs`" + ` is rdma-core's own.
`

// render writes the document.
func (j *judge) render(parts []part) (string, error) {
	var b strings.Builder
	b.WriteString(head)
	var problems []error
	works, refused := 0, 0
	for _, p := range parts {
		fmt.Fprintf(&b, "\n## %s\n", p.title)
		for _, s := range p.sections {
			fmt.Fprintf(&b, "\n### %s\n\n", s.title)
			b.WriteString("| | RoCE | iWARP | rxe | siw | mlx5 | shown by | remarks |\n")
			b.WriteString("|---|---|---|---|---|---|---|---|\n")
			for i := range s.rows {
				line, ours, err := j.line(&s.rows[i])
				if err != nil {
					problems = append(problems, err)
					continue
				}
				if strings.HasPrefix(ours, "E") && strings.ToUpper(ours) == ours {
					refused++
				} else {
					works++
				}
				b.WriteString(line)
			}
		}
	}
	fmt.Fprintf(&b, "\n%d rows, of which %d are refused by RoCE; %d work and have no test of"+
		" their own.\n", works+refused, refused, len(j.unshown))
	return b.String(), errors.Join(problems...)
}

// line is one row of a table, and what SoftRNIC does with it.
func (j *judge) line(r *row) (line, ours string, err error) {
	ours, err = j.ours(r)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", r.at, err)
	}
	streams, err := j.streams(r, ours)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", r.at, err)
	}
	cells := []string{"`" + r.name + "`", ours, streams}
	for _, code := range []string{r.rxe, r.siw, r.mlx5} {
		text, err := verdict(code)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", r.at, err)
		}
		cells = append(cells, text)
	}
	tests, err := j.shown(r)
	if err != nil {
		return "", "", err
	}
	if ours == "works" && len(tests) == 0 {
		j.unshown = append(j.unshown, r.name)
		tests = []string{"none"}
	}
	for i := range tests {
		if tests[i] != "none" {
			tests[i] = "`" + tests[i] + "`"
		}
	}
	cells = append(cells, strings.Join(tests, ", "), r.note)
	return "| " + strings.Join(cells, " | ") + " |\n", ours, nil
}
