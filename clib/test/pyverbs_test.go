package clibtest

import (
	"compress/gzip"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pyverbsTests is where Debian's rdma-core package has the suite of the project's own tests.
const pyverbsTests = "/usr/share/doc/rdma-core/tests"

// pyverbsFailures are the tests of the suite that fail, each for a reason that is known.
var pyverbsFailures = map[string]string{
	"test_resize_cq": "completion queues do not grow",
}

// unpackSuite copies the suite and unpacks what the package has compressed.
func unpackSuite(t *testing.T) (dir string) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(pyverbsTests, "*.py*"))
	if len(paths) == 0 {
		t.Skip("the tests of rdma-core are not installed in " + pyverbsTests)
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
	}
	patchSuite(t, dir)
	return dir
}

// netdevEnv tells the suite the interface that the NIC is on. It looks for one among the files of
// a PCI device otherwise, finds none for an adapter made of software, kernel drivers included, and
// skips all that has to do with rdma_cm.
const netdevEnv = "RNIC_TEST_NETDEV"

func patchSuite(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "tests", "base.py")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, change := range [][2]string{
		{
			"subprocess.check_output(['ls',",
			"subprocess.check_output(['printenv', '" + netdevEnv + "'] or [",
		},
		{
			"os.path.exists('/sys/class/infiniband/{}/device/net/'.format(dev))",
			"os.environ.get('" + netdevEnv + "')",
		},
	} {
		if !strings.Contains(text, change[0]) {
			t.Logf("the suite has changed: no %q", change[0])
			return
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// findInterface returns an interface that others can be reached by, or "".
func findInterface(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		addresses, err := i.Addrs()
		if err == nil && len(addresses) > 0 && i.Flags&net.FlagLoopback == 0 &&
			i.Flags&net.FlagUp != 0 {
			return i.Name
		}
	}
	return ""
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
	t.Skip("pyverbs is not installed")
	return ""
}

var rdmacmPassed = regexp.MustCompile(`(?m)^test_rdmacm_sync_traffic .*\.\.\. ok$`)

var failedTest = regexp.MustCompile(`(?m)^(?:ERROR|FAIL): (\w+) `)

// TestPyverbs_SuiteOfRDMACore_Passes runs the tests of rdma-core itself on the real NIC. Tests of
// what the NIC does not have skip themselves.
func TestPyverbs_SuiteOfRDMACore_Passes(t *testing.T) {
	rnic, err := filepath.Abs("../../bin/rnic")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(rnic); err != nil {
		t.Skipf("no NIC to test with, run make build: %v", err)
	}
	python, dir := findPython(t), unpackSuite(t)
	runtime, err := os.MkdirTemp("", "pyverbs-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	env := []string{
		"XDG_RUNTIME_DIR=" + runtime, "RNIC_SOCKET=", "HOME=" + runtime,
		netdevEnv + "=" + findInterface(t),
	}
	t.Cleanup(func() {
		run(t, env, rnic, "down")
		_ = os.RemoveAll(runtime)
	})
	r := runFor(t, pyverbsTime, env, rnic, "run", "--", python,
		filepath.Join(dir, "tests", "run_tests.py"), "--dev", "rnic0", "--port", "1", "-v")
	for _, m := range failedTest.FindAllStringSubmatch(r.errOut, -1) {
		if pyverbsFailures[m[1]] == "" {
			t.Errorf("%s fails", m[1])
		}
	}
	passed := strings.Count(r.errOut, "... ok\n")
	if strings.Contains(r.errOut, "test_rdmacm_sync_traffic") && findInterface(t) != "" &&
		!rdmacmPassed.MatchString(r.errOut) {
		t.Error("the tests of rdma_cm have not run")
	}
	if passed < 70 {
		t.Errorf("only %d tests passed", passed)
	}
	if t.Failed() {
		t.Logf("%s\n%s", r.out, r.errOut)
	}
	skipped := regexp.MustCompile(`skipped=\d+`).FindString(r.errOut)
	t.Logf("%d passed, %s, known failures %v", passed, skipped,
		slices.Sorted(maps.Keys(pyverbsFailures)))
}
