package bench

import (
	"fmt"
	"math"
)

// noticeable is by how much a value has to change, at least, to be told of.
const noticeable = 0.10

// Change is how a row differs between two runs.
type Change struct {
	Figure, Row string
	Unit        Unit
	Before, Now float64
	// Gain is by how much the row is better than before, 0.1 for a tenth; negative for worse. It
	// is taken beside the peers that both runs have, or, without any, as it is.
	Gain float64
	// IsBesidePeers tells which.
	IsBesidePeers bool
}

// IsRegression says that the row got worse.
func (c *Change) IsRegression() bool { return c.Gain < 0 }

func (c *Change) String() string {
	word, how := "better", ""
	if c.IsRegression() {
		word = "REGRESSION"
	}
	if c.IsBesidePeers {
		how = " beside its peers"
	}
	return fmt.Sprintf("%s: %s: %s: %s, was %s: %+.0f %%%s", word, c.Figure, c.Row,
		number(c.Now, c.Unit), number(c.Before, c.Unit), 100*c.Gain, how)
}

// Compare lists the rows that changed by more than a tenth and by more than their spreads. Rows
// without a peer are compared only between runs on machines of one kind.
func Compare(before, now *Run) []Change {
	var out []Change
	isSameKind := before.Machine.isLike(&now.Machine)
	for i := range now.Figures {
		f := &now.Figures[i]
		for j := range f.Rows {
			old := before.find(f, f.Rows[j].Name)
			if old == nil {
				continue
			}
			c, known := changeOf(old, &f.Rows[j], f.Unit)
			if !known || !c.IsBesidePeers && !isSameKind {
				continue
			}
			width := f.Rows[j].Ours.width() + old.Ours.width()
			if math.Abs(c.Gain) > max(noticeable, width) {
				c.Figure, c.Row = f.Title, f.Rows[j].Name
				out = append(out, c)
			}
		}
	}
	return out
}

// find returns the row of an earlier run.
func (r *Run) find(f *Findings, row string) *Finding {
	for i := range r.Figures {
		if r.Figures[i].Key != f.Key || r.Figures[i].Unit != f.Unit {
			continue
		}
		for j := range r.Figures[i].Rows {
			if r.Figures[i].Rows[j].Name == row {
				return &r.Figures[i].Rows[j]
			}
		}
	}
	return nil
}

func changeOf(old, now *Finding, unit Unit) (c Change, known bool) {
	if !old.Ours.IsKnown() || !now.Ours.IsKnown() || old.Ours.Median <= 0 || now.Ours.Median <= 0 {
		return c, false
	}
	c = Change{Unit: unit, Before: old.Ours.Median, Now: now.Ours.Median}
	logarithm := math.Log(now.Ours.Median / old.Ours.Median)
	peers, count := 0.0, 0
	for i := range now.Peers {
		for j := range old.Peers {
			p, q := &now.Peers[i], &old.Peers[j]
			if p.Who == q.Who && p.Ratio > 0 && q.Ratio > 0 {
				peers += math.Log(p.Ratio / q.Ratio)
				count++
			}
		}
	}
	if count > 0 {
		logarithm, c.IsBesidePeers = peers/float64(count), true
	}
	if unit.IsLower() {
		logarithm = -logarithm
	}
	c.Gain = math.Exp(logarithm) - 1
	return c, true
}

// width is half of the spread, as a share of the median.
func (v *Value) width() float64 {
	if v.Median <= 0 {
		return 0
	}
	return (v.High - v.Low) / 2 / v.Median
}
