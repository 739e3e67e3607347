package check

import "testing"

func TestSlot_WholeValues_ArePassed(t *testing.T) {
	var c Court
	s := NewSlot(&c, "slot", 5)
	s.See(5)
	s.Post(1, 10)
	s.See(5)
	s.See(10)
	moment := s.Now()
	s.Post(2, 20)
	s.Succeed(10)
	s.See(10)
	s.See(20) // may have come first or last
	s.Succeed(20)
	s.See(10) // both were open at once: their order is not known
	s.SawSince(moment, 5)
	s.Post(1, 30)
	s.Succeed(30)
	s.See(30)
	if c.HasFailed() {
		t.Errorf("%v", c.Failures())
	}
}

func TestSlot_Faults_AreFound(t *testing.T) {
	for name, do := range map[string]func(s *Slot){
		"a mixture of two values": func(s *Slot) {
			s.Post(1, 0x1111222233334444)
			s.Post(1, 0x5555666677778888)
			s.See(0x5555666633334444)
		},
		"the first value after a success": func(s *Slot) {
			s.Post(1, 10)
			s.Succeed(10)
			s.See(5)
		},
		"an older value of the same queue pair": func(s *Slot) {
			s.Post(1, 10)
			s.Post(1, 11)
			s.Succeed(10)
			s.Succeed(11)
			s.See(10)
		},
		"a value that was there before another was posted": func(s *Slot) {
			s.Post(1, 10)
			s.Succeed(10)
			s.Post(2, 20)
			s.Succeed(20)
			s.See(10)
		},
		"a read that began after a value was replaced": func(s *Slot) {
			s.Post(1, 10)
			s.Succeed(10)
			s.SawSince(s.Now(), 5)
		},
	} {
		var c Court
		do(NewSlot(&c, "slot", 5))
		if !c.HasFailed() {
			t.Errorf("%s: passed", name)
		}
	}
}
