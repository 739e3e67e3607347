package work

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// slowTag and slowList are a matching list as a slice, in which every question is answered by
// looking at all of it.
type slowTag struct {
	handle    uint32
	tag, mask uint64
	waits     bool
}

type slowList struct {
	room       int
	list       []slowTag
	unexpected uint32
	handled    uint32
}

func (s *slowList) match(tag uint64) (uint32, bool) {
	i := slices.IndexFunc(s.list, func(t slowTag) bool { return !t.waits && tag&t.mask == t.tag })
	if i < 0 {
		return 0, false
	}
	handle := s.list[i].handle
	s.list = slices.Delete(s.list, i, i+1)
	return handle, true
}

func (s *slowList) add(t slowTag) {
	t.waits = s.unexpected != s.handled || slices.ContainsFunc(s.list, func(o slowTag) bool {
		return o.waits
	})
	s.list = append(s.list, t)
	s.room--
}

func (s *slowList) sync(handled uint32) {
	s.handled = handled
	for i := range s.list {
		s.list[i].waits = s.list[i].waits && s.unexpected != s.handled
	}
}

func (s *slowList) del(handle uint32) bool {
	before := len(s.list)
	s.list = slices.DeleteFunc(s.list, func(t slowTag) bool { return t.handle == handle })
	return len(s.list) < before
}

// TestTagList_AnySequence_EqualsSlowModel: which buffer is matched, and how much room there is.
func TestTagList_AnySequence_EqualsSlowModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(rt, "room")
		l, slow := NewTagList(uint32(n)), &slowList{room: n}
		var inUse []*Tagged
		next := rapid.Uint32().Draw(rt, "first handle")
		tag := rapid.Uint64Range(0, 3)
		steps := map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				b := l.Spare(2)
				if (b == nil) != (slow.room == 0) {
					rt.Fatalf("spare %v, room %d", b, slow.room)
				}
				if b == nil {
					return
				}
				b.Handle, b.Mask = next, tag.Draw(rt, "mask")
				b.Tag = tag.Draw(rt, "tag")
				l.Add(b)
				slow.add(slowTag{handle: next, tag: b.Tag, mask: b.Mask})
				next += rapid.Uint32Range(1, 5).Draw(rt, "skip")
			},
			"del": func(rt *rapid.T) {
				h := next - rapid.Uint32Range(0, 20).Draw(rt, "back")
				got, want := l.Del(h), slow.del(h)
				if got != want {
					rt.Fatalf("del %d: %v", h, got)
				}
				if got {
					slow.room++
				}
			},
			"match": func(rt *rapid.T) {
				v := tag.Draw(rt, "tag")
				b := l.Match(v)
				handle, ok := slow.match(v)
				if (b != nil) != ok || ok && b.Handle != handle {
					rt.Fatalf("match %d: %v, want %d %v", v, b, handle, ok)
				}
				if ok {
					inUse = append(inUse, b)
					return
				}
				l.NoteUnexpected()
				slow.unexpected++
			},
			"release": func(*rapid.T) {
				if len(inUse) > 0 {
					l.Release(inUse[0])
					inUse = inUse[1:]
					slow.room++
				}
			},
			"sync": func(rt *rapid.T) {
				count := slow.unexpected + rapid.Uint32Range(0, 2).Draw(rt, "ahead") - 1
				l.Sync(count)
				slow.sync(count)
				if l.IsSynced() != (slow.unexpected == slow.handled) {
					rt.Fatal("synced")
				}
			},
		}
		steps[""] = func(rt *rapid.T) {
			seen, handled := l.Unexpected()
			if l.Used() != n-slow.room || seen != slow.unexpected || handled != slow.handled {
				rt.Fatalf("%d used, %d seen, %d handled; want %+v", l.Used(), seen, handled, slow)
			}
		}
		rt.Repeat(steps)
	})
}

// TestTagList_Debt_IsTold once the program is far behind, and while it claims to be ahead.
func TestTagList_Debt_IsTold(t *testing.T) {
	l := NewTagList(1)
	for i := range limits.MaxTagDebt + 2 {
		want := rdma.WCFlags(0)
		if i >= limits.MaxTagDebt {
			want = rdma.WCTagSyncWanted
		}
		if got := l.NoteUnexpected(); got != want {
			t.Fatalf("message %d: %#x", i, got)
		}
	}
	l.Sync(limits.MaxTagDebt + 10)
	if l.NoteUnexpected() != rdma.WCTagSyncWanted {
		t.Error("a count of messages that were not there is not noticed")
	}
	l.Sync(limits.MaxTagDebt + 3)
	if !l.IsSynced() || l.NoteUnexpected() != 0 {
		t.Error("not in step again")
	}
}
