package netio

import (
	"errors"
	"regexp"
	"testing"
)

func TestCounters_Table_NamesAreUniqueAndStableForm(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	seen := map[string]bool{}
	var counters Counters
	for c := Counter(0); c < counterCount; c++ {
		info := c.Info()
		if !form.MatchString(info.Name) || info.Help == "" || seen[info.Name] ||
			c.String() != info.Name {
			t.Errorf("counter %d: name %q, help %q", c, info.Name, info.Help)
		}
		seen[info.Name] = true
		counters.Add(c, uint64(c)+1)
		counters.Add(c, 1)
	}
	next := uint64(0)
	counters.Each(func(info CounterInfo, value uint64) {
		if value != next+2 || info != Counter(next).Info() {
			t.Errorf("%s = %d, want %d", info.Name, value, next+2)
		}
		next++
	})
	if next != uint64(counterCount) {
		t.Errorf("%d counters visited of %d", next, counterCount)
	}
}

func TestNotice_Features_NamedAndUnwrapped(t *testing.T) {
	cause := errors.New("cause")
	for f := FeatureIPv4; f <= FeatureCapture; f++ {
		notice := Notice{Feature: f, Cause: cause}
		if f.String() == "" || f.String() == "unknown feature" || !errors.Is(notice, cause) {
			t.Errorf("feature %d: %v", f, notice)
		}
	}
	if Feature(200).String() != "unknown feature" {
		t.Error("a feature that is not there has a name")
	}
}
