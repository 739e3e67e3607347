package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the path that go.mod declares.
const Module = "github.com/softrnic/softrnic"

// Repo is a set of files with every Go file among them parsed.
type Repo struct {
	fsys  fs.FS
	files []string // slash-separated, relative to the root, sorted
	fset  *token.FileSet
	gos   []*goFile
}

type goFile struct {
	path      string
	dir       string // "." for the root package
	test      bool
	generated bool
	ast       *ast.File
	source    []byte
}

// Problem is one broken rule. Line is 0 when the whole file is meant.
type Problem struct {
	Path string
	Line int
	Text string
}

func (p Problem) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.Path, p.Text)
	}
	return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.Text)
}

// Check is one rule of the repository.
type Check struct {
	Name string
	Run  func(*Repo) []Problem
}

// Checks returns every rule, in the order in which a reader would meet them.
func Checks() []Check {
	return []Check{
		{"layers", checkLayers},
		{"rows of layers", checkRows},
		{"pure core", checkPure},
		{"unsafe", checkUnsafe},
		{"dependencies", checkDependencies},
		{"package comments", checkPackageComments},
		{"shape of Go", checkGoShape},
		{"shape of C", checkCShape},
		{"unfinished work", checkUnfinished},
		{"printing", checkPrinting},
		{"test data", checkTestdata},
		{"blob size", checkBlobSize},
		{"changelog", checkChangelog},
		{"decisions", checkDecisions},
		{"links", checkLinks},
		{"names in documents", checkDocumentNames},
	}
}

// New parses the named files of fsys. A Go file that does not parse is an error, since no rule
// could be checked on it.
func New(fsys fs.FS, files []string) (*Repo, error) {
	r := &Repo{fsys: fsys, files: slices.Sorted(slices.Values(files)), fset: token.NewFileSet()}
	for _, name := range r.files {
		if path.Ext(name) != ".go" {
			continue
		}
		source, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("tidy: read: %w", err)
		}
		tree, err := parser.ParseFile(r.fset, name, source, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("tidy: parse: %w", err)
		}
		r.gos = append(r.gos, &goFile{
			path:      name,
			dir:       path.Dir(name),
			test:      strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(tree),
			ast:       tree,
			source:    source,
		})
	}
	return r, nil
}

// Open loads the checkout whose root is the nearest directory upwards that holds go.mod: its
// tracked files and those that git would add.
func Open() (*Repo, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	list := listFiles
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, fs.ErrNotExist) {
		list = walkFiles // sources without history
	}
	files, err := list(root)
	if err != nil {
		return nil, err
	}
	return New(os.DirFS(root), files)
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("tidy: working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("tidy: no go.mod in any directory upwards")
		}
		dir = filepath.Dir(dir)
	}
}

// listFiles asks git, so that .gitignore decides what belongs to the project. Opening the index
// makes it an input of the test cache.
func listFiles(root string) ([]string, error) {
	if index, err := os.Open(filepath.Join(root, ".git", "index")); err == nil {
		_ = index.Close()
	}
	// The checkout may belong to another user, as in a container.
	git := exec.Command("git", "-c", "safe.directory=*", "-C", root,
		"ls-files", "-z", "-co", "--exclude-standard")
	var stderr bytes.Buffer
	git.Stderr = &stderr
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("tidy: git ls-files: %w: %s", err, stderr.String())
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		// A file that was deleted but not yet from the index is not there to be read.
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			files = append(files, name)
		}
	}
	return files, nil
}

// walkFiles lists what is there, but for what the build makes.
func walkFiles(root string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == "bin" || name == "build" || name == "internal/dropin/files":
			return fs.SkipDir
		case entry.Type().IsRegular():
			files = append(files, name)
		}
		return nil
	})
	return files, err
}

// read returns the contents of a file of the repository.
func (r *Repo) read(name string) []byte {
	data, err := fs.ReadFile(r.fsys, name)
	if err != nil {
		return nil
	}
	return data
}

func (r *Repo) has(name string) bool {
	_, err := fs.Stat(r.fsys, name)
	return err == nil
}

func (r *Repo) line(pos token.Pos) int { return r.fset.Position(pos).Line }

// withExt returns the files whose extension is one of exts.
func (r *Repo) withExt(exts ...string) []string {
	var out []string
	for _, name := range r.files {
		if slices.Contains(exts, path.Ext(name)) {
			out = append(out, name)
		}
	}
	return out
}
