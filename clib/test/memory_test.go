package clibtest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// memorySources are the memory layer, which tests have in their program.
var memorySources = []string{
	"../verbs/mem.c", "../verbs/mem_advice.c", "../verbs/mem_extent.c", "../verbs/mem_file.c",
	"../verbs/mem_fork.c", "../verbs/maps.c",
}

func runMemoryCases(t *testing.T, source string, cases ...string) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	bin := compile(t, source, memorySources...)
	for _, name := range cases {
		t.Run(name, func(t *testing.T) { checkCase(t, run(t, nil, bin, name)) })
	}
}

func TestMemory_Cases(t *testing.T) {
	runMemoryCases(t, "mem_test.c",
		"move", "release", "fault", "scattered", "in_use", "reuse", "threads", "sparse", "kinds",
		"limit", "first_thread_ended", "mappings", "many")
}

// TestMemory_Moved_IsStillPrivateToTheProgram: pages that the NIC maps too are to madvise, mremap
// and fork what they were before.
func TestMemory_Moved_IsStillPrivateToTheProgram(t *testing.T) {
	runMemoryCases(t, "advice_test.c",
		"dontneed", "dontneed_registered", "dontneed_threads", "dontneed_parts", "free", "remove",
		"locked", "remap_grow", "remap_move", "remap_odd", "remap_raw", "given_advice", "pinned",
		"fork", "fork_large", "fork_nested", "fork_changed", "fork_threads", "fork_unshared",
		"fork_no_memory")
}

func findJemalloc(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*-linux-gnu/libjemalloc.so.2")
	if len(found) == 0 {
		t.Skip("libjemalloc.so.2 is not installed")
	}
	return found[0]
}

// TestMemory_Allocator_PurgesToZeros: an allocator that gives memory back with MADV_DONTNEED takes
// it for zeros afterwards. It also holds its locks meanwhile, and while the process forks.
func TestMemory_Allocator_PurgesToZeros(t *testing.T) {
	jemalloc := findJemalloc(t)
	bin, lib := compileVerbs(t, "purge_test.c")
	for _, name := range []string{"dereg", "dereg_threads", "registered", "fork"} {
		t.Run(name, func(t *testing.T) {
			_, socket := startFake(t)
			env := append(libraryEnv(lib, socket), "LD_PRELOAD="+jemalloc,
				"MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0")
			checkCase(t, run(t, env, bin, name))
		})
	}
}

// TestMemory_Moves_OnlyWhereAdviceIsHeard: a library that comes after the C library does not hear
// what the program says of its memory, so it leaves the memory where it is.
func TestMemory_Moves_OnlyWhereAdviceIsHeard(t *testing.T) {
	lib := needLibrary(t)
	dir := filepath.Dir(lib)
	for _, c := range []struct {
		name  string
		moves bool
		flags []string
	}{
		{"linked", true, []string{lib}},
		{"linked by librdmacm", true, []string{
			"-Wl,--no-as-needed", filepath.Join(dir, "librdmacm.so.1"),
			"-Wl,-rpath-link," + dir, "-DBY_DLOPEN",
		}},
		{"after the C library", false, []string{"-lc", lib}},
		{"dlopen", false, []string{"-DBY_DLOPEN"}},
		{"dlopen, deep", false, []string{"-DBY_DLOPEN", "-DHOW=RTLD_NOW|RTLD_DEEPBIND"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, socket := startFake(t)
			bin := compile(t, "heard_test.c",
				append([]string{"../verbs/maps.c"}, c.flags...)...)
			r := run(t, libraryEnv(lib, socket), bin)
			if r.code != 0 || strings.TrimSpace(r.out) != map[bool]string{
				true: "moved", false: "private",
			}[c.moves] {
				t.Errorf("exit status %d: %s%s", r.code, r.out, r.errOut)
			}
			forced := run(t, append(libraryEnv(lib, socket), "RNIC_MAPPED=always"), bin)
			if strings.TrimSpace(forced.out) != "moved" {
				t.Errorf("RNIC_MAPPED=always: %s%s", forced.out, forced.errOut)
			}
		})
	}
}
