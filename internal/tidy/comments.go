package tidy

import (
	"fmt"
	"path"
	"strings"
)

// checkPackageComments wants one doc.go a package, and the package comment in it. An example is a
// program of one file: the comment stands there.
func checkPackageComments(r *Repo) []Problem {
	var out []Problem
	first := map[string]string{}
	commented := map[string]bool{}
	for _, f := range r.gos {
		if _, seen := first[f.dir]; !seen {
			first[f.dir] = f.path
		}
		if f.ast.Doc == nil || len(f.ast.Doc.Text()) == 0 {
			continue
		}
		if path.Base(f.path) == "doc.go" || strings.HasPrefix(f.dir, "examples/") {
			commented[f.dir] = true
		} else if !f.test && !f.generated {
			text := "the package comment belongs in doc.go"
			out = append(out, Problem{Path: f.path, Line: r.line(f.ast.Doc.Pos()), Text: text})
		}
	}
	for _, dir := range sortedKeys(first) {
		if !commented[dir] {
			text := fmt.Sprintf("package %s has no doc.go with a package comment", dir)
			out = append(out, Problem{Path: first[dir], Text: text})
		}
	}
	return out
}
