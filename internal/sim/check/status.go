package check

import "github.com/softrnic/softrnic/internal/rdma"

// StatusSet is a set of completion statuses.
type StatusSet uint32

// Statuses makes a set.
func Statuses(list ...rdma.WCStatus) StatusSet {
	var s StatusSet
	for _, v := range list {
		s |= 1 << v
	}
	return s
}

// Has reports whether v is in the set; an unknown status is in none.
func (s StatusSet) Has(v rdma.WCStatus) bool { return v < 32 && s>>v&1 != 0 }

func (s StatusSet) String() string {
	out := "{"
	for v := range rdma.WCStatus(32) {
		if s.Has(v) {
			if len(out) > 1 {
				out += ", "
			}
			out += v.String()
		}
	}
	return out + "}"
}
