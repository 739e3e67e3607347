package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// impureImports are the doors to the outside; a pattern ending in /... takes the subtree.
var impureImports = []string{
	"os", "os/...", "net", "net/...", "log", "log/...", "io/ioutil", "crypto/rand",
	"math/rand", "plugin", "runtime/...", "testing", "testing/...",
}

// pureExceptions are under a door, yet only values.
var pureExceptions = []string{"net/netip"}

// impureCalls are the functions of a package that read a clock, start a timer or draw from a
// source that the whole process shares.
var impureCalls = map[string][]string{
	"time": {
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer",
	},
	"math/rand/v2": {
		"ExpFloat64", "Float32", "Float64", "Int", "Int32", "Int32N", "Int64", "Int64N", "IntN",
		"N", "NormFloat64", "Perm", "Shuffle", "Uint", "Uint32", "Uint32N", "Uint64", "Uint64N",
		"UintN",
	},
}

// errnoName is what the core may take from package syscall: error numbers, which are values.
var errnoName = regexp.MustCompile(`^(?:Errno|E[A-Z0-9]+)$`)

// checkPure keeps the core free of I/O, clocks, goroutines, shared randomness and dependencies.
func checkPure(r *Repo) []Problem {
	var out []Problem
	for _, f := range r.gos {
		if f.test || !isPure(f.dir) {
			continue
		}
		imports := importsOf(f)
		report := func(n ast.Node, format string, args ...any) {
			text := fmt.Sprintf("the core is pure: "+format, args...)
			out = append(out, Problem{Path: f.path, Line: r.line(n.Pos()), Text: text})
		}
		for _, spec := range f.ast.Imports {
			if full := strings.Trim(spec.Path.Value, `"`); isImpureImport(full) {
				report(spec, "import of %s", full)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n, "goroutine")
			case *ast.SelectorExpr:
				if full := impureCall(imports, n); full != "" {
					report(n, "%s; take it as an argument", full)
				}
			}
			return true
		})
	}
	return out
}

func isImpureImport(full string) bool {
	if _, own := ownDir(full); own || slices.Contains(pureExceptions, full) {
		return false
	}
	first, _, _ := strings.Cut(full, "/")
	if strings.Contains(first, ".") {
		return true // a dependency
	}
	return slices.ContainsFunc(impureImports, func(p string) bool { return matchPackage(p, full) })
}

func impureCall(imports map[string]string, n *ast.SelectorExpr) string {
	x, ok := n.X.(*ast.Ident)
	if !ok {
		return ""
	}
	if imports["syscall"] == x.Name && !errnoName.MatchString(n.Sel.Name) {
		return "syscall." + n.Sel.Name
	}
	for full, names := range impureCalls {
		if imports[full] == x.Name && slices.Contains(names, n.Sel.Name) {
			return full + "." + n.Sel.Name
		}
	}
	return ""
}

var unsafeFile = regexp.MustCompile(`_unsafe(_[a-z0-9]+)*\.go$`)

// checkUnsafe keeps the type system's holes in files that say so in their name.
func checkUnsafe(r *Repo) []Problem {
	var out []Problem
	for _, f := range r.gos {
		if f.test || unsafeFile.MatchString(f.path) {
			continue
		}
		for _, spec := range f.ast.Imports {
			if spec.Path.Value == `"unsafe"` {
				text := "unsafe belongs in a file named *_unsafe.go"
				out = append(out, Problem{Path: f.path, Line: r.line(spec.Pos()), Text: text})
			}
		}
	}
	return out
}
