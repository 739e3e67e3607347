package rsocket

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// compile builds a program of testdata against the drop-in libraries that bin/rnic carries: which
// ones it finds when it runs is up to rnic run.
func compile(t *testing.T, source string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "program")
	out, err := exec.Command("gcc", "-std=c11", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-g",
		"-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o", bin,
		filepath.Join("testdata", source), "-lrdmacm", "-libverbs").CombinedOutput()
	if err != nil {
		t.Skipf("compile %s: %v\n%s", source, err, out)
	}
	return bin
}

// TestCalls runs each case of the C programs: what a call promises, and what it says else.
func TestCalls(t *testing.T) {
	for source, cases := range map[string][]string{
		"stream_test.c": {
			"sizes", "nonblocking", "queues", "vectors", "flags", "back_pressure", "credits", "threads",
		},
		"conn_test.c": {
			"names", "refused", "bad_calls", "half_close", "close", "shutdown_wakes", "timeouts",
			"signal", "poll_many", "poll_threads", "peer_killed", "fork", "options", "keepalive",
		},
		"more_test.c": {"datagrams", "strangers", "iomap"},
		"wire_test.c": {"connect", "entries", "messages", "datagrams"},
	} {
		t.Run(source, func(t *testing.T) {
			bin := compile(t, source)
			h := oneHost(t)
			for _, name := range cases {
				t.Run(name, func(t *testing.T) {
					if out := h.run(t, bin, name).succeed(t); out != "ok\n" {
						t.Errorf("it says %q", out)
					}
				})
			}
		})
	}
}

// TestCalls_MemoryNotMapped has the NIC reach buffers across process borders.
func TestCalls_MemoryNotMapped(t *testing.T) {
	bin := compile(t, "stream_test.c")
	h := oneHost(t)
	h.env = []string{"RNIC_MAPPED=never"}
	for _, name := range []string{"nonblocking", "queues"} {
		h.run(t, bin, name).succeed(t)
	}
}
