package clibtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	clibDir  = ".."
	buildDir = "../../build/clib-test"
)

// library builds the drop-in once and returns its path. The build directory stays, so that only
// what changed is compiled next time.
var library = sync.OnceValues(func() (string, error) {
	build, err := filepath.Abs(buildDir)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("make", "-C", clibDir, "BUILD="+build)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return filepath.Join(build, "libibverbs.so.1"), nil
})

// inputs are read by compilers, which "go test" does not see: opened here, they count when it
// decides whether a cached result still holds.
var inputs = []string{
	"testdata/*.[ch]", "../ctl/*.[ch]", "../verbs/*.[ch]", "../rdmacm/*.[ch]",
	"../rsocket/*.[ch]", "../include/*.h", "../Makefile",
}

func openInputs(t *testing.T) {
	t.Helper()
	for _, pattern := range inputs {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("no input matches %s: %v", pattern, err)
		}
		for _, path := range paths {
			if _, err := os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func needLibrary(t *testing.T) string {
	t.Helper()
	openInputs(t)
	for _, tool := range []string{"make", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	path, err := library()
	if err != nil {
		t.Fatalf("build the library:\n%v", err)
	}
	return path
}

// compile builds a C program of testdata; more are further sources and flags.
func compile(t *testing.T, source string, more ...string) string {
	t.Helper()
	openInputs(t)
	bin := filepath.Join(t.TempDir(), "program")
	args := []string{
		"-std=c11", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-g", "-O1", "-pthread",
		"-Wall", "-Wextra", "-Werror", "-I../ctl", "-I../verbs", "-I../include", "-o", bin,
		filepath.Join("testdata", source),
	}
	// Libraries stand after what uses them.
	if out, err := exec.Command("gcc", append(args, more...)...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v\n%s", source, err, out)
	}
	return bin
}

// result is how a program ended. A program that had to be killed has code −1.
type result struct {
	code        int
	out, errOut string
}

// Programs of ours end at once, unless they hang.
const programTime = 30 * time.Second

// run lets a program run, on the drop-in where env has LD_LIBRARY_PATH.
func run(t *testing.T, env []string, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programTime) // also in a cleanup
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", name, err)
	}
	if ctx.Err() != nil {
		errOut.WriteString("\nkilled: it hung\n")
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

func libraryEnv(path, socket string) []string {
	return []string{"LD_LIBRARY_PATH=" + filepath.Dir(path), "RNIC_SOCKET=" + socket}
}
