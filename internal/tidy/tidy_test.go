package tidy

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestRepository_IsTidy(t *testing.T) {
	r, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.gos) == 0 {
		t.Fatal("no Go file found")
	}
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) {
			for _, p := range check.Run(r) {
				t.Error(p)
			}
		})
	}
}

// repo makes a repository of files that are, besides, in order.
func repo(t *testing.T, files map[string]string) *Repo {
	t.Helper()
	fsys := fstest.MapFS{}
	var names []string
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
		names = append(names, name)
	}
	r, err := New(fsys, names)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCheckRows_PackageGone_IsReported(t *testing.T) {
	var all strings.Builder
	for _, row := range layerTable {
		all.WriteString("`" + strings.TrimSuffix(row.path, "/...") + "` ")
	}
	all.WriteString("the root package")
	got := checkRows(repo(t, map[string]string{
		"internal/rdma/a.go": "package rdma", architecture: all.String(),
	}))
	if len(got) != len(layerTable)-1 {
		t.Errorf("%d of %d rows reported, want all but one", len(got), len(layerTable))
	}
	for _, p := range got {
		if strings.Contains(p.Text, "internal/rdma,") {
			t.Errorf("a package that is there is reported: %v", p)
		}
	}
}

func TestCheckRows_PackageUntold_IsReported(t *testing.T) {
	for document, want := range map[string]bool{
		"": false, "`internal/netio`": false, "`internal/netio/udp`": true,
		"`internal/netio` and below": true, "`internal/netio/udpx`": false,
	} {
		if got := isTold(document, "internal/netio/udp"); got != want {
			t.Errorf("%q: %v", document, got)
		}
	}
	for _, p := range checkRows(repo(t, map[string]string{architecture: "`internal/rdma`"})) {
		if p.Path == architecture && strings.Contains(p.Text, " internal/rdma,") {
			t.Errorf("a package that is named is reported: %v", p)
		}
	}
}

func lines(n int, line string) string { return strings.Repeat(line+"\n", n) }

type brokenCase struct {
	name  string
	check func(*Repo) []Problem
	files map[string]string
	want  string // in the one problem; "" means that nothing is wrong
}

func (c brokenCase) run(t *testing.T) {
	got := c.check(repo(t, c.files))
	if c.want == "" {
		if len(got) != 0 {
			t.Errorf("got %v, want nothing", got)
		}
		return
	}
	if len(got) != 1 || !strings.Contains(got[0].String(), c.want) {
		t.Errorf("got %v, want one problem with %q", got, c.want)
	}
}

const own = `import "` + Module + "/"

//tidy:table
var brokenCode = []brokenCase{
	{"unknown package", checkLayers, map[string]string{
		"internal/novel/a.go": "package novel",
	}, "internal/novel is not in layerTable"},
	{"import down", checkLayers, map[string]string{
		"internal/nic/a.go": "package nic\n" + own + `internal/mem"`,
	}, ""},
	{"import up", checkLayers, map[string]string{
		"internal/mem/a.go": "package mem\n" + own + `internal/nic"`,
	}, "a.go:2: internal/mem (layer 2) imports internal/nic (layer 5)"},
	{"import up from a test", checkLayers, map[string]string{
		"internal/mem/a_test.go": "package mem\n" + own + `internal/nic"`,
	}, ""},
	{"import up within a layer", checkLayers, map[string]string{
		"internal/rdma/a.go": "package rdma\n" + own + `internal/clock"`,
	}, "imports go down only"},
	{"verbs beyond its list", checkLayers, map[string]string{
		"verbs/a.go": "package verbs\n" + own + `internal/hostnet"`,
	}, "verbs may import only"},
	{"verbs reaches the NIC through another", checkLayers, map[string]string{
		"verbs/a.go":        "package verbs\n" + own + `internal/ctl"`,
		"internal/ctl/a.go": "package ctl\n" + own + `internal/nic"`,
	}, "verbs: depends on internal/nic"},
	{"operating system in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\n" + `import "os"`,
	}, "import of os"},
	{"dependency in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\n" + `import "golang.org/x/sys/unix"`,
	}, "import of golang.org/x/sys/unix"},
	{"address type in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\n" + `import "net/netip"`,
	}, ""},
	{"clock in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nimport t \"time\"\nvar x = t.Now()",
	}, "a.go:3: the core is pure: time.Now"},
	{"duration in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nimport \"time\"\nvar x = time.Second",
	}, ""},
	{"shared randomness in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nimport \"math/rand/v2\"\nvar x = rand.Uint32()",
	}, "math/rand/v2.Uint32"},
	{"own randomness in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nimport \"math/rand/v2\"\n" +
			"func f(r *rand.Rand) uint32 { return r.Uint32() }",
	}, ""},
	{"error number in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nimport \"syscall\"\n" +
			"var x syscall.Errno = syscall.EINVAL",
	}, ""},
	{"system call in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nimport \"syscall\"\nvar x = syscall.Getpid()",
	}, "syscall.Getpid"},
	{"goroutine in the core", checkPure, map[string]string{
		"internal/nic/a.go": "package nic\nfunc f() { go f() }",
	}, "goroutine"},
	{"goroutine in the shell", checkPure, map[string]string{
		"internal/daemon/a.go": "package daemon\nfunc f() { go f() }",
	}, ""},
	{"unsafe", checkUnsafe, map[string]string{
		"internal/ring/a.go": "package ring\n" + `import "unsafe"`,
	}, "*_unsafe.go"},
	{"unsafe in its file", checkUnsafe, map[string]string{
		"internal/ring/a_unsafe.go":       "package ring\n" + `import "unsafe"`,
		"internal/ring/b_unsafe_linux.go": "package ring\n" + `import "unsafe"`,
		"internal/ring/a_test.go":         "package ring\n" + `import "unsafe"`,
	}, ""},
	{"dependency unknown", checkDependencies, map[string]string{
		"internal/shm/a.go": "package shm\n" + `import "example.org/x"`,
	}, "example.org/x is not in"},
	{"dependency elsewhere", checkDependencies, map[string]string{
		"internal/shm/a.go": "package shm\n" + `import "github.com/spf13/cobra"`,
	}, "in cmd/rnic only"},
	{"dependency of go.mod", checkDependencies, map[string]string{
		"go.mod": "module m\n\nrequire (\n\texample.org/x v1.2.3\n\texample.org/y v1 // indirect\n)\n",
	}, "go.mod:4: example.org/x is required"},
	{"no package comment", checkPackageComments, map[string]string{
		"verbs/doc.go": "package verbs", "verbs/a.go": "package verbs",
	}, "package verbs has no doc.go"},
	{"package comment elsewhere", checkPackageComments, map[string]string{
		"verbs/doc.go": "// Package verbs is.\npackage verbs",
		"verbs/a.go":   "// Package verbs is also.\npackage verbs",
	}, "a.go:1: the package comment belongs in doc.go"},
	{"printing", checkPrinting, map[string]string{
		"verbs/a.go": "package verbs\nimport \"fmt\"\nfunc f() { fmt.Println() }",
	}, "fmt.Println in a library"},
	{"printing program", checkPrinting, map[string]string{
		"cmd/rnic/a.go": "package main\nimport \"fmt\"\nfunc f() { fmt.Println() }",
	}, ""},
}

func TestChecks_BrokenCode_IsReported(t *testing.T) {
	for _, c := range brokenCode {
		t.Run(c.name, c.run)
	}
}

func body(n int) string { return "{\n" + lines(n, "\t;") + "}\n" }

//tidy:table
var brokenShape = []brokenCase{
	{"function at the limit", checkGoShape, map[string]string{
		"a.go": "package a\nfunc f() {\n" + lines(70, "\t//") + "}\n",
	}, ""},
	{"function above the limit", checkGoShape, map[string]string{
		"a.go": "package a\nfunc f() {\n" + lines(71, "\t//") + "}\n",
	}, "a.go:2: f has 71 lines"},
	{"table", checkGoShape, map[string]string{
		"a.go": "package a\n//tidy:table\nvar t = []int{\n" + lines(600, "\t1,") + "}\n",
	}, ""},
	{"file", checkGoShape, map[string]string{
		"a.go": "package a\n" + lines(500, "//"), "a_test.go": "package a\n" + lines(900, "//"),
	}, "a.go: 501 lines"},
	{"generated file", checkGoShape, map[string]string{
		"a.go": "// Code generated by x. DO NOT EDIT.\npackage a\n" + lines(900, "//"),
	}, ""},
	{"parameters", checkGoShape, map[string]string{
		"a.go": "package a\nfunc (x T) f(a, b, c int, d, e, g string) {}\n",
	}, "6 parameters"},
	{"line", checkGoShape, map[string]string{
		"a.go": "package a\n//" + strings.Repeat("é", 98) + "\n//" + strings.Repeat("é", 99) + "\n",
	}, "a.go:3: 101 columns"},
	{"C function at the limit", checkCShape, map[string]string{
		"clib/a.c": "int f(void)\n" + body(70),
	}, ""},
	{"C function above the limit", checkCShape, map[string]string{
		"clib/a.c": "struct s " + body(80) + ";\nint v[] = " + body(80) + ";\n" +
			"static int f(int a,\n\tint b) /* } */\n" + body(71),
	}, "169: the function has 71 lines"},
	{"C text that looks like braces", checkCShape, map[string]string{
		"clib/a.c": "#define X { \\\n  {\nchar *s = \"{\" \"}}\", c = '{'; // {\nint g(void) { return 1; }\n" +
			"int f(void)\n" + body(71),
	}, "a.c:6: the function has 71 lines"},
	{"C file", checkCShape, map[string]string{"clib/a.h": lines(501, "int x;")}, "501 lines"},
	{"C generated", checkCShape, map[string]string{
		"clib/a.h": "/* Code generated by x. DO NOT EDIT. */\n" + lines(501, "int x;"),
	}, ""},
}

func TestChecks_BrokenShape_IsReported(t *testing.T) {
	for _, c := range brokenShape {
		t.Run(c.name, c.run)
	}
}

const unused = "one.pcap: no Go file of a uses it"

func testdata(code string) map[string]string {
	return map[string]string{
		"a/x_test.go":            "package a\nfunc f() { " + code + " }\n",
		"a/testdata/in/one.pcap": "x",
	}
}

//tidy:table
var brokenFiles = []brokenCase{
	{"unfinished", checkUnfinished, map[string]string{
		"Makefile": "all:\n# TO" + "DO: write it\n",
	}, "Makefile:2: TO" + "DO"},
	{"template of mktemp", checkUnfinished, map[string]string{"a.sh": "mktemp XXXXXX\n"}, ""},
	{"test data unused", checkTestdata, testdata(`open("two.pcap")`), unused},
	{"test data by name", checkTestdata, testdata(`open("testdata/in/one.pcap")`), ""},
	{"test data by stem", checkTestdata, testdata(`load("one")`), ""},
	{"test data by glob", checkTestdata, testdata(`glob("testdata/in/*.pcap")`), ""},
	{"test data by another glob", checkTestdata, testdata(`glob("testdata/in/*.txt")`), unused},
	{"test data by directory", checkTestdata, testdata(`list("testdata/in")`), ""},
	{"fuzz seed", checkTestdata, map[string]string{
		"a/x_test.go":                 "package a\nfunc FuzzParse() {}\n",
		"a/testdata/fuzz/FuzzParse/1": "x", "a/testdata/fuzz/FuzzGone/2": "x",
	}, "FuzzGone/2: no Go file"},
	{"blob", checkBlobSize, map[string]string{
		"a.bin": strings.Repeat("x", 1<<20+1), "b.bin": strings.Repeat("x", 1<<20),
	}, "a.bin: 1048577 bytes"},
}

func TestChecks_BrokenFiles_AreReported(t *testing.T) {
	for _, c := range brokenFiles {
		t.Run(c.name, c.run)
	}
}

func log(text string) map[string]string { return map[string]string{"CHANGELOG.md": text} }

var sections = "\n" + strings.Join(decisionSections, "\n\nx\n\n") + "\n"

//tidy:table
var brokenDocuments = []brokenCase{
	{"changelog", checkChangelog, log("# Changelog\n\n## [Unreleased]\n\n### Added\n\n" +
		"## [0.2.0] - 2027-01-01\n\n## [0.1.0] - 2026-12-01\n"), ""},
	{"changelog missing", checkChangelog, nil, "is missing"},
	{
		"changelog without head", checkChangelog, log("# Changelog\n\n## [0.1.0] - 2026-12-01\n"),
		"first release is [Unreleased]",
	},
	{
		"changelog group", checkChangelog, log("# Changelog\n\n## [Unreleased]\n\n### New\n"),
		"CHANGELOG.md:5: a group is one of",
	},
	{"changelog order", checkChangelog, log("# Changelog\n## [Unreleased]\n" +
		"## [0.1.0] - 2026-12-01\n## [0.2.0] - 2027-01-01\n"), "newest first"},
	{
		"changelog date", checkChangelog, log("# Changelog\n## [Unreleased]\n## [0.1.0]\n"),
		"has a date",
	},
	{"decision", checkDecisions, map[string]string{
		"docs/adr/0001-a.md": "# 0001: a\n" + sections, "a.go": "// See ADR 0001.\npackage a\n",
		"docs/adr/README.md": "[0001](0001-a.md)",
	}, ""},
	{"decision that is not listed", checkDecisions, map[string]string{
		"docs/adr/0001-a.md": "# 0001: a\n" + sections,
	}, "docs/adr/README.md: has no row for docs/adr/0001-a.md"},
	{"decision with a gap", checkDecisions, map[string]string{
		"docs/adr/0002-a.md": "# 0002: a\n" + sections,
	}, "next decision is 0001"},
	{"decision in another form", checkDecisions, map[string]string{
		"docs/adr/0001-a.md": "# 0001: a\n" + strings.Replace(sections, "## Rejected", "", 1),
		"docs/adr/README.md": "[0001](0001-a.md)",
	}, "no section “## Rejected”"},
	{"decision that is not there", checkDecisions, map[string]string{
		"a.go": "// See ADR 0007.\npackage a\n",
	}, "a.go:1: ADR 0007 does not exist"},
	{"links", checkLinks, map[string]string{
		"a.md":      "# A b: `c`\n[x](docs/b.md#two-words) [y](#a-b-c) [z](https://example.org)\n",
		"docs/b.md": "## Two words\n[a](../a.md)\n```\n[b](gone.md)\n```\n",
	}, ""},
	{"link to no file", checkLinks, map[string]string{"a.md": "[x](b.md)\n"}, "no such file"},
	{
		"link to no heading", checkLinks,
		map[string]string{"a.md": "# A\n[x](#b)\n"},
		"no such heading",
	},
	{"names", checkDocumentNames, map[string]string{
		"a.md": "`docs/a.md` `TestA_B_C` `docs/`\n", "docs/a.md": "",
		"a_test.go": "package a\nfunc TestA_B_C(t *T) {}\n",
	}, ""},
	{
		"path that is not there", checkDocumentNames,
		map[string]string{"a.md": "`docs/a.md`\n"},
		"names docs/a.md",
	},
	{
		"test that is not there", checkDocumentNames,
		map[string]string{"a.md": "`TestA_B_C`\n"},
		"names TestA_B_C",
	},
}

func TestChecks_BrokenDocuments_AreReported(t *testing.T) {
	for _, c := range brokenDocuments {
		t.Run(c.name, c.run)
	}
}
