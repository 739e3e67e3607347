package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// flaky is a package of which TestTwice/in_turn fails the first time, and the others as their names
// say.
const flaky = `package flaky

import (
	"os"
	"testing"
)

func TestTwice(t *testing.T) {
	t.Run("in turn", func(t *testing.T) {
		if os.Mkdir(os.Getenv("MARK"), 0o700) == nil {
			t.Error("the first time")
		}
	})
	t.Run("fine", func(*testing.T) {})
}

func TestNever(t *testing.T) { t.Error("as ever") }

func TestCrash(t *testing.T) {
	if os.Mkdir(os.Getenv("MARK"), 0o700) == nil {
		panic("once")
	}
}
`

// play runs tests of flaky by name, as the command does.
func play(t *testing.T, name string, isAgain bool) bool {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module flaky\n\ngo 1.26\n", "flaky_test.go": flaky,
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("MARK", filepath.Join(dir, "mark"))
	t.Setenv("GOFLAGS", "-mod=mod")
	failed, err := run([]string{"-count=1", "-timeout", "5m", "-run", name, "."}, isAgain)
	if err != nil {
		t.Fatal(err)
	}
	return failed
}

func TestRun_TestThatFailsOnce_PassesOnlyWhenRunAgain(t *testing.T) {
	if !play(t, "TestTwice", false) {
		t.Error("passed though it failed, and nobody asked to run it again")
	}
	if play(t, "TestTwice", true) {
		t.Error("failed though it passed when run again")
	}
}

func TestRun_TestThatAlwaysFails_Fails(t *testing.T) {
	if !play(t, "TestNever", true) || !play(t, "TestNever|TestTwice", true) {
		t.Error("passed")
	}
}

func TestRun_TestThatCrashed_IsNotRunAgain(t *testing.T) {
	if !play(t, "TestCrash", true) {
		t.Error("a crash was forgotten")
	}
}

func TestReport_DataRace_IsACrash(t *testing.T) {
	_, r := render(t, line("run", "TestA", "")+line("run", "TestA/x", "")+
		line("output", "TestA", "WARNING: DATA RACE\n")+line("fail", "TestA/x", "")+
		line("fail", "TestA", "")+line("fail", "", ""))
	want := []failure{{pkg: "m/p", test: "TestA/x", crashed: true}}
	if !reflect.DeepEqual(r.failures, want) {
		t.Errorf("got %+v, want %+v", r.failures, want)
	}
}

func TestArgumentsFor_SubTest_KeepsOptionsAndNamesItAlone(t *testing.T) {
	args := []string{"-race", "-p", "1", "-timeout", "30m", "./a/...", ".", "./b"}
	got := argumentsFor(args, failure{pkg: "m/a", test: "TestA/x+y"})
	want := `-race -p 1 -timeout 30m -count=1 -run ^TestA$/^x\+y$ m/a`
	if strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
