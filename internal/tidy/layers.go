package tidy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// layerRow places one package. Imports go down only: a package may import packages of lower
// layers, and of its own layer those that stand above it in the table.
type layerRow struct {
	layer  int
	path   string   // below the module; "." is the root package; "dir/..." any package under dir
	impure bool     // a layer of the core, but run by a developer, never by the NIC
	only   []string // when not nil: the packages of this module it may import, whatever their layer
}

// pureLayerMax is the highest layer of the sans-I/O core (docs/adr/0001-sans-io-core.md).
const pureLayerMax = 5

// layerTable is every package of the module, from the bottom up. A package that is not here fails
// the check: adding one is a decision about where it belongs.
//
//tidy:table
var layerTable = []layerRow{
	// Vocabulary.
	{layer: 0, path: "internal/rdma"},
	{layer: 0, path: "internal/invariant"},
	{layer: 0, path: "internal/limits"},
	{layer: 0, path: "internal/clock"},

	// What crosses a boundary, byte by byte.
	{layer: 1, path: "internal/wire/ib"},
	{layer: 1, path: "internal/wire/roce"},
	{layer: 1, path: "internal/wire/mad"},
	{layer: 1, path: "internal/wire/iwarp"},
	{layer: 1, path: "internal/wire/tm"},
	{layer: 1, path: "internal/abi"},
	{layer: 1, path: "internal/abi/cheader", impure: true},
	{layer: 1, path: "internal/ring"},

	{layer: 2, path: "internal/mem"},
	{layer: 2, path: "internal/explain"},
	{layer: 3, path: "internal/engine/work"},
	{layer: 4, path: "internal/engine/ibt"},
	{layer: 4, path: "internal/engine/iwarp"},
	{layer: 4, path: "internal/engine/cm"},
	{layer: 5, path: "internal/nic"},

	// Everything that touches the outside, one thing each.
	{layer: 6, path: "internal/netio"},
	{layer: 6, path: "internal/netio/udp"},
	{layer: 6, path: "internal/netio/tcp"},
	{layer: 6, path: "internal/netio/loop"},
	{layer: 6, path: "internal/netio/faulty"},
	{layer: 6, path: "internal/netio/pcap"},
	{layer: 6, path: "internal/hostnet"},
	{layer: 6, path: "internal/shm"},
	{layer: 6, path: "internal/ctl"},
	{layer: 6, path: "internal/sim/check"},
	{layer: 6, path: "internal/sim"},
	{layer: 6, path: "internal/dropin"},

	{layer: 7, path: "internal/daemon"},
	{layer: 8, path: "verbs", only: []string{
		"internal/rdma", "internal/invariant", "internal/limits", "internal/abi", "internal/ring",
		"internal/shm", "internal/ctl", "internal/explain", "internal/wire/tm",
	}},
	{layer: 8, path: "rdmacm", only: []string{
		"internal/rdma", "internal/invariant", "internal/limits", "internal/wire/mad",
		"internal/abi", "internal/ctl", "internal/explain", "verbs",
	}},
	{layer: 8, path: "rdmacm/rnet", only: []string{"internal/invariant", "verbs", "rdmacm"}},
	{layer: 8, path: "."},
	{layer: 8, path: "internal/telemetry"},
	{layer: 8, path: "internal/rping", only: []string{"verbs", "rdmacm"}},
	{layer: 8, path: "internal/bench"},
	{layer: 8, path: "internal/bench/probe"},
	{layer: 8, path: "internal/bench/tool"},
	{layer: 8, path: "internal/bench/suite"},

	// Programs, and what only developers run.
	{layer: 9, path: "cmd/rnic"},
	{layer: 9, path: "examples/..."},
	{layer: 9, path: "test/..."},
	{layer: 9, path: "scripts/..."},
	{layer: 9, path: "clib/..."},
	{layer: 9, path: "internal/tidy"},
}

// unreachable forbids a package to depend on another at all, also through a third.
var unreachable = []struct{ from, to, why string }{
	{"verbs", "internal/nic", "an application does not link the NIC that it talks to"},
	{"verbs", "internal/engine/...", "an application does not link a transport"},
	{"rdmacm/...", "internal/nic", "an application does not link the NIC that it talks to"},
	{"rdmacm/...", "internal/engine/...", "an application does not link a transport"},
	{"internal/engine/ibt", "internal/engine/iwarp", "engines do not know each other"},
	{"internal/engine/ibt", "internal/engine/cm", "engines do not know each other"},
	{"internal/engine/iwarp", "internal/engine/ibt", "engines do not know each other"},
	{"internal/engine/iwarp", "internal/engine/cm", "engines do not know each other"},
	{"internal/engine/cm", "internal/engine/ibt", "engines do not know each other"},
	{"internal/engine/cm", "internal/engine/iwarp", "engines do not know each other"},
}

func (row layerRow) matches(dir string) bool { return matchPackage(row.path, dir) }

func matchPackage(pattern, dir string) bool {
	if under, ok := strings.CutSuffix(pattern, "/..."); ok {
		return dir == under || strings.HasPrefix(dir, under+"/")
	}
	return pattern == dir
}

// rowOf returns the place of a package in the table, or −1.
func rowOf(dir string) int {
	return slices.IndexFunc(layerTable, func(row layerRow) bool { return row.matches(dir) })
}

func isPure(dir string) bool {
	i := rowOf(dir)
	return i >= 0 && layerTable[i].layer <= pureLayerMax && !layerTable[i].impure
}

// importsOf lists the imports of a file: package path, and the name it has in the file.
func importsOf(f *goFile) map[string]string {
	out := map[string]string{}
	for _, spec := range f.ast.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has checked it
		}
		name := path.Base(full)
		if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(full))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[full] = name
	}
	return out
}

// ownDir turns an import path of this module into a directory.
func ownDir(full string) (dir string, ok bool) {
	if full == Module {
		return ".", true
	}
	return strings.CutPrefix(full, Module+"/")
}

// checkLayers looks at everything but tests, which may reach up to what they test through.
func checkLayers(r *Repo) []Problem {
	var out []Problem
	graph := map[string][]string{}
	reported := map[string]bool{}
	for _, f := range r.gos {
		from := rowOf(f.dir)
		if from < 0 {
			if !reported[f.dir] {
				text := fmt.Sprintf("package %s is not in layerTable of internal/tidy", f.dir)
				out = append(out, Problem{Path: f.path, Text: text})
			}
			reported[f.dir] = true
			continue
		}
		if f.test {
			continue
		}
		for _, spec := range f.ast.Imports {
			dir, ok := ownDir(strings.Trim(spec.Path.Value, `"`))
			if !ok || dir == f.dir {
				continue
			}
			graph[f.dir] = append(graph[f.dir], dir)
			if text := judgeImport(from, dir); text != "" {
				out = append(out, Problem{Path: f.path, Line: r.line(spec.Pos()), Text: text})
			}
		}
	}
	return append(out, checkReach(graph)...)
}

// judgeImport says what is wrong with the package in row from importing dir, or "".
func judgeImport(from int, dir string) string {
	row := layerTable[from]
	to := rowOf(dir)
	switch {
	case to < 0:
		return fmt.Sprintf("imports %s, which is not in layerTable of internal/tidy", dir)
	case row.only != nil && !slices.Contains(row.only, dir):
		return fmt.Sprintf("%s may import only %s of this module, not %s",
			row.path, strings.Join(row.only, ", "), dir)
	case layerTable[to].layer > row.layer, layerTable[to].layer == row.layer && to > from:
		return fmt.Sprintf("%s (layer %d) imports %s (layer %d): imports go down only",
			row.path, row.layer, dir, layerTable[to].layer)
	}
	return ""
}

// architecture has the table of layers for people.
const architecture = "docs/ARCHITECTURE.md"

// checkRows finds rows of the table whose package is gone, and rows that people are not told of.
func checkRows(r *Repo) []Problem {
	var out []Problem
	told := string(r.read(architecture))
	for _, row := range layerTable {
		if !isTold(told, strings.TrimSuffix(row.path, "/...")) {
			text := fmt.Sprintf("does not name %s, which layerTable has", row.path)
			out = append(out, Problem{Path: architecture, Text: text})
		}
		lives := func(f *goFile) bool { return row.matches(f.dir) }
		if !slices.ContainsFunc(r.gos, lives) {
			text := fmt.Sprintf("layerTable has a row for %s, which has no Go file", row.path)
			out = append(out, Problem{Path: "internal/tidy/layers.go", Text: text})
		}
	}
	return out
}

// isTold reports whether a document names a package, or one around it "and below".
func isTold(document, dir string) bool {
	if dir == "." {
		return strings.Contains(document, "the root package")
	}
	if strings.Contains(document, "`"+dir+"`") {
		return true
	}
	for parent := path.Dir(dir); parent != "."; parent = path.Dir(parent) {
		if strings.Contains(document, "`"+parent+"` and below") {
			return true
		}
	}
	return false
}

func checkReach(graph map[string][]string) []Problem {
	var out []Problem
	for _, start := range sortedKeys(graph) {
		reached := map[string]bool{}
		queue := slices.Clone(graph[start])
		for len(queue) > 0 {
			dir := queue[0]
			queue = queue[1:]
			if dir == start || reached[dir] {
				continue
			}
			reached[dir] = true
			queue = append(queue, graph[dir]...)
		}
		for _, ban := range unreachable {
			if !matchPackage(ban.from, start) {
				continue
			}
			for _, dir := range sortedKeys(reached) {
				if matchPackage(ban.to, dir) {
					text := fmt.Sprintf("depends on %s: %s", dir, ban.why)
					out = append(out, Problem{Path: start, Text: text})
				}
			}
		}
	}
	return out
}
