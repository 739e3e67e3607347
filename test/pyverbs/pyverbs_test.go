package pyverbs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// row is one line of testdata/skips.txt.
type row struct {
	test, why, reason string
}

// has reports that a test has given a reason of the row.
func (r *row) has(reason string) bool {
	return slices.ContainsFunc(strings.Split(r.reason, " | "), func(part string) bool {
		return strings.Contains(reason, part)
	})
}

// Why a test may skip: see testdata/skips.txt.
const (
	whyAbsent  = "absent"
	whyMachine = "machine"
)

// readSkips reads the list of tests that may skip themselves.
func readSkips(t *testing.T) map[string]*row {
	t.Helper()
	content, err := os.ReadFile("testdata/skips.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]*row{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 || !slices.Contains([]string{whyAbsent, whyMachine}, fields[0]) {
			t.Fatalf("testdata/skips.txt: %q is not: why test reason", line)
		}
		r := &row{why: fields[0], test: fields[1], reason: strings.TrimSpace(fields[2])}
		if rows[r.test] != nil {
			t.Fatalf("testdata/skips.txt: %s is there twice", r.test)
		}
		rows[r.test] = r
	}
	return rows
}

// findRNIC returns the binary under test.
func findRNIC(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RNIC_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "rnic")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no binary to test, run make build: %v", err)
	}
	return path
}

func TestSuite(t *testing.T) {
	j := &judge{rnic: findRNIC(t), python: findPython(t)}
	suite, modules := unpackSuite(t)
	j.suite = suite
	skips := readSkips(t)
	lendHugePages(t)
	count := map[string]int{}
	for _, module := range modules {
		t.Run(module, func(t *testing.T) {
			for _, o := range j.runModule(t, module) {
				count[o.Result]++
				name := strings.TrimPrefix(o.Test, "tests."+module+".")
				t.Run(name, func(t *testing.T) { settle(t, &o, skips[module+"."+name]) })
			}
		})
	}
	t.Logf("%d passed, %d skipped, %d failed, %d errors, %d crashes", count["ok"],
		count["skip"], count["fail"], count["error"], count["started"])
}

// settle compares what became of a test with the list.
func settle(t *testing.T, o *outcome, listed *row) {
	switch {
	case o.Result == "ok":
		if listed != nil && listed.why == whyAbsent {
			t.Error("the test passes: its row in testdata/skips.txt is stale")
		}
	case o.Result != "skip":
		t.Errorf("%s:\n%s", o.Result, o.Reason)
	case listed == nil:
		t.Errorf("it skips itself, which testdata/skips.txt does not list: %s", o.Reason)
	case !listed.has(o.Reason):
		t.Errorf("it skips itself for %q; listed is %q", o.Reason, listed.reason)
	default:
		t.Skip(o.Reason)
	}
}
