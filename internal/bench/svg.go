package bench

import (
	"fmt"
	"html"
	"strings"
)

// Measures of a plot, in its pixels.
const (
	plotWidth  = 860
	labelWidth = 330
	barsWidth  = 400
	barHeight  = 14
	barPitch   = 18
	rowGap     = 10
	headHeight = 34
	textDrop   = 11 // from the top of a bar to the base line of its text
)

// Colours of bars: ours, and those of peers.
const (
	ourColour  = "#1f6feb"
	peerColour = "#9aa4af"
)

// SVG plots the figure: for each row a bar of ours and those of its peers, with their spreads.
func (f *Findings) SVG() string {
	highest, bars := f.extent()
	height := headHeight + bars*barPitch + len(f.Rows)*rowGap + rowGap
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" `+
		`height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	better := "more is better"
	if f.Unit.IsLower() {
		better = "less is better"
	}
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14" font-weight="bold" fill="#1f2328">%s</text>`+
		"\n", html.EscapeString(fmt.Sprintf("%s, %s (%s)", f.Title, f.Unit, better)))
	y := headHeight
	for i := range f.Rows {
		row := &f.Rows[i]
		p := bar{y: y, highest: highest, unit: f.Unit, value: &row.Ours}
		p.label, p.colour, p.weight = row.Name, ourColour, "bold"
		p.draw(&b)
		y += barPitch
		for j := range row.Peers {
			if row.Peers[j].IsFixed {
				continue
			}
			p = bar{y: y, highest: highest, unit: f.Unit, value: &row.Peers[j].Value}
			p.label, p.colour, p.weight = row.Peers[j].Who, peerColour, "normal"
			p.draw(&b)
			y += barPitch
		}
		y += rowGap
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// extent finds the longest bar, and how many there are.
func (f *Findings) extent() (highest float64, bars int) {
	for i := range f.Rows {
		bars++
		highest = max(highest, f.Rows[i].Ours.High)
		for j := range f.Rows[i].Peers {
			if !f.Rows[i].Peers[j].IsFixed {
				bars++
				highest = max(highest, f.Rows[i].Peers[j].High)
			}
		}
	}
	return highest, bars
}

type bar struct {
	label, colour, weight string
	y                     int
	highest               float64
	unit                  Unit
	value                 *Value
}

func (p *bar) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" font-weight="%s" fill="#1f2328">%s</text>`+
		"\n", labelWidth-8, p.y+textDrop, p.weight, html.EscapeString(p.label))
	text, end := "not measured", float64(labelWidth)
	if p.value.IsKnown() && p.highest > 0 {
		scale := barsWidth / p.highest
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
			labelWidth, p.y, p.value.Median*scale, barHeight, p.colour)
		low, high := labelWidth+p.value.Low*scale, labelWidth+p.value.High*scale
		middle := p.y + barHeight/2
		fmt.Fprintf(b, `<path d="M%.1f %dH%.1fM%.1f %dv6M%.1f %dv6" stroke="#1f2328" fill="none"/>`+
			"\n", low, middle, high, low, middle-3, high, middle-3)
		text, end = number(p.value.Median, p.unit), high
	} else if !p.value.IsKnown() && !p.value.IsMissing {
		text = "failed"
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#57606a">%s</text>`+"\n",
		end+6, p.y+textDrop, html.EscapeString(text))
}
