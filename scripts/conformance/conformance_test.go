package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestData_Headers_EveryFunctionHasARow reads the headers that are installed: what rdma-core offers
// is in the tables, whatever we do with it.
func TestData_Headers_EveryFunctionHasARow(t *testing.T) {
	listed := map[string]bool{}
	for _, d := range documents {
		sections, err := readData(filepath.Join("data", d.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sections {
			for _, r := range s.rows {
				if listed[r.name] {
					t.Errorf("%s: %s is there twice", r.at, r.name)
				}
				listed[r.name] = true
			}
		}
	}
	declared := regexp.MustCompile(
		`(?m)^(?:static inline |extern )?[a-z_][\w\s\*]*?\b\*?((?:ibv|rdma|mult|mbps|r)[a-z_0-9]*)\s*\(`)
	found := 0
	for _, name := range []string{
		"infiniband/verbs.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h", "rdma/rsocket.h",
	} {
		text, err := os.ReadFile(filepath.Join("/usr/include", name))
		if err != nil {
			t.Skipf("%s is not installed: scripts/deps.sh build", name)
		}
		for _, m := range declared.FindAllStringSubmatch(comment.ReplaceAllString(string(text), ""), -1) {
			found++
			if !listed[m[1]] {
				t.Errorf("%s of %s has no row", m[1], name)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d functions were found", found)
	}
}

func TestSources_Refusals_AreKnownFromWorkingFunctions(t *testing.T) {
	s, err := readSources(filepath.Join(root, "clib"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"ibv_create_qp": false, "ibv_fork_init": false, "post_send": false,
	} {
		if s.refuses(name) != want {
			t.Errorf("%s refuses: %v", name, !want)
		}
		if s.functions[name] == "" {
			t.Errorf("%s was not found", name)
		}
	}
	for _, name := range []string{"ibv_create_qp", "rdma_connect"} {
		if !s.exported[name] {
			t.Errorf("%s is not exported", name)
		}
	}
	for _, body := range []string{
		"\n\t(void)qp, (void)mask;\n\treturn EOPNOTSUPP;", "\n\terrno = EOPNOTSUPP;\n\treturn NULL;",
		"\n\treturn rnic_fail(EOPNOTSUPP);",
	} {
		s.functions["x"] = body
		if !s.refuses("x") {
			t.Errorf("%q refuses", body)
		}
	}
	s.functions["x"] = "\n\tif (flags)\n\t\treturn EOPNOTSUPP;\n\treturn 0;"
	if s.refuses("x") {
		t.Error("a function that refuses some arguments counts as one that refuses all")
	}
}

func TestTests_FoundByNameAndByCall(t *testing.T) {
	tests, err := findTests(root)
	if err != nil {
		t.Fatal(err)
	}
	if !tests.exists("TestTests_FoundByNameAndByCall") || !tests.exists("TestSuite/test_mr") ||
		tests.exists("TestNothingOfTheKind") {
		t.Error("names of tests")
	}
	for _, f := range []string{"ibv_reg_mr", "ibv_query_port", "rdma_connect", "ibv_post_srq_recv"} {
		if len(tests.of(f)) == 0 {
			t.Errorf("no test calls %s", f)
		}
	}
	if list := tests.of("ibv_does_not_exist"); len(list) > 0 {
		t.Errorf("%v call what does not exist", list)
	}
}

func TestRender_UnknownTest_Fails(t *testing.T) {
	tests, err := findTests(root)
	if err != nil {
		t.Fatal(err)
	}
	j := newJudge(&sources{}, tests, map[string]exception{
		"IBV_QPT_UD": {verdict: "absent"},
	})
	rows := func(test, where string) []part {
		return []part{{title: "x", sections: []section{{title: "y", rows: []row{{
			name: "IBV_QPT_RC", where: where, rxe: "+", siw: "-EINVAL", mlx5: "lib",
			tests: strings.Fields(test), at: "here",
		}}}}}}
	}
	if _, err := j.render(rows("TestNothingOfTheKind", "qpt 2")); err == nil ||
		!strings.Contains(err.Error(), "TestNothingOfTheKind") {
		t.Errorf("a test that does not exist: %v", err)
	}
	text, err := j.render(rows("TestRender_UnknownTest_Fails", "qpt 2"))
	want := "| `IBV_QPT_RC` | works | works | works | EINVAL | library |" +
		" `TestRender_UnknownTest_Fails` |  |"
	if err != nil || !strings.Contains(text, want) {
		t.Errorf("%v:\n%s", err, text)
	}
	raw, _ := j.render(rows("", "qpt 8"))
	if text := raw; !strings.Contains(text, "| EOPNOTSUPP | EOPNOTSUPP | works |") {
		t.Errorf("a raw queue pair:\n%s", text)
	}
	if text, _ := j.render(rows("", "qpt 3")); !strings.Contains(text, "| works | EOPNOTSUPP |") {
		t.Errorf("UC is none of iWARP:\n%s", text)
	}
	if err := j.unused(); err == nil || !strings.Contains(err.Error(), "IBV_QPT_UD") {
		t.Errorf("an exception without a row: %v", err)
	}
	if _, err := j.render(rows("", "nonsense 8")); err == nil {
		t.Error("nonsense was answered")
	}
}
