package check

// Slot judges a word that queue pairs overwrite whole, by ATOMIC WRITE: whoever looks sees a value
// that somebody posted, never a mixture of two (IBTA A19.4.4), and none that a later one has
// replaced for certain. Every value is posted once.
type Slot struct {
	Court *Court
	Name  string

	now    uint64 // counts what the judge was told
	seen   uint64 // the value that was judged last, and when
	seenAt uint64
	values map[uint64]*slotValue
	alive  []*slotValue
}

// slotValue is a value that the word may hold from when it was posted until it is replaced.
type slotValue struct {
	value    uint64
	from     uint64
	posted   uint64
	stored   uint64 // when it was known to have been there; 0: not yet
	replaced uint64 // when it was known to be gone; 0: not yet
}

// NewSlot makes the judge of a word that holds start.
func NewSlot(court *Court, name string, start uint64) *Slot {
	s := &Slot{Court: court, Name: name, now: 1, values: make(map[uint64]*slotValue)}
	s.add(&slotValue{value: start, posted: 1, stored: 1})
	return s
}

func (s *Slot) add(v *slotValue) {
	s.values[v.value] = v
	s.alive = append(s.alive, v)
}

// Post records that a queue pair is to store a value. From tells queue pairs of all hosts apart.
func (s *Slot) Post(from, value uint64) {
	s.now++
	s.add(&slotValue{value: value, from: from, posted: s.now})
}

// Succeed records that the ATOMIC WRITE of a value succeeded. It replaced what the same queue pair
// had posted before, and what was known to be there before it was posted. What failed may still
// come: its outcome is not known.
func (s *Slot) Succeed(value uint64) {
	s.now++
	v := s.values[value]
	v.stored = s.now
	kept := s.alive[:0]
	for _, x := range s.alive {
		isOlder := x.from == v.from && x.posted < v.posted || x.stored != 0 && x.stored < v.posted
		if x != v && isOlder {
			x.replaced = s.now
			continue
		}
		kept = append(kept, x)
	}
	s.alive = kept
}

// Now returns a moment for SawSince.
func (s *Slot) Now() uint64 { return s.now }

// See judges what the word holds now. Programs look often, and mostly at what they saw before.
func (s *Slot) See(value uint64) {
	if value == s.seen && s.now == s.seenAt {
		return
	}
	s.seen, s.seenAt = value, s.now
	s.SawSince(s.now, value)
}

// SawSince judges what somebody saw in the word at some time since a moment.
func (s *Slot) SawSince(moment, value uint64) {
	v := s.values[value]
	switch {
	case v == nil:
		s.Court.Failf("%s: holds %#x, which nobody stored", s.Name, value)
	case v.replaced != 0 && v.replaced <= moment:
		s.Court.Failf("%s: holds %#x again, which was replaced before", s.Name, value)
	}
}
