package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mistakeRow is a wrong command line, and what a person is told.
type mistakeRow struct {
	args   string
	status int
	says   string
}

// longPath is one that the address of a socket cannot hold.
var longPath = "/tmp/" + strings.Repeat("long", 30) + ".sock"

//tidy:table
var mistakes = []mistakeRow{
	{"--nonsense", 2, "unknown flag: --nonsense"},
	{"nonsense", 2, `unknown command "nonsense"`},
	{"up --nonsense", 2, "unknown flag: --nonsense"},
	{"up extra", 2, "extra"},
	{"up --fault loss=200%", 2, "--fault"},
	{"up --fault nonsense", 2, "--fault"},
	{"up --log-level loud", 2, "--log-level"},
	{"up --log-format xml", 2, "--log-format"},
	{"up --address 300.1.2.3", 2, "--address"},
	{"up --idle-exit soon", 2, "--idle-exit"},
	{"up --idle-exit -3s", 2, "--idle-exit"},
	{"up --device=", 2, "--device: a device without a name"},
	{"up --device a/b=iwarp", 2, `device name "a/b": use letters`},
	{"up --device x=ib", 2, "none of roce, iwarp, none"},
	{"up --device x=roce,crc=on", 2, `roce has no options, and so no "crc=on"`},
	{"up --device x=iwarp,mtu=9000", 2, `option "mtu" is none of congestion, crc, fpdu, markers, mpa`},
	{"up --device x=iwarp,crc", 2, "option crc is one of on, off"},
	{"up --device x=iwarp,mpa=3", 2, "option mpa is one of 1, 2"},
	{"up --device x=iwarp,crc=on,crc=on", 2, "comes twice"},
	{"up --device a --device b", 2, "devices a and b: roce has one device"},
	{"up --device x --device x=iwarp", 2, "two devices are called x"},
	{"up --device other=none", 2, "only rnic0 and iwarp0 can be left out"},
	{"up --device rnic0=none --device iwarp0=none", 2, "no device is left"},
	{"run --device x=udp -- true", 2, "none of roce, iwarp, none"},
	{"up --group no-such-group", 1, "no-such-group"},
	{"up --interface nosuch0", 1, "nosuch0"},
	{"up --address 203.0.113.9", 1, "203.0.113.9"},
	{"up --socket /nonexistent/x.sock", 1, "/nonexistent"},
	{"up --socket /dev/null", 1, "/dev/null"},
	{"up --socket " + longPath, 1, "is longer than"},
	{"run", 2, "no program"},
	{"run --", 2, "no program"},
	{"run --nonsense -- true", 2, "unknown flag: --nonsense"},
	{"run --fault loss=x -- true", 2, "--fault"},
	{"run -- no-such-program", 127, "no-such-program: program not found"},
	{"run -- ./no/such/program", 127, "program not found"},
	{"run -- /etc/passwd", 126, "permission denied"},
	{"run -- /etc", 126, "is a directory"},
	{"run --interface nosuch0 -- true", 1, "nosuch0"},
	{"run --socket " + longPath + " -- true", 1, "is longer than"},
	{"run --socket /dev/null -- true", 1, "is no socket"},
	{"run --socket /nonexistent/x.sock -- true", 1, "/nonexistent"},
	{"down", 1, "no NIC is running"},
	{"down now", 2, "now"},
	{"ps", 1, "no NIC is running"},
	{"ps --socket /dev/null", 1, "is no socket"},
	{"ps --nonsense", 2, "unknown flag: --nonsense"},
	{"devinfo", 1, "no NIC is running"},
	{"devinfo rnic1", 2, "rnic1"},
	{"version 2", 2, "2"},
}

// TestMistakes wants one line on standard error, nothing on standard output, and the status.
func TestMistakes_AreToldInOneLine(t *testing.T) {
	m := anyMachine(t)
	for _, row := range mistakes {
		t.Run(row.args, func(t *testing.T) {
			out := m.start(t, rnic, strings.Fields(row.args)...).end(t)
			if out.status != row.status || !strings.Contains(out.stderr, row.says) ||
				!oneLine(out.stderr) || out.stdout != "" {
				t.Errorf("status %d, not %d; no line with %q in stderr %q; stdout %q",
					out.status, row.status, row.says, out.stderr, out.stdout)
			}
		})
	}
}

func TestHelp_EveryCommand_HasOne(t *testing.T) {
	m := anyMachine(t)
	for _, args := range []string{
		"--help", "up --help", "run --help", "down --help", "devinfo --help", "ps --help",
		"version --help", "help up", "version", "--version",
	} {
		out := m.start(t, rnic, strings.Fields(args)...).succeed(t)
		if !strings.Contains(out.stdout, "rnic") {
			t.Errorf("rnic %s says %q", args, out.stdout)
		}
	}
}

func TestSocketOfAnotherUser_IsToldInOneLine(t *testing.T) {
	mine := anyMachine(t)
	if mine.ns == nil {
		t.Skip("a second user needs root")
	}
	mine.startNIC(t)
	socket := mine.socketPath(t)
	other := newMachine(t, mine.ns, userTwo)
	// The directory is private; open it, so that the socket's own protection is what is tested.
	for _, dir := range []string{mine.runtimeDir(), filepath.Dir(socket)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{"run -- true", "ps", "devinfo", "down"} {
		flagged := append(strings.Fields(args)[:1:1], "--socket", socket)
		flagged = append(flagged, strings.Fields(args)[1:]...)
		out := other.start(t, rnic, flagged...).end(t)
		if out.status != 1 || !oneLine(out.stderr) || !strings.Contains(out.stderr, "another user") {
			t.Errorf("%s: status %d, %q", args, out.status, out.stderr)
		}
	}
}

// TestForeignRuntimeDirectory: in /tmp anybody can make the directory first.
func TestForeignRuntimeDirectory_IsRefused(t *testing.T) {
	m := anyMachine(t)
	if m.ns == nil {
		t.Skip("a directory of another user needs root")
	}
	dir := filepath.Join(m.runtimeDir(), "rnic")
	if err := os.Mkdir(dir, 0o777); err != nil { // root's
		t.Fatal(err)
	}
	for _, args := range []string{"run -- true", "up", "ps"} {
		out := m.start(t, rnic, strings.Fields(args)...).end(t)
		if out.status != 1 || !oneLine(out.stderr) || !strings.Contains(out.stderr, dir) {
			t.Errorf("%s: status %d, %q", args, out.status, out.stderr)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Errorf("something was put there: %v", err)
	}
}

// TestFullDisk: nothing can be written to the cache and the runtime directory.
func TestFullDisk_IsToldInOneLine(t *testing.T) {
	m := anyMachine(t)
	if m.ns == nil {
		t.Skip("a full disk needs root")
	}
	full := filepath.Join(m.home, "full")
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=16k,mode=0777"); err != nil {
		t.Skipf("no file system to fill: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(full, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	m.env = append(m.env, "XDG_CACHE_HOME="+full, "XDG_RUNTIME_DIR="+full)
	if err := os.Chown(full, int(m.uid), int(m.uid)); err != nil {
		t.Fatal(err)
	}
	out := m.start(t, rnic, "run", "--", "true").end(t)
	if out.status != 1 || !oneLine(out.stderr) ||
		!strings.Contains(out.stderr, "no space left on device") ||
		!strings.Contains(out.stderr, "XDG_CACHE_HOME") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
}

func TestSetUserID_Program_IsWarnedAbout(t *testing.T) {
	m := anyMachine(t)
	if m.ns == nil {
		t.Skip("making a set-user-ID program needs root")
	}
	program := filepath.Join(m.home, "privileged")
	content, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	out := m.start(t, rnic, "run", "--", program).end(t)
	if out.status != 0 || !oneLine(out.stderr) || !strings.Contains(out.stderr, "LD_LIBRARY_PATH") {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
}

func TestScriptWithoutInterpreterLine_RunsInShell(t *testing.T) {
	m := anyMachine(t)
	script := filepath.Join(m.home, "script")
	if err := os.WriteFile(script, []byte("echo \"$1\"; exit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := m.start(t, rnic, "run", "--", script, "argument").end(t)
	if out.status != 5 || out.stdout != "argument\n" || out.stderr != "" {
		t.Errorf("status %d, %q, %q", out.status, out.stdout, out.stderr)
	}
}
