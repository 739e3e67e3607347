package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func writeFile(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
}

func TestFindProgram_SearchPath_LikeAShell(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	writeFile(t, filepath.Join(two, "both"), 0o755)
	writeFile(t, filepath.Join(one, "both"), 0o755)
	writeFile(t, filepath.Join(one, "later"), 0o644) // not executable: the search goes on
	writeFile(t, filepath.Join(two, "later"), 0o755)
	writeFile(t, filepath.Join(one, "plain"), 0o644)
	if err := os.Mkdir(filepath.Join(one, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", one+":"+two+":"+filepath.Join(dir, "absent"))
	for _, row := range []struct {
		name, path string
		status     int
	}{
		{"both", filepath.Join(one, "both"), 0},
		{"later", filepath.Join(two, "later"), 0},
		{"plain", "", exitNotExecutable},
		{"directory", "", exitNotExecutable},
		{"nothing", "", exitNotFound},
		{filepath.Join(two, "later"), filepath.Join(two, "later"), 0},
		{filepath.Join(one, "plain"), "", exitNotExecutable},
		{filepath.Join(one, "nothing"), "", exitNotFound},
		{filepath.Join(one, "plain", "below"), "", exitNotFound},
	} {
		p, err := findProgram([]string{row.name, "argument"})
		var f *failure
		if errors.As(err, &f) && f.status != row.status || err == nil != (row.status == 0) {
			t.Errorf("%s: %v", row.name, err)
		}
		if p.path != row.path || err == nil && !slices.Equal(p.args, []string{row.name, "argument"}) {
			t.Errorf("%s: %+v", row.name, p)
		}
	}
}

func TestProgramEnvironment_Keeps_WhatIsNotOurs(t *testing.T) {
	env := []string{"A=1", "LD_LIBRARY_PATH=/x:/libs:/y", "RNIC_SOCKET=/old", "B=2=3"}
	got := programEnvironment(env, "/libs", "/new")
	want := []string{"A=1", "B=2=3", "LD_LIBRARY_PATH=/libs:/x:/y", "RNIC_SOCKET=/new"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	got = programEnvironment(nil, "/libs", "/new")
	if want = []string{"LD_LIBRARY_PATH=/libs", "RNIC_SOCKET=/new"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	// Running it on its own result changes nothing.
	if again := programEnvironment(got, "/libs", "/new"); !slices.Equal(again, got) {
		t.Errorf("%q, not %q", again, got)
	}
}

func TestGainsPrivileges_ModeAndOwner_Decide(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	writeFile(t, path, 0o755)
	p := program{path: path}
	if why := p.gainsPrivileges(); why != "" {
		t.Errorf("an ordinary program %s", why)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if why := p.gainsPrivileges(); why != "" {
		t.Errorf("our own program %s", why) // it gains nothing
	}
	if os.Geteuid() != 0 {
		t.Skip("a program of another user needs root")
	}
	if err := os.Chown(path, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if why := p.gainsPrivileges(); !strings.Contains(why, "set-user-ID") {
		t.Errorf("%q", why)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if why := p.gainsPrivileges(); !strings.Contains(why, "set-group-ID") {
		t.Errorf("%q", why)
	}
}

func TestPreload_KeepsOthersBehind(t *testing.T) {
	for before, want := range map[string]string{
		"":              "LD_PRELOAD=/l/a.so",
		"x.so":          "LD_PRELOAD=/l/a.so:x.so",
		"x.so /l/a.so":  "LD_PRELOAD=/l/a.so:x.so",
		"/l/a.so:y.so ": "LD_PRELOAD=/l/a.so:y.so",
	} {
		env := preload([]string{"A=1", "LD_PRELOAD=" + before, "B=2"}, "/l/a.so")
		if got := env[len(env)-1]; got != want || len(env) != 3 {
			t.Errorf("%q becomes %q", before, env)
		}
	}
}
