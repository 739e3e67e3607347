package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"unicode/utf8"
)

// The shape limits. Every large project has short functions nearly everywhere and one giant file
// that nobody dares to touch; these numbers keep the giant away.
const (
	functionLinesMax = 70  // between the braces, comments included
	fileLinesMax     = 500 // test files are exempt
	parametersMax    = 5   // then a config struct
	lineColumnsMax   = 100 // a tab counts one, as the formatter cannot know your tab stops
)

// tableMarker in the comment of a declaration exempts it: a table is as long as what it lists.
const tableMarker = "//tidy:table"

// span is a range of lines, both ends included.
type span struct{ first, last int }

func (s span) has(line int) bool { return line >= s.first && line <= s.last }

// tablesOf returns the lines of the declarations that carry the marker.
func (r *Repo) tablesOf(f *goFile) []span {
	var out []span
	for _, decl := range f.ast.Decls {
		var doc *ast.CommentGroup
		switch d := decl.(type) {
		case *ast.GenDecl:
			doc = d.Doc
		case *ast.FuncDecl:
			doc = d.Doc
		}
		if doc == nil {
			continue
		}
		marked := func(c *ast.Comment) bool { return c.Text == tableMarker }
		if slices.ContainsFunc(doc.List, marked) {
			out = append(out, span{r.line(decl.Pos()), r.line(decl.End())})
		}
	}
	return out
}

func checkGoShape(r *Repo) []Problem {
	var out []Problem
	for _, f := range r.gos {
		if f.generated {
			continue
		}
		tables := r.tablesOf(f)
		out = append(out, checkLines(f.path, f.source, tables)...)
		if !f.test {
			out = append(out, checkFileLength(f.path, f.source, tables)...)
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				out = append(out, r.checkFunction(f, n, tables)...)
			case *ast.FuncType:
				if count := n.Params.NumFields(); count > parametersMax {
					text := fmt.Sprintf("%d parameters; at most %d, then a struct",
						count, parametersMax)
					out = append(out, Problem{Path: f.path, Line: r.line(n.Pos()), Text: text})
				}
			}
			return true
		})
	}
	return out
}

func (r *Repo) checkFunction(f *goFile, n *ast.FuncDecl, tables []span) []Problem {
	if n.Body == nil || inAny(tables, r.line(n.Pos())) {
		return nil
	}
	lines := r.line(n.Body.Rbrace) - r.line(n.Body.Lbrace) - 1
	if lines <= functionLinesMax {
		return nil
	}
	return []Problem{{Path: f.path, Line: r.line(n.Pos()), Text: longFunction(n.Name.Name, lines)}}
}

func longFunction(name string, lines int) string {
	return fmt.Sprintf("%s has %d lines; at most %d", name, lines, functionLinesMax)
}

func inAny(spans []span, line int) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.has(line) })
}

func checkFileLength(name string, source []byte, tables []span) []Problem {
	lines := bytes.Count(source, []byte("\n"))
	for _, s := range tables {
		lines -= s.last - s.first + 1
	}
	if lines <= fileLinesMax {
		return nil
	}
	return []Problem{{Path: name, Text: fmt.Sprintf("%d lines; at most %d", lines, fileLinesMax)}}
}

func checkLines(name string, source []byte, tables []span) []Problem {
	var out []Problem
	number := 0
	for line := range bytes.Lines(source) {
		number++
		columns := utf8.RuneCount(bytes.TrimRight(line, "\r\n"))
		if columns <= lineColumnsMax || inAny(tables, number) {
			continue
		}
		text := fmt.Sprintf("%d columns; at most %d", columns, lineColumnsMax)
		out = append(out, Problem{Path: name, Line: number, Text: text})
	}
	return out
}

// checkCShape holds C to the same limits. The numbers of parameters are the ABI's, not ours.
func checkCShape(r *Repo) []Problem {
	var out []Problem
	for _, name := range r.withExt(".c", ".h") {
		source := r.read(name)
		if head, _, _ := bytes.Cut(source, []byte("\n")); bytes.Contains(head, []byte("DO NOT EDIT")) {
			continue
		}
		out = append(out, checkLines(name, source, nil)...)
		out = append(out, checkFileLength(name, source, nil)...)
		for _, fn := range functionsOfC(string(source)) {
			if lines := fn.last - fn.first - 1; lines > functionLinesMax {
				text := longFunction("the function", lines)
				out = append(out, Problem{Path: name, Line: fn.first, Text: text})
			}
		}
	}
	return out
}

// functionsOfC returns the lines of the braces around each function body: a brace at depth 0 that
// follows a closing parenthesis, as opposed to those of types and initialisers.
func functionsOfC(source string) []span {
	var out []span
	line, depth, start := 1, 0, 0
	last := byte(0) // the last visible character at depth 0
	for i := 0; i < len(source); i++ {
		if skipped := skipC(source, i); skipped > 0 {
			line += strings.Count(source[i:i+skipped], "\n")
			i += skipped - 1
			continue
		}
		switch c := source[i]; c {
		case '\n':
			line++
		case '{':
			if depth == 0 {
				start = 0
				if last == ')' {
					start = line
				}
			}
			depth++
		case '}':
			depth = max(depth-1, 0)
			if depth == 0 {
				last = c
				if start > 0 {
					out = append(out, span{start, line})
				}
				start = 0
			}
		default:
			if depth == 0 && !isSpace(c) {
				last = c
			}
		}
	}
	return out
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

// skipC returns how many bytes at i are a comment, a literal or a preprocessor line.
func skipC(source string, i int) int {
	rest := source[i:]
	until := func(end string, from int) int {
		if at := strings.Index(rest[from:], end); at >= 0 {
			return from + at + len(end)
		}
		return len(rest)
	}
	switch {
	case strings.HasPrefix(rest, "//"):
		return until("\n", 2) - 1
	case strings.HasPrefix(rest, "/*"):
		return until("*/", 2)
	case rest[0] == '"' || rest[0] == '\'':
		at := 1
		for at < len(rest) && rest[at] != rest[0] {
			if rest[at] == '\\' {
				at++
			}
			at++
		}
		return min(at+1, len(rest))
	case rest[0] == '#' && (i == 0 || source[i-1] == '\n'):
		at := until("\n", 0)
		for at >= 2 && at < len(rest) && rest[at-2] == '\\' {
			at = until("\n", at)
		}
		return at - 1
	}
	return 0
}
