package dropin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func sample(text string) []Library {
	return []Library{
		{Name: "liba.so.1", Content: []byte(text)},
		{Name: "libb.so.1", Content: []byte(strings.Repeat(text, 100))},
	}
}

func checkInstalled(t *testing.T, dir string, libraries []Library) {
	t.Helper()
	for _, l := range libraries {
		content, err := os.ReadFile(filepath.Join(dir, l.Name))
		if err != nil {
			t.Fatal(err)
		}
		if string(content) != string(l.Content) {
			t.Errorf("%s holds %d bytes that are not the library", l.Name, len(content))
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(libraries) {
		t.Errorf("%d files in the directory, not %d: leftovers", len(entries), len(libraries))
	}
}

func TestInstall_Fresh_WritesEveryLibrary(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache", "softrnic")
	libraries := sample("one")
	dir, err := install([]string{root}, libraries)
	if err != nil {
		t.Fatal(err)
	}
	checkInstalled(t, dir, libraries)
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, not private", info.Mode())
	}
}

func TestInstall_OtherContent_GetsAnotherDirectory(t *testing.T) {
	roots := []string{filepath.Join(t.TempDir(), "softrnic")}
	one, err := install(roots, sample("one"))
	if err != nil {
		t.Fatal(err)
	}
	two, err := install(roots, sample("two"))
	if err != nil {
		t.Fatal(err)
	}
	if one == two {
		t.Fatal("two versions share a directory")
	}
	checkInstalled(t, one, sample("one"))
	checkInstalled(t, two, sample("two"))
}

func TestInstall_UnchangedFile_IsLeftAlone(t *testing.T) {
	roots := []string{filepath.Join(t.TempDir(), "softrnic")}
	dir, err := install(roots, sample("one"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, "liba.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install(roots, sample("one")); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(filepath.Join(dir, "liba.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("a good file was replaced")
	}
}

func TestInstall_DamagedFile_IsRepaired(t *testing.T) {
	roots := []string{filepath.Join(t.TempDir(), "softrnic")}
	dir, err := install(roots, sample("one"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]string{"liba.so.1": "two", "libb.so.1": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(damage), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := install(roots, sample("one")); err != nil {
		t.Fatal(err)
	}
	checkInstalled(t, dir, sample("one"))
}

func TestInstall_ManyAtOnce_AllSucceed(t *testing.T) {
	roots := []string{filepath.Join(t.TempDir(), "softrnic")}
	libraries := sample("one")
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if _, err := install(roots, libraries); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	dir, err := install(roots, libraries)
	if err != nil {
		t.Fatal(err)
	}
	checkInstalled(t, dir, libraries)
}

func TestInstall_UnsafeRoot_IsPassedOver(t *testing.T) {
	base := t.TempDir()
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(base, "good")
	dir, err := install([]string{open, link, good}, sample("one"))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(dir) != good {
		t.Errorf("installed into %s", dir)
	}
	_, err = install([]string{open, link}, sample("one"))
	for _, part := range []string{"writable by other users", "not a directory", "XDG_CACHE_HOME"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
}

func TestInstall_NoLibraries_SaysHowToBuild(t *testing.T) {
	_, err := install([]string{t.TempDir()}, nil)
	if !errors.Is(err, ErrNotBuilt) {
		t.Fatalf("error %v", err)
	}
}

func TestInstall_FullDisk_SaysSoAndLeavesNothing(t *testing.T) {
	full := t.TempDir()
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("a full disk for this test needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(full, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	root := filepath.Join(full, "softrnic")
	large := []Library{{Name: "liba.so.1", Content: make([]byte, 1<<20)}}
	_, err := install([]string{root}, large)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Fatalf("error %v", err)
	}
	left, err := filepath.Glob(filepath.Join(root, "lib-*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	dir, err := install([]string{root, filepath.Join(t.TempDir(), "other")}, large)
	if err != nil || strings.HasPrefix(dir, full) {
		t.Errorf("the next root was not taken: %s, %v", dir, err)
	}
}

func TestRoots_RuntimeDirectory_ComesLast(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/cache")
	got := Roots("/run/user/7/rnic")
	want := []string{"/cache/softrnic", "/run/user/7/rnic/lib"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%v, not %v", got, want)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got := Roots("/run/user/7/rnic"); len(got) != 1 {
		t.Errorf("without a home: %v", got)
	}
}
