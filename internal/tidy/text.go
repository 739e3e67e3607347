package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// unfinished finds the usual marks of work put off. They are spelled in parts so that this file
// does not break its own rule.
var unfinished = regexp.MustCompile(`\b(?:` + "TO" + "DO|FIX" + "ME|X" + "XX|HA" + "CK" + `)\b`)

// textExts are the files that people write.
var textExts = []string{
	".go", ".c", ".h", ".map", ".md", ".sh", ".yml", ".yaml", ".toml", ".mk", ".txt", ".1", "",
}

func checkUnfinished(r *Repo) []Problem {
	var out []Problem
	for _, name := range r.withExt(textExts...) {
		if strings.Contains(name, "testdata/") || name == "LICENSE" {
			continue
		}
		number := 0
		for line := range bytes.Lines(r.read(name)) {
			number++
			if word := unfinished.Find(line); word != nil {
				text := fmt.Sprintf("%s: finish it, or file an issue and say what is missing", word)
				out = append(out, Problem{Path: name, Line: number, Text: text})
			}
		}
	}
	return out
}

// printers are the packages that may write to standard output: programs.
var printers = []string{
	"cmd/...", "examples/...", "test/...", "scripts/...", "clib/...", "internal/abi/cheader",
}

// checkPrinting keeps libraries silent: they return values and errors, and log where they are
// given a logger.
func checkPrinting(r *Repo) []Problem {
	var out []Problem
	for _, f := range r.gos {
		prints := func(p string) bool { return matchPackage(p, f.dir) }
		if f.test || slices.ContainsFunc(printers, prints) {
			continue
		}
		imports := importsOf(f)
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name := printerName(imports, call.Fun); name != "" {
				text := name + " in a library; return a value or use its logger"
				out = append(out, Problem{Path: f.path, Line: r.line(n.Pos()), Text: text})
			}
			return true
		})
	}
	return out
}

func printerName(imports map[string]string, fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		if (fun.Name == "print" || fun.Name == "println") && fun.Obj == nil {
			return fun.Name
		}
	case *ast.SelectorExpr:
		x, ok := fun.X.(*ast.Ident)
		if ok && imports["fmt"] == x.Name && slices.Contains(
			[]string{"Print", "Printf", "Println"}, fun.Sel.Name) {
			return "fmt." + fun.Sel.Name
		}
	}
	return ""
}

// checkTestdata finds files under testdata that no Go file of the package around it names: by
// base name, by stem, by a glob, or by the directory that it lists.
func checkTestdata(r *Repo) []Problem {
	var out []Problem
	words := r.literals()
	for _, name := range r.files {
		owner, inside, ok := strings.Cut(name, "/testdata/")
		if !ok || strings.HasPrefix(path.Base(name), "README") {
			continue
		}
		used := func(word string) bool { return names(word, inside) }
		if !slices.ContainsFunc(words[owner], used) {
			out = append(out, Problem{Path: name, Text: "no Go file of " + owner + " uses it"})
		}
	}
	return out
}

// names reports whether a string of the source speaks of the file at inside, below testdata.
func names(word, inside string) bool {
	base := path.Base(inside)
	stem := strings.TrimSuffix(base, path.Ext(base))
	word = strings.TrimPrefix(strings.TrimPrefix(path.Clean(word), "testdata"), "/")
	if fuzz, ok := strings.CutPrefix(inside, "fuzz/"); ok {
		target, _, _ := strings.Cut(fuzz, "/")
		return word == target // the name of a function, see literals
	}
	if word == base || word == stem || word == inside || path.Base(word) == base {
		return true
	}
	if strings.Contains(word, "*") {
		whole, _ := path.Match(word, inside)
		last, _ := path.Match(path.Base(word), base)
		return whole || last
	}
	return word != "" && word == path.Dir(inside)
}

// literals collects, for each directory, its strings, its fuzz targets and what it embeds.
func (r *Repo) literals() map[string][]string {
	out := map[string][]string{}
	for _, f := range r.gos {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if what, ok := strings.CutPrefix(c.Text, "//go:embed "); ok {
					out[f.dir] = append(out[f.dir], strings.Fields(what)...)
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					break
				}
				if word, err := strconv.Unquote(n.Value); err == nil {
					out[f.dir] = append(out[f.dir], word)
				}
			case *ast.FuncDecl:
				if strings.HasPrefix(n.Name.Name, "Fuzz") {
					out[f.dir] = append(out[f.dir], n.Name.Name)
				}
			}
			return true
		})
	}
	return out
}

// blobBytesMax bounds what everybody who clones has to carry for ever.
const blobBytesMax = 1 << 20

func checkBlobSize(r *Repo) []Problem {
	var out []Problem
	for _, name := range r.files {
		if size := len(r.read(name)); size > blobBytesMax {
			text := fmt.Sprintf("%d bytes; at most %d in the repository", size, blobBytesMax)
			out = append(out, Problem{Path: name, Text: text})
		}
	}
	return out
}
