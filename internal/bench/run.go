package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Run is what a run found, as it is stored.
type Run struct {
	Begun   time.Time     `json:"begun"`
	Took    time.Duration `json:"took_ns"`
	Rounds  int           `json:"rounds"`
	Version string        `json:"version"`
	Machine Machine       `json:"machine"`
	Figures []Findings    `json:"figures"`
}

// Findings are a figure's.
type Findings struct {
	Key   string    `json:"key"`
	Title string    `json:"title"`
	Note  string    `json:"note,omitempty"`
	Unit  Unit      `json:"unit"`
	Rows  []Finding `json:"rows"`
}

// Finding is a row's.
type Finding struct {
	Name  string   `json:"name"`
	Ours  Value    `json:"ours"`
	Peers []Beaten `json:"peers,omitempty"`
}

// Value is what a gauge found in a unit, in all rounds.
type Value struct {
	Who     string    `json:"who"`
	Median  float64   `json:"median,omitempty"`
	Low     float64   `json:"low,omitempty"`
	High    float64   `json:"high,omitempty"`
	Samples []float64 `json:"samples,omitempty"`
	// Retries is how often the gauge failed, and then did not when it was tried again.
	Retries int `json:"retries,omitempty"`
	// Problem says why there is nothing, IsMissing that it is nobody's failure.
	Problem   string `json:"problem,omitempty"`
	IsMissing bool   `json:"is_missing,omitempty"`
}

// Beaten is a peer, beaten or not.
type Beaten struct {
	Value
	// IsFixed says that there is no peer: Goal is a value in the figure's unit.
	IsFixed bool `json:"is_fixed,omitempty"`
	// Ratio is ours to the peer's or, where that is fixed, 0.
	Ratio float64 `json:"ratio,omitempty"`
	// Goal is what Ratio is to reach, 0 where nothing is aimed at.
	Goal  float64 `json:"goal,omitempty"`
	IsMet bool    `json:"is_met,omitempty"`
	// IsJudged says that IsMet means something: there is a goal, and both were measured.
	IsJudged bool `json:"is_judged,omitempty"`
}

// IsKnown says that there is a value.
func (v *Value) IsKnown() bool { return v.Problem == "" }

// result turns records into findings.
func (f *Figure) result(records map[string]*record) Findings {
	out := Findings{Key: f.Key, Title: f.Title, Note: f.Note, Unit: f.Unit}
	for _, row := range f.Rows {
		found := Finding{Name: row.Name, Ours: records[row.Ours.Key].value(row.Ours.Who, f.Unit)}
		for _, goal := range row.Goals {
			found.Peers = append(found.Peers, goal.judge(&found.Ours, records, f.Unit))
		}
		out.Rows = append(out.Rows, found)
	}
	return out
}

func (g *Goal) judge(ours *Value, records map[string]*record, unit Unit) Beaten {
	b := Beaten{Goal: g.Factor}
	reached := ours.Median
	if g.Peer == nil {
		b.IsFixed = true
	} else {
		b.Value = records[g.Peer.Key].value(g.Peer.Who, unit)
		if ours.IsKnown() && b.IsKnown() && b.Median > 0 {
			b.Ratio = ours.Median / b.Median
		}
		reached = b.Ratio
	}
	b.IsJudged = g.Factor > 0 && ours.IsKnown() && b.IsKnown()
	b.IsMet = b.IsJudged && (unit.IsLower() && reached <= g.Factor ||
		!unit.IsLower() && reached >= g.Factor)
	return b
}

func (r *record) value(who string, unit Unit) Value {
	v := Value{Who: who, Retries: r.retries}
	if r.err != nil {
		v.Problem, v.IsMissing = r.err.Error(), errors.Is(r.err, ErrMissing)
		return v
	}
	for _, s := range r.samples {
		if x, has := s[unit]; has {
			v.Samples = append(v.Samples, x)
		}
	}
	if len(v.Samples) == 0 {
		v.Problem = "no round was completed"
		return v
	}
	sorted := slices.Sorted(slices.Values(v.Samples))
	n := len(sorted)
	v.Low, v.High = sorted[0], sorted[n-1]
	v.Median = (sorted[(n-1)/2] + sorted[n/2]) / 2
	return v
}

// HasFailed says that something could not be measured which should have been.
func (r *Run) HasFailed() bool {
	bad := func(v *Value) bool { return !v.IsKnown() && !v.IsMissing }
	for _, f := range r.Figures {
		for i := range f.Rows {
			if bad(&f.Rows[i].Ours) {
				return true
			}
			for j := range f.Rows[i].Peers {
				if bad(&f.Rows[i].Peers[j].Value) {
					return true
				}
			}
		}
	}
	return false
}

// storedName is the file in a directory of a stored run that Load reads.
const storedName = "run.json"

// Load reads the run that was stored in a directory; none is no error.
func Load(dir string) (*Run, error) {
	text, err := os.ReadFile(filepath.Join(dir, storedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(Run)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(dir, storedName), err)
	}
	return r, nil
}

// Store writes the run into a directory: as data, as a report for people, and a plot of each
// figure. The run before, if there is one, is what the report compares it with.
func (r *Run) Store(dir string, before *Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	stale, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	files := map[string][]byte{
		storedName: append(text, '\n'), "README.md": []byte(r.Markdown(before)),
	}
	for i := range r.Figures {
		files[r.Figures[i].plotName()] = []byte(r.Figures[i].SVG())
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
