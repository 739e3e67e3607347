package bench

import (
	"fmt"
	"html"
	"math"
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

// scale turns values into lengths of bars.
type scale struct {
	low, high     float64
	isLogarithmic bool
}

// logarithmicFrom is how many times the smallest value the largest has to be for a scale on which
// both can be seen.
const logarithmicFrom = 30

// length is that of a bar.
func (s *scale) length(x float64) float64 {
	switch {
	case x <= 0 || s.high <= 0:
		return 0
	case !s.isLogarithmic:
		return barsWidth * x / s.high
	}
	return max(barsWidth*math.Log(x/s.low)/math.Log(s.high/s.low), 0)
}

// SVG plots the figure: for each row a bar of ours and those of its peers, with their spreads.
func (f *Findings) SVG() string {
	values := f.values()
	s := scaleOf(values)
	height := headHeight + len(values)*barPitch + len(f.Rows)*rowGap + rowGap
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" `+
		`height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	how := "more is better"
	if f.Unit.IsLower() {
		how = "less is better"
	}
	if s.isLogarithmic {
		how += "; logarithmic, a line every ten times"
		for x := s.low; x <= s.high*1.001; x *= 10 {
			at := labelWidth + s.length(x)
			fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#d0d7de"/>`+"\n", at, headHeight-4, height-4)
		}
	}
	fmt.Fprintf(&b, `<text x="8" y="20" font-size="14" font-weight="bold" fill="#1f2328">%s</text>`+
		"\n", html.EscapeString(fmt.Sprintf("%s, %s (%s)", f.Title, f.Unit, how)))
	y := headHeight
	for i := range f.Rows {
		row := &f.Rows[i]
		p := bar{y: y, scale: &s, unit: f.Unit, value: &row.Ours}
		p.label, p.colour, p.weight = row.Name, ourColour, "bold"
		p.draw(&b)
		y += barPitch
		for j := range row.Peers {
			if row.Peers[j].IsFixed {
				continue
			}
			p = bar{y: y, scale: &s, unit: f.Unit, value: &row.Peers[j].Value}
			p.label, p.colour, p.weight = row.Peers[j].Who, peerColour, "normal"
			p.draw(&b)
			y += barPitch
		}
		y += rowGap
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// values are those that have bars.
func (f *Findings) values() []*Value {
	var out []*Value
	for i := range f.Rows {
		out = append(out, &f.Rows[i].Ours)
		for j := range f.Rows[i].Peers {
			if !f.Rows[i].Peers[j].IsFixed {
				out = append(out, &f.Rows[i].Peers[j].Value)
			}
		}
	}
	return out
}

// scaleOf has room for all of them, from one power of ten to another if it is logarithmic.
func scaleOf(values []*Value) scale {
	low, high := math.Inf(1), 0.0
	for _, v := range values {
		if v.Low > 0 {
			low, high = min(low, v.Low), max(high, v.High)
		}
	}
	if high <= logarithmicFrom*low {
		return scale{high: high}
	}
	return scale{
		low: math.Pow(10, math.Floor(math.Log10(low))), isLogarithmic: true,
		high: math.Pow(10, math.Ceil(math.Log10(high))),
	}
}

type bar struct {
	label, colour, weight string
	y                     int
	scale                 *scale
	unit                  Unit
	value                 *Value
}

func (p *bar) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" font-weight="%s" fill="#1f2328">%s</text>`+
		"\n", labelWidth-8, p.y+textDrop, p.weight, html.EscapeString(p.label))
	text, end := "not measured", float64(labelWidth)
	switch {
	case p.value.IsKnown():
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n",
			labelWidth, p.y, p.scale.length(p.value.Median), barHeight, p.colour)
		low := labelWidth + p.scale.length(p.value.Low)
		high := labelWidth + p.scale.length(p.value.High)
		middle := p.y + barHeight/2
		fmt.Fprintf(b, `<path d="M%.1f %dH%.1fM%.1f %dv6M%.1f %dv6" stroke="#1f2328" fill="none"/>`+
			"\n", low, middle, high, low, middle-3, high, middle-3)
		text, end = number(p.value.Median, p.unit), high
	case !p.value.IsMissing:
		text = "failed"
	}
	fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#57606a">%s</text>`+"\n",
		end+6, p.y+textDrop, html.EscapeString(text))
}
