package clibtest

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// symbolsOf lists what a library exports, by name and version.
func symbolsOf(t *testing.T, path string) []string {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	dynamic, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range dynamic {
		if s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS && s.HasVersion {
			at := "@@"
			if s.VersionIndex.IsHidden() {
				at = "@"
			}
			out = append(out, s.Name+at+s.Version)
		}
	}
	slices.Sort(out)
	return out
}

// libraryNames are the drop-ins; what each may need besides the C library.
var libraryNames = map[string][]string{
	"libibverbs.so.1": nil,
	"librdmacm.so.1":  {"libibverbs.so.1"},
}

// memoryCalls take the place of the C library's, whose versions they have not.
var memoryCalls = []string{"madvise@@", "mremap@@", "rnic_madvise@@", "rnic_mremap@@"}

// TestLibrary_Symbols_EqualTheInstalledOnes_M04: each library is replaced whole, symbol by symbol,
// and nothing of ours leaks out.
func TestLibrary_Symbols_EqualTheInstalledOnes_M04(t *testing.T) {
	lib := needLibrary(t)
	for name := range libraryNames {
		t.Run(name, func(t *testing.T) {
			var installed string
			for _, pattern := range []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib"} {
				found, _ := filepath.Glob(filepath.Join(pattern, name))
				if len(found) > 0 {
					installed = found[0]
					break
				}
			}
			if installed == "" {
				t.Skipf("no real %s is installed to compare with", name)
			}
			want := symbolsOf(t, installed)
			got := symbolsOf(t, filepath.Join(filepath.Dir(lib), name))
			for _, s := range want {
				if !slices.Contains(got, s) {
					t.Errorf("%s is missing", s)
				}
			}
			for _, s := range got {
				if !slices.Contains(want, s) && !slices.Contains(memoryCalls, s) {
					t.Errorf("%s is not in the real library", s)
				}
			}
		})
	}
}

// TestLibrary_Needs_NothingButLibc keeps the drop-ins loadable everywhere.
func TestLibrary_Needs_NothingButLibc(t *testing.T) {
	lib := needLibrary(t)
	for name, others := range libraryNames {
		file, err := elf.Open(filepath.Join(filepath.Dir(lib), name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		needed, err := file.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needed {
			if n != "libc.so.6" && n != "libpthread.so.0" && !slices.Contains(others, n) {
				t.Errorf("%s needs %s", name, n)
			}
		}
		soname, err := file.DynString(elf.DT_SONAME)
		if err != nil || !slices.Equal(soname, []string{name}) {
			t.Errorf("soname %v, %v", soname, err)
		}
	}
}

// TestPrograms_Load_WithEverySymbolBound starts unmodified programs that link the real libmlx5 and
// libefa, which bind private symbols.
func TestPrograms_Load_WithEverySymbolBound(t *testing.T) {
	lib := needLibrary(t)
	env := append(libraryEnv(lib, "/nonexistent"), "LD_BIND_NOW=1")
	for _, c := range []struct{ program, arg, want string }{
		{"ib_write_bw", "--version", "Version"},
		{"ib_send_lat", "--version", "Version"},
		{"ib_atomic_bw", "--help", "Usage"},
		{"ibv_devices", "", "node GUID"},
		{"rping", "", "rping"},
		{"rstream", "-h", "usage"},
		{"fio", "--enghelp=rdma", "hostname"},
	} {
		t.Run(c.program, func(t *testing.T) {
			path, err := exec.LookPath(c.program)
			if err != nil {
				t.Skipf("%s is not installed", c.program)
			}
			var args []string
			if c.arg != "" {
				args = []string{c.arg}
			}
			r := run(t, env, path, args...)
			if !strings.Contains(r.out+r.errOut, c.want) ||
				strings.Contains(r.errOut, "symbol lookup error") ||
				strings.Contains(r.errOut, "version `") {
				t.Errorf("exit status %d\n%s%s", r.code, r.out, r.errOut)
			}
		})
	}
}

// TestProgram_RealDevinfo_ReadsTheFake runs an unmodified program to its end.
func TestProgram_RealDevinfo_ReadsTheFake(t *testing.T) {
	lib := needLibrary(t)
	path, err := exec.LookPath("ibv_devinfo")
	if err != nil {
		t.Skip("ibv_devinfo is not installed")
	}
	_, socket := startFake(t)
	r := run(t, libraryEnv(lib, socket), path, "-v")
	for _, want := range []string{
		"rnic0", "node_guid:\t\t\t0011:2233:4455:6677", "PORT_ACTIVE", "::ffff:192.0.2.1, RoCE v2",
		"link_layer:\t\tEthernet", "gid_tbl_len:\t\t4",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q", want)
		}
	}
	if r.code != 0 || r.errOut != "" {
		t.Errorf("exit status %d\n%s\n%s", r.code, r.errOut, r.out)
	}
}

// TestCompilers_Warnings_AreErrors builds the library with each compiler there is.
func TestCompilers_Warnings_AreErrors(t *testing.T) {
	needLibrary(t)
	build, err := filepath.Abs(buildDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, cc := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(cc); err != nil {
			continue
		}
		cmd := exec.Command("make", "-C", clibDir, "CC="+cc, "BUILD="+filepath.Join(build, cc))
		cmd.Env = os.Environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", cc, err, out)
		}
	}
}
