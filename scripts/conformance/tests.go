package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tests knows the tests of the repository, and which of them run which C functions.
type tests struct {
	names map[string]bool
	// calls maps a C function to the tests of programs that call it, breadth a test to how many it
	// calls.
	calls   map[string][]string
	breadth map[string]int
}

// goTest is the text of a Go test function.
type goTest struct{ name, text string }

// findTests parses the tests below root.
func findTests(root string) (*tests, error) {
	t := &tests{
		names: map[string]bool{}, calls: map[string][]string{}, breadth: map[string]int{},
	}
	var all []goTest
	programs := map[string]string{} // C program by the variable of a Go test that names it
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "build") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := parseTests(path, programs)
		all = append(all, found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		t.names[g.name] = true
	}
	for _, dir := range []string{"clib/test/testdata", "test/e2e/testdata", "test/rsocket/testdata"} {
		if err := t.readPrograms(filepath.Join(root, dir), all, programs); err != nil {
			return nil, err
		}
	}
	return t, nil
}

var ownProgram = regexp.MustCompile(`(?m)(\w+)\s*=\s*ownProgram\{name:\s*"(\w+)"`)

func parseTests(path string, programs map[string]string) ([]goTest, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, m := range ownProgram.FindAllStringSubmatch(string(source), -1) {
		programs[m[1]] = m[2] + ".c"
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, 0)
	if err != nil {
		return nil, err
	}
	var out []goTest
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Body == nil {
			continue
		}
		for _, kind := range []string{"Test", "Fuzz", "Example"} {
			if strings.HasPrefix(f.Name.Name, kind) {
				text := source[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset]
				out = append(out, goTest{f.Name.Name, string(text)})
			}
		}
	}
	return out, nil
}

var (
	cFunction = regexp.MustCompile(
		`(?m)^(?:static )?[a-z_][^;{}()=]*?\b([a-z_][a-z_0-9]*)\([^;{}]*\)\s*\n\{`)
	cCall = regexp.MustCompile(`\b([a-z_][a-z_0-9]*)\(`)
)

// readPrograms finds which tests run which functions of the C programs in a directory.
func (t *tests) readPrograms(dir string, all []goTest, programs map[string]string) error {
	shared := map[string][]string{}
	headers, _ := filepath.Glob(filepath.Join(dir, "*.h"))
	for _, name := range headers {
		if err := readCalls(name, shared); err != nil {
			return err
		}
	}
	sources, _ := filepath.Glob(filepath.Join(dir, "*.c"))
	for _, name := range sources {
		calls := map[string][]string{}
		for f, list := range shared {
			calls[f] = list
		}
		if err := readCalls(name, calls); err != nil {
			return err
		}
		for _, g := range all {
			if runs(g.text, filepath.Base(name), programs) {
				t.credit(g, calls)
			}
		}
	}
	return nil
}

// runs reports that a Go test names a C program.
func runs(text, program string, programs map[string]string) bool {
	if strings.Contains(text, `"`+program+`"`) {
		return true
	}
	for variable, name := range programs {
		if name == program && strings.Contains(text, variable+".build(") {
			return true
		}
	}
	return false
}

// readCalls adds the functions of a C file with what each calls.
func readCalls(path string, calls map[string][]string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := comment.ReplaceAllString(string(source), "")
	for _, m := range cFunction.FindAllStringSubmatchIndex(text, -1) {
		body := text[m[1]:]
		if end := strings.Index(body, "\n}"); end >= 0 {
			body = body[:end]
		}
		name := text[m[2]:m[3]]
		for _, c := range cCall.FindAllStringSubmatch(body, -1) {
			calls[name] = append(calls[name], c[1])
		}
	}
	return nil
}

// credit enters a test for all that it lets a program call: the cases that it names, or main.
func (t *tests) credit(g goTest, calls map[string][]string) {
	isByCase := false
	for f := range calls {
		name, ok := strings.CutPrefix(f, "test_")
		if !ok {
			continue
		}
		if strings.Contains(g.text, `"`+name+`"`) {
			isByCase = true
			t.creditFrom(f, g.name+"/"+name, calls)
		}
	}
	if !isByCase {
		t.creditFrom("main", g.name, calls)
	}
}

func (t *tests) creditFrom(start, test string, calls map[string][]string) {
	seen := map[string]bool{}
	var visit func(f string)
	visit = func(f string) {
		if seen[f] {
			return
		}
		seen[f] = true
		if _, isOwn := calls[f]; !isOwn && !slices.Contains(t.calls[f], test) {
			t.calls[f] = append(t.calls[f], test)
			t.breadth[test]++
		}
		for _, callee := range calls[f] {
			visit(callee)
		}
	}
	visit(start)
}

// exists reports that a name, perhaps of a subtest, is that of a test.
func (t *tests) exists(name string) bool {
	base, _, _ := strings.Cut(name, "/")
	return t.names[base]
}

// of returns the tests of programs that call a C function: those first that call little else, so
// that the table stays as it is when somebody adds a test that does a bit of everything.
func (t *tests) of(function string) []string {
	list := slices.Clone(t.calls[function])
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(t.breadth[a], t.breadth[b]), cmp.Compare(a, b))
	})
	return list
}
