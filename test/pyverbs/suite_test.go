package pyverbs

import (
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installed is where Debian's rdma-core package has the suite.
const installed = "/usr/share/doc/rdma-core/tests"

// vendor matches modules that talk to the hardware of one vendor.
var vendor = regexp.MustCompile(`^test_(mlx5|efa|cuda)`)

// unpackSuite copies the suite, unpacks what the package has compressed, and lists the modules.
func unpackSuite(t *testing.T) (dir string, modules []string) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(installed, "*.py*"))
	if len(paths) == 0 {
		t.Skipf("the tests of rdma-core are not in %s: scripts/deps.sh test", installed)
	}
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tests"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		name, packed := strings.CutSuffix(filepath.Base(path), ".gz")
		if err := unpack(path, filepath.Join(dir, "tests", name), packed); err != nil {
			t.Fatal(err)
		}
		module := strings.TrimSuffix(name, ".py")
		if strings.HasPrefix(module, "test_") && !vendor.MatchString(module) {
			modules = append(modules, module)
		}
	}
	return dir, modules
}

func unpack(from, to string, packed bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	var text io.Reader = in
	if packed {
		if text, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	content, err := io.ReadAll(text)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// findPython returns an interpreter that has pyverbs; the first in PATH need not be Debian's.
func findPython(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import pyverbs").Run() == nil {
			return python
		}
	}
	t.Skip("pyverbs is not installed: scripts/deps.sh test")
	return ""
}
