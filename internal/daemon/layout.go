package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// layout is how the port presents its addresses: programs that choose a GID by its place, or a
// path by the link layer, find what the adapters that they were written for have (ADR 0016).
type layout struct {
	types []rdma.GIDType // of the entries that each address has; nil means RoCE v2 alone
	// linkLocalFirst keeps the first place for a link-local address, as the Linux kernel does,
	// also where there is none.
	linkLocalFirst bool
	infiniband     bool
}

// layouts by name. Adapters with one name in the kernel's table of GID types look alike.
//
//tidy:table
var layouts = map[string]layout{
	"":      {},
	"rxe":   {linkLocalFirst: true},
	"irdma": {linkLocalFirst: true},
	"mlx5":  {types: bothRoCE, linkLocalFirst: true},
	"bnxt":  {types: bothRoCE, linkLocalFirst: true},
	"ib":    {types: []rdma.GIDType{rdma.GIDTypeIB}, infiniband: true},
}

var (
	onlyV2   = []rdma.GIDType{rdma.GIDTypeRoCEv2}
	bothRoCE = []rdma.GIDType{rdma.GIDTypeRoCEv1, rdma.GIDTypeRoCEv2}
)

func (l *layout) entryTypes() []rdma.GIDType {
	if l.types == nil {
		return onlyV2
	}
	return l.types
}

// CheckLayout reports a name that Config.Layout cannot have.
func CheckLayout(name string) error {
	if _, known := layouts[name]; known {
		return nil
	}
	names := slices.Sorted(maps.Keys(layouts))
	return fmt.Errorf("daemon: layout %q is none of %s", name, strings.Join(names[1:], ", "))
}

// entries are those that a source wants, in the order of their places.
func (l *layout) entries(s *gidSource) []abi.GIDEntry {
	types := l.entryTypes()
	out := make([]abi.GIDEntry, len(types))
	for i, t := range types {
		out[i] = s.entry(t)
	}
	return out
}

// from is the first place that a source may take.
func (l *layout) from(s *gidSource) int {
	if l.linkLocalFirst && !isLinkLocal(s) {
		return len(l.entryTypes())
	}
	return 0
}

// arrange puts the sources in the order in which they take places: like the kernel, the link-local
// address, then IPv4, then the rest.
func (l *layout) arrange(sources []gidSource) []gidSource {
	if !l.linkLocalFirst {
		return sources
	}
	rank := func(s gidSource) int {
		switch {
		case isLinkLocal(&s):
			return 0
		case s.addr.Is4():
			return 1
		}
		return 2
	}
	sources = slices.Clone(sources)
	slices.SortStableFunc(sources, func(a, b gidSource) int { return rank(a) - rank(b) })
	return sources
}

func isLinkLocal(s *gidSource) bool { return s.addr.Is6() && s.addr.IsLinkLocalUnicast() }
