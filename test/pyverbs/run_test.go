package pyverbs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softrnic/softrnic/test/netnstest"
)

// moduleTime bounds a module. The longest takes seconds, on a slow machine perhaps a minute.
const moduleTime = 5 * time.Minute

// linkMTU is that of an ordinary Ethernet.
const linkMTU = 1500

// outcome is what became of one test: "ok", "skip", "fail", "error"; or "started" when it took
// the interpreter along.
type outcome struct {
	Test   string
	Result string
	Reason string
}

// judge runs modules of the suite, each on a machine of its own.
type judge struct {
	rnic, python, suite string
}

// host is where one module runs.
type host struct {
	ns  *netnstest.Namespace // nil: that of the test
	env []string
	dir string
}

func newHost(t *testing.T, rnic string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "pyverbs-") // not t.TempDir: a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: dir, env: append(os.Environ(),
		"XDG_RUNTIME_DIR="+dir, "RNIC_SOCKET=", "HOME="+dir)}
	if os.Geteuid() == 0 {
		h.ns, _ = netnstest.Pair(t, linkMTU)
	}
	t.Cleanup(func() {
		if text, err := h.run(rnic, "down"); err != nil && !strings.Contains(text, "no NIC") {
			t.Errorf("rnic down: %v\n%s", err, text)
		}
		_ = os.RemoveAll(dir)
	})
	return h
}

// run runs a program, and what it starts, in the host; they are gone when it returns.
func (h *host) run(name string, args ...string) (output string, err error) {
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = h.env, h.dir, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if h.ns == nil {
		err = cmd.Start()
	} else {
		h.ns.Do(func() { err = cmd.Start() })
	}
	if err != nil {
		return "", err
	}
	killed := false
	timer := time.AfterFunc(moduleTime, func() {
		killed = true
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	err = cmd.Wait()
	if !timer.Stop() && killed {
		err = fmt.Errorf("no end after %v: %w", moduleTime, err)
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // children that tests have left
	return out.String(), err
}

// runModule runs all tests of a module. A test that ends the interpreter is noted as such, and the
// rest run in the next.
func (j *judge) runModule(t *testing.T, module string) []outcome {
	t.Helper()
	h := newHost(t, j.rnic)
	results, doneFile := filepath.Join(h.dir, "results"), filepath.Join(h.dir, "done")
	runner, err := filepath.Abs("testdata/runner.py")
	if err != nil {
		t.Fatal(err)
	}
	var all []outcome
	for {
		var done strings.Builder
		for _, o := range all {
			fmt.Fprintln(&done, o.Test)
		}
		if err := os.WriteFile(doneFile, []byte(done.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		text, err := h.run(j.rnic, "run", "--", j.python, runner, j.suite, results, module, doneFile)
		found, ended := readResults(t, results)
		if ended {
			return append(all, found...)
		}
		last := len(found) - 1
		if last < 0 || found[last].Result != "started" {
			t.Fatalf("%s did not run to its end: %v\n%s", module, err, text)
		}
		found[last].Reason = fmt.Sprintf("it took the interpreter along: %v\n%s", err, text)
		all = append(all, found...)
	}
}

// readResults takes what one interpreter has told, and whether it came to the end.
func readResults(t *testing.T, path string) (all []outcome, ended bool) {
	t.Helper()
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(path)
	for line := range strings.Lines(string(content)) {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("line %q of the runner: %v", line, err)
		}
		last := len(all) - 1
		switch {
		case o.Result == "end":
			return all, true
		case last >= 0 && all[last].Test == o.Test:
			if all[last].Result == "started" { // a test may fail, then fail to tidy up: the first counts
				all[last] = o
			}
		default:
			all = append(all, o)
		}
	}
	return all, false
}
