package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runBench runs "rnic bench" with the shortest programs.
func runBench(args ...string) (status int, out, errors string) {
	var b, e bytes.Buffer
	root := newRoot()
	root.SetOut(&b)
	root.SetErr(&e)
	status = execute(root, append([]string{"bench", "--rounds", "1", "--length", "0.00001"}, args...))
	return status, b.String(), e.String()
}

// playEnv makes the test program rnic itself, which "rnic bench" starts for its NIC and for the
// programs that measure.
const playEnv = "SOFTRNIC_TEST_RNIC"

func TestMain(m *testing.M) {
	if os.Getenv(playEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

func TestBench_ARow_IsMeasuredStoredAndCompared(t *testing.T) {
	t.Setenv(playEnv, "1")
	dir := filepath.Join(t.TempDir(), "report")
	status, out, errors := runBench("--only", "many queue pairs: cost.*100 ", "--out", dir)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errors)
	}
	for _, want := range []string{
		"\nMany queue pairs: cost of an operation\n", "100 queue pairs", " ns (",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, name := range []string{"README.md", "run.json", "scale-cost.svg"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	_, out, _ = runBench("--only", "many queue pairs: cost.*100 ", "--out", dir)
	if !strings.Contains(out, "\ncompared with the stored run") {
		t.Errorf("nothing is compared:\n%s", out)
	}
}
