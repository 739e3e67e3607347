package bench

import (
	"fmt"
	"strings"
)

// Markdown is the report for people.
func (r *Run) Markdown(before *Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\n"+
		"Written by a run of the harness; edit nothing here. Each round runs every program once,\n"+
		"SoftRNIC's and its peers' in turn. A value is the median of %d rounds, with the lowest and\n"+
		"the highest. A ratio is SoftRNIC's value to the peer's: more is better, but for latency,\n"+
		"costs and memory. On a machine that is virtual or shared look at ratios only.\n\n", r.Rounds)
	r.describe(&b)
	r.compare(&b, before)
	b.WriteString("\n## Missed targets\n\n")
	for _, line := range r.Missed() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	for i := range r.Figures {
		r.Figures[i].markdown(&b)
	}
	return b.String()
}

func (r *Run) describe(b *strings.Builder) {
	m := &r.Machine
	kind := ""
	if m.IsVirtual {
		kind = ", a virtual machine"
	}
	met, judged := r.tally()
	fmt.Fprintf(b, "- SoftRNIC %s, %s, %d rounds in %v; %d of %d targets met\n",
		r.Version, r.Begun.UTC().Format("2006-01-02 15:04 UTC"), r.Rounds, r.Took, met, judged)
	fmt.Fprintf(b, "- %s, %d cores%s, %.1f GB; load before the run %s\n",
		m.Processor, m.Cores, kind, m.MemoryGB, m.Load)
	if m.isBusy() {
		fmt.Fprintf(b, "- **The machine was busy when the run began: its figures mean little.**\n")
	}
	fmt.Fprintf(b, "- Linux %s, %s, %s; as %s\n", m.Kernel, m.System, m.Go, m.User)
	if len(m.Peers) > 0 {
		fmt.Fprintf(b, "- Peers: %s\n", strings.Join(m.Peers, ", "))
	}
}

// Missed lists the targets that were not met, and those that could not be judged.
func (r *Run) Missed() []string {
	var out []string
	for i := range r.Figures {
		f := &r.Figures[i]
		for j := range f.Rows {
			for k := range f.Rows[j].Peers {
				p := &f.Rows[j].Peers[k]
				if p.Goal == 0 || p.IsMet {
					continue
				}
				line := f.Title + ": " + f.Rows[j].Name + ": "
				switch {
				case !p.IsJudged:
					line += "not judged"
				case p.IsFixed:
					line += number(f.Rows[j].Ours.Median, f.Unit)
				default:
					line += digits(p.Ratio) + " × " + p.Who
				}
				out = append(out, line+", target "+p.goal(f.Unit))
			}
		}
	}
	if len(out) == 0 {
		out = append(out, "none")
	}
	return out
}

// tally counts targets.
func (r *Run) tally() (met, judged int) {
	for _, f := range r.Figures {
		for _, row := range f.Rows {
			for _, p := range row.Peers {
				if p.IsJudged {
					judged++
				}
				if p.IsMet {
					met++
				}
			}
		}
	}
	return met, judged
}

func (r *Run) compare(b *strings.Builder, before *Run) {
	if before == nil {
		return
	}
	fmt.Fprintf(b, "\n## Compared with the run before\n\nThat was SoftRNIC %s, %s, on %s.\n\n",
		before.Version, before.Begun.UTC().Format("2006-01-02 15:04 UTC"), before.Machine.Processor)
	changes := Compare(before, r)
	if len(changes) == 0 {
		fmt.Fprintf(b, "No row changed by more than a tenth and its spread.\n")
	}
	for i := range changes {
		fmt.Fprintf(b, "- %s\n", changes[i].String())
	}
}

func (f *Findings) plotName() string { return f.Key + ".svg" }

func (f *Findings) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n", f.Title)
	if f.Note != "" {
		fmt.Fprintf(b, "%s\n\n", f.Note)
	}
	fmt.Fprintf(b, "![%s](%s)\n\n", f.Title, f.plotName())
	fmt.Fprintf(b, "| work | SoftRNIC | beside | its value | ratio | target | |\n"+
		"|---|---|---|---|---|---|---|\n")
	for i := range f.Rows {
		row := &f.Rows[i]
		name, ours := row.Name, row.Ours.text(f.Unit)
		if len(row.Peers) == 0 {
			fmt.Fprintf(b, "| %s | %s | | | | | |\n", name, ours)
		}
		for j := range row.Peers {
			p := &row.Peers[j]
			fmt.Fprintf(b, "| %s | %s | %s |\n", name, ours, p.cells(f.Unit))
			name, ours = "", ""
		}
	}
}

// cells are what a table says of a peer.
func (p *Beaten) cells(unit Unit) string {
	value, ratio, verdict := "", "", ""
	if !p.IsFixed {
		value = p.text(unit)
	}
	if p.Ratio > 0 {
		ratio = digits(p.Ratio) + " ×"
	}
	switch {
	case p.IsMet:
		verdict = "met"
	case p.IsJudged:
		verdict = "**missed**"
	case p.Goal > 0:
		verdict = "not judged"
	}
	return strings.Join([]string{p.Who, value, ratio, p.goal(unit), verdict}, " | ")
}

// goal is what is aimed at, or nothing.
func (p *Beaten) goal(unit Unit) string {
	sign := "≥"
	if unit.IsLower() {
		sign = "≤"
	}
	switch {
	case p.Goal > 0 && p.IsFixed:
		return sign + " " + number(p.Goal, unit)
	case p.Goal > 0:
		return fmt.Sprintf("%s %g ×", sign, p.Goal)
	}
	return ""
}

// text is a value with its spread, or why there is none.
func (v *Value) text(unit Unit) string {
	if !v.IsKnown() {
		line, _, _ := strings.Cut(v.Problem, "\n")
		if runes := []rune(line); len(runes) > 160 {
			line = string(runes[:160]) + "…"
		}
		if !v.IsMissing {
			line = "failed: " + line
		}
		return strings.ReplaceAll(line, "|", "\\|")
	}
	text := fmt.Sprintf("%s (%s–%s)", number(v.Median, unit), digits(v.Low), digits(v.High))
	if v.Retries > 0 {
		text += fmt.Sprintf(", tries that failed: %d", v.Retries)
	}
	return text
}

func number(x float64, unit Unit) string { return digits(x) + " " + string(unit) }

// digits writes three that count.
func digits(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	case x >= 0.9995 || x == 0:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Text is the report for a terminal: one line for each peer.
func (r *Run) Text() string {
	var b strings.Builder
	r.describe(&b)
	for i := range r.Figures {
		f := &r.Figures[i]
		fmt.Fprintf(&b, "\n%s\n", f.Title)
		for j := range f.Rows {
			row := &f.Rows[j]
			fmt.Fprintf(&b, "  %-34s %s\n", row.Name, row.Ours.text(f.Unit))
			for k := range row.Peers {
				row.Peers[k].line(&b, f.Unit)
			}
		}
	}
	b.WriteString("\nMissed targets\n")
	for _, line := range r.Missed() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	return b.String()
}

func (p *Beaten) line(b *strings.Builder, unit Unit) {
	var words []string
	for cell := range strings.SplitSeq(p.cells(unit), " | ") {
		if cell != "" {
			words = append(words, strings.ReplaceAll(cell, "**", ""))
		}
	}
	fmt.Fprintf(b, "      %s\n", strings.Join(words, "   "))
}
