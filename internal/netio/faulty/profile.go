package faulty

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Profile says how bad a network is. The zero Profile is a perfect one. Chances are between 0 and
// 1 and each packet takes them independently.
type Profile struct {
	Loss    float64
	Dup     float64
	Corrupt float64 // one random bit is inverted
	Reorder float64 // held back for up to Gap, so that later packets overtake

	Delay  time.Duration // for every packet
	Jitter time.Duration // up to this much more or less than Delay, without reordering
	Gap    time.Duration // 0 means GapDefault

	Rate uint64 // bits per second; 0: no limit

	// Completions holds the completions of each queue back for so long, so that many are found at
	// once, sends and receives mixed. It is the NIC that does it; packets are not concerned.
	Completions time.Duration

	Seed uint64 // of the random choices

	// Receive applies the profile to packets that arrive as well as to those that are sent.
	Receive bool
}

// GapDefault is how long a reordered packet is held back at most, unless the profile says.
const GapDefault = 100 * time.Microsecond

// Bounds of a Profile. They keep sums of times far from overflow.
const (
	timeMax = time.Minute
	rateMax = 1e13
)

// ErrProfile is wrapped by all errors of Parse and Validate.
var ErrProfile = errors.New("fault profile")

// IsZero reports a profile that changes nothing on the network.
func (p Profile) IsZero() bool {
	p.Seed, p.Receive, p.Gap, p.Completions = 0, false, 0, 0
	return p == Profile{}
}

// field is one name of the text form.
type field struct {
	name, form string // form is an example value for error messages
	get        func(p *Profile) string
	set        func(p *Profile, text string) error
}

//tidy:table
var fields = []field{
	chanceField("loss", func(p *Profile) *float64 { return &p.Loss }),
	chanceField("dup", func(p *Profile) *float64 { return &p.Dup }),
	chanceField("reorder", func(p *Profile) *float64 { return &p.Reorder }),
	chanceField("corrupt", func(p *Profile) *float64 { return &p.Corrupt }),
	timeField("delay", func(p *Profile) *time.Duration { return &p.Delay }),
	timeField("jitter", func(p *Profile) *time.Duration { return &p.Jitter }),
	timeField("gap", func(p *Profile) *time.Duration { return &p.Gap }),
	timeField("completions", func(p *Profile) *time.Duration { return &p.Completions }),
	{
		"rate", "10gbit", func(p *Profile) string { return formatRate(p.Rate) },
		func(p *Profile, text string) (err error) { p.Rate, err = parseRate(text); return err },
	},
	{
		"seed", "7", func(p *Profile) string { return formatSeed(p.Seed) },
		func(p *Profile, text string) (err error) {
			p.Seed, err = strconv.ParseUint(text, 10, 64)
			return err
		},
	},
	{
		"direction", "tx or both", func(p *Profile) string { return formatDirection(p.Receive) },
		func(p *Profile, text string) (err error) {
			p.Receive, err = parseDirection(text)
			return err
		},
	},
}

// Parse reads the text form: name=value pairs with commas between, each name at most once. Chances
// are percentages ("1%") or fractions ("0.01"), times have a unit ("200us"), rates too ("1gbit").
// The empty text is the perfect network. String is the inverse.
func Parse(text string) (Profile, error) {
	var p Profile
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	seen := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(item), "=")
		f := fieldByName(name)
		switch {
		case f == nil:
			return Profile{}, fmt.Errorf("%w: %q is unknown; known are %s", ErrProfile, name,
				knownNames())
		case !found || value == "":
			return Profile{}, fmt.Errorf("%w: %s has no value; write %s=%s", ErrProfile, name, name,
				f.form)
		case seen[name]:
			return Profile{}, fmt.Errorf("%w: %s is given twice", ErrProfile, name)
		}
		seen[name] = true
		if err := f.set(&p, value); err != nil {
			return Profile{}, fmt.Errorf("%w: %s=%s is not understood; write for example %s=%s",
				ErrProfile, name, value, name, f.form)
		}
	}
	return p, p.Validate()
}

// Validate checks the bounds of a profile that was not made by Parse.
func (p Profile) Validate() error {
	for _, c := range []struct {
		name  string
		value float64
	}{{"loss", p.Loss}, {"dup", p.Dup}, {"reorder", p.Reorder}, {"corrupt", p.Corrupt}} {
		if !(c.value >= 0 && c.value <= 1) {
			return fmt.Errorf("%w: %s must be between 0%% and 100%%", ErrProfile, c.name)
		}
	}
	for _, c := range []struct {
		name  string
		value time.Duration
	}{{"delay", p.Delay}, {"jitter", p.Jitter}, {"gap", p.Gap}, {"completions", p.Completions}} {
		if c.value < 0 || c.value > timeMax {
			return fmt.Errorf("%w: %s must be between 0 and %v", ErrProfile, c.name, timeMax)
		}
	}
	if p.Jitter > p.Delay {
		return fmt.Errorf("%w: jitter %v is more than delay %v: packets would arrive before they"+
			" are sent", ErrProfile, p.Jitter, p.Delay)
	}
	if p.Rate > rateMax {
		return fmt.Errorf("%w: rate must be at most %s", ErrProfile, formatRate(rateMax))
	}
	return nil
}

// String returns the text form, without what is zero.
func (p Profile) String() string {
	var items []string
	for _, f := range fields {
		if text := f.get(&p); text != "" {
			items = append(items, f.name+"="+text)
		}
	}
	return strings.Join(items, ",")
}

func fieldByName(name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

func knownNames() string {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

func chanceField(name string, at func(*Profile) *float64) field {
	return field{name, "1%", func(p *Profile) string {
		if *at(p) == 0 {
			return ""
		}
		return strconv.FormatFloat(*at(p), 'g', -1, 64)
	}, func(p *Profile, text string) error {
		digits, percent := strings.CutSuffix(text, "%")
		v, err := strconv.ParseFloat(digits, 64)
		if percent {
			v /= 100
		}
		*at(p) = v
		return err
	}}
}

func timeField(name string, at func(*Profile) *time.Duration) field {
	return field{name, "200us", func(p *Profile) string {
		if *at(p) == 0 {
			return ""
		}
		return strings.ReplaceAll(at(p).String(), "µ", "u")
	}, func(p *Profile, text string) (err error) {
		*at(p), err = time.ParseDuration(text)
		return err
	}}
}

var rateUnits = []struct {
	name string
	bits float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

func parseRate(text string) (uint64, error) {
	for _, unit := range rateUnits {
		digits, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err == nil && !(v*unit.bits >= 1 && v*unit.bits <= math.MaxInt64) {
			err = strconv.ErrRange
		}
		return uint64(v * unit.bits), err
	}
	return 0, strconv.ErrSyntax
}

func formatRate(rate uint64) string {
	if rate == 0 {
		return ""
	}
	for _, unit := range rateUnits {
		if rate%uint64(unit.bits) == 0 {
			return strconv.FormatUint(rate/uint64(unit.bits), 10) + unit.name
		}
	}
	return "" // not reached: the last unit divides everything
}

func formatSeed(seed uint64) string {
	if seed == 0 {
		return ""
	}
	return strconv.FormatUint(seed, 10)
}

func formatDirection(receive bool) string {
	if receive {
		return "both"
	}
	return ""
}

func parseDirection(text string) (receive bool, err error) {
	switch text {
	case "tx":
		return false, nil
	case "both":
		return true, nil
	}
	return false, strconv.ErrSyntax
}
