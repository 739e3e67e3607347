package dropin

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Roots lists the directories in which Install may make its own, best first: the user's cache,
// then the runtime directory, which exists for users without a home too.
func Roots(runtimeDir string) []string {
	var roots []string
	if cache, err := os.UserCacheDir(); err == nil {
		roots = append(roots, filepath.Join(cache, "softrnic"))
	}
	if runtimeDir != "" {
		roots = append(roots, filepath.Join(runtimeDir, "lib"))
	}
	return roots
}

// Install makes the embedded libraries available as files and returns their directory, which it
// makes below the first of roots that will do. It returns ErrNotBuilt when there is nothing to
// install, and one error that names every root and what to do when none will do.
//
// Any number of processes may install at once; a file that is there is replaced only when it
// differs from what it should be.
func Install(roots []string) (dir string, err error) {
	return install(roots, Libraries())
}

func install(roots []string, libraries []Library) (string, error) {
	if len(libraries) == 0 {
		return "", ErrNotBuilt
	}
	var problems error
	for _, root := range roots {
		dir := filepath.Join(root, "lib-"+Version(libraries))
		err := installInto(root, dir, libraries)
		if err == nil {
			return dir, nil
		}
		if problems != nil {
			err = fmt.Errorf("%w; %w", problems, err) // one line for people, unlike errors.Join
		}
		problems = err
	}
	return "", fmt.Errorf("install the drop-in libraries: %w; set XDG_CACHE_HOME to a directory"+
		" of yours with a megabyte free", problems)
}

func installInto(root, dir string, libraries []Library) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return err
	}
	for _, d := range []string{root, dir} {
		if err := makePrivate(d); err != nil {
			return err
		}
	}
	if err := checkExecutable(dir); err != nil {
		return err
	}
	for _, l := range libraries {
		if err := l.installInto(dir); err != nil {
			return err
		}
	}
	return nil
}

// makePrivate makes a directory unless it is there, and refuses one in which somebody else could
// put a library for our programs to load.
func makePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case ok && st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%s belongs to user %d", dir, st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s is writable by other users", dir)
	}
	return nil
}

// checkExecutable refuses file systems from which the dynamic linker may not map code.
func checkExecutable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s is on a file system mounted noexec", dir)
	}
	return nil
}

func (l Library) installInto(dir string) error {
	target := filepath.Join(dir, l.Name)
	if l.isAt(target) {
		return nil
	}
	// Written under another name and renamed: a program that starts at this moment loads a whole
	// library, and one that has loaded a damaged one keeps its mapping.
	temporary, err := os.CreateTemp(dir, "."+l.Name+"-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(l.Content)
	if err == nil {
		err = temporary.Chmod(0o755)
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr // a full disk may show up only here
	}
	if err == nil {
		err = os.Rename(temporary.Name(), target)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

// isAt compares content rather than size, so that a file which a crash or a full disk has cut
// short, or which somebody has edited, is repaired.
func (l Library) isAt(target string) bool {
	info, err := os.Lstat(target)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(l.Content)) {
		return false
	}
	content, err := os.ReadFile(target)
	return err == nil && bytes.Equal(content, l.Content)
}
