package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func render(t *testing.T, events string) (string, *report) {
	t.Helper()
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.finish()
	return out.String(), r
}

func line(action, test, output string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":"m/p","Test":%q,"Output":%q,"Elapsed":0.5}`,
		action, test, output) + "\n"
}

func TestReport_PassingTests_PrintsPackageAndCounts(t *testing.T) {
	got, r := render(t, line("run", "TestA", "")+line("run", "TestA/x", "")+
		line("output", "TestA/x", "quiet\n")+line("pass", "TestA/x", "")+line("pass", "TestA", "")+
		line("pass", "", ""))
	if want := "ok  \tm/p\t0.500s\n\n1 passed, 0 failed, 0 skipped\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.failed != 0 || r.ran() != 1 {
		t.Errorf("failed %d of %d", r.failed, r.ran())
	}
}

func TestReport_SkippedTest_PrintsReason(t *testing.T) {
	got, _ := render(t, line("run", "TestA", "")+
		line("output", "TestA", "=== RUN   TestA\n")+
		line("output", "TestA", "    a_test.go:7: needs root: makes a namespace\n")+
		line("output", "TestA", "--- SKIP: TestA (0.00s)\n")+
		line("skip", "TestA", "")+line("pass", "", ""))
	want := "skipped:\n  needs root: makes a namespace\n      p.TestA\n\n" +
		"0 passed, 0 failed, 1 skipped\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want it to end %q", got, want)
	}
}

func TestReport_FailedTest_PrintsItsOutputOnly(t *testing.T) {
	got, r := render(t, line("run", "TestA", "")+line("output", "TestA", "fine\n")+
		line("pass", "TestA", "")+line("run", "TestB", "")+line("output", "TestB", "broken\n")+
		line("fail", "TestB", "")+line("output", "", "FAIL\n")+line("fail", "", ""))
	if want := "broken\nFAIL\n\n1 passed, 1 failed, 0 skipped\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if r.failed != 1 {
		t.Errorf("failed = %d", r.failed)
	}
}

func TestReport_BrokenBuild_Fails(t *testing.T) {
	got, r := render(t, `{"Action":"build-output","ImportPath":"m/p","Output":"a.go:1: oops\n"}`+
		"\n"+line("output", "", "FAIL\tm/p [build failed]\n")+line("fail", "", ""))
	if !strings.HasPrefix(got, "a.go:1: oops\nFAIL\tm/p [build failed]\n") || r.failed != 1 {
		t.Errorf("got %q, failed %d", got, r.failed)
	}
}

func TestReport_LineOfAnotherForm_IsPassedOn(t *testing.T) {
	if got, _ := render(t, "not an event\n"); !strings.HasPrefix(got, "not an event\n") {
		t.Errorf("got %q", got)
	}
}

func TestSplitRuns_Separators_MakeRuns(t *testing.T) {
	got := splitRuns([]string{"-race", "./a", "--", "./b"})
	if want := [][]string{{"-race", "./a"}, {"./b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestReport_SlowTest_HasALine(t *testing.T) {
	slow := `{"Action":"pass","Package":"m/p","Test":"TestA/b","Elapsed":12.4}` + "\n" +
		`{"Action":"pass","Package":"m/p","Test":"TestA/b/c","Elapsed":12.4}` + "\n"
	got, _ := render(t, slow)
	if want := "    pass after 12s: p.TestA/b\n\n2 passed, 0 failed, 0 skipped\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
