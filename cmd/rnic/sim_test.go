package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// runSim runs "rnic sim" with args.
func runSim(args ...string) (status int, out string) {
	var b bytes.Buffer
	root := newRoot()
	root.SetOut(&b)
	root.SetErr(&b)
	status = execute(root, append([]string{"sim"}, args...))
	return status, b.String()
}

func TestSim_Seeds_AreSummed(t *testing.T) {
	status, out := runSim("--seed", "3", "--count", "3", "--duration", "1ms", "-v")
	if status != 0 || !strings.Contains(out, "9 runs, 0 failed") {
		t.Fatalf("status %d:\n%s", status, out)
	}
	for _, seed := range []string{"seed 3: ", "seed 4: ", "seed 5: "} {
		if !strings.Contains(out, seed) {
			t.Errorf("no %q in\n%s", seed, out)
		}
	}
}

func TestSim_OneSeed_Repeats(t *testing.T) {
	trace := regexp.MustCompile(`trace [0-9a-f]{16}`)
	_, first := runSim("--seed", "8", "--world", "verbs", "--duration", "1ms", "-v")
	_, second := runSim("--seed", "8", "--world", "verbs", "--duration", "1ms", "-v", "--trace")
	if a, b := trace.FindString(first), trace.FindString(second); a == "" || a != b {
		t.Errorf("%q and %q", a, b)
	}
	if !strings.Contains(second, "completion wr_id=") {
		t.Error("--trace shows no completion")
	}
}

func TestSim_BadFlags_AreNamed(t *testing.T) {
	rows := []struct {
		args []string
		want string
	}{
		{[]string{"--faults", "terrible"}, "terrible"},
		{[]string{"--hosts", "1000000000"}, "1000000000 hosts; use 1…4096"},
		{[]string{"--hosts", "0"}, "--hosts starts at 1"},
		{[]string{"--hosts", "-5"}, "--hosts starts at 1"},
		{[]string{"--world", "brave"}, "brave"},
		{[]string{"--count", "0"}, "--count"},
		{[]string{"--count", "2", "--trace"}, "--trace"},
		{[]string{"--seed", "x"}, "--seed"},
	}
	for _, r := range rows {
		status, out := runSim(r.args...)
		if status != exitUsage || !strings.Contains(out, r.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: status %d, %q", r.args, status, out)
		}
	}
}
