package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// program is what "rnic run" is asked to run.
type program struct {
	path string
	args []string // args[0] is the name as it was given
}

// findProgram looks a program up as a shell does: a name with a slash is a path, another is
// searched in PATH. The error is a failure with the status that a shell would give.
func findProgram(args []string) (program, error) {
	name := args[0]
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	var refusal error
	for _, path := range candidates {
		err := checkProgram(path)
		if err == nil {
			return program{path: path, args: args}, nil
		}
		if refusal == nil && !isAbsent(err) {
			refusal = err
		}
	}
	if refusal != nil {
		return program{}, &failure{exitNotExecutable, fmt.Errorf("%s: %w", name, refusal)}
	}
	return program{}, &failure{exitNotFound, fmt.Errorf("%s: program not found", name)}
}

func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

func checkProgram(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		var pathError *fs.PathError
		if errors.As(err, &pathError) {
			return pathError.Err // the caller names the file
		}
		return err
	}
	if info.IsDir() {
		return unix.EISDIR
	}
	return unix.Access(path, unix.X_OK)
}

// gainsPrivileges tells why the dynamic linker will ignore LD_LIBRARY_PATH for the program, or "".
func (p program) gainsPrivileges() string {
	var st unix.Stat_t
	if err := unix.Stat(p.path, &st); err != nil {
		return ""
	}
	switch {
	case st.Mode&unix.S_ISUID != 0 && st.Uid != uint32(os.Geteuid()):
		return "is set-user-ID"
	case st.Mode&unix.S_ISGID != 0 && st.Gid != uint32(os.Getegid()):
		return "is set-group-ID"
	case os.Geteuid() == 0:
		return "" // file capabilities give root nothing that it has not
	}
	if _, err := unix.Getxattr(p.path, "security.capability", nil); err == nil {
		return "has file capabilities"
	}
	return ""
}

// exec replaces this process by the program: signals, terminal, standard streams and the exit
// status are then the program's own. It returns only on failure.
func (p program) exec(env []string) error {
	err := unix.Exec(p.path, p.args, env)
	if errors.Is(err, unix.ENOEXEC) {
		// A script without a "#!" line: POSIX gives it to sh.
		err = unix.Exec("/bin/sh", append([]string{"sh", p.path}, p.args[1:]...), env)
	}
	if isAbsent(err) {
		// The file is there: what is absent is its interpreter.
		err = errors.New("its interpreter or dynamic linker does not exist")
	}
	return &failure{exitNotExecutable, fmt.Errorf("%s: %w", p.args[0], err)}
}

// programEnvironment is the environment of this process with the drop-in libraries first in the
// search path of the dynamic linker, and the socket of the NIC.
func programEnvironment(env []string, libraries, socket string) []string {
	out := make([]string, 0, len(env)+2)
	search := libraries
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		switch name {
		case "LD_LIBRARY_PATH":
			if rest := without(value, libraries); rest != "" {
				search += ":" + rest
			}
		case "RNIC_SOCKET":
		default:
			out = append(out, entry)
		}
	}
	return append(out, "LD_LIBRARY_PATH="+search, "RNIC_SOCKET="+socket)
}

// preload puts a library before others that the environment has the dynamic linker load.
func preload(env []string, library string) []string {
	out := make([]string, 0, len(env)+1)
	all := library
	for _, entry := range env {
		rest, ok := strings.CutPrefix(entry, "LD_PRELOAD=")
		if !ok {
			out = append(out, entry)
			continue
		}
		// Its elements are divided by spaces as well.
		for _, element := range strings.FieldsFunc(rest, func(r rune) bool {
			return r == ':' || r == ' '
		}) {
			if element != library {
				all += ":" + element
			}
		}
	}
	return append(out, "LD_PRELOAD="+all)
}

// without removes a directory from a search path, so that "rnic run -- rnic run …" does not grow
// it. Empty elements mean the working directory, and stay.
func without(searchPath, dir string) string {
	if searchPath == "" {
		return ""
	}
	var kept []string
	for _, element := range strings.Split(searchPath, ":") {
		if element != dir {
			kept = append(kept, element)
		}
	}
	return strings.Join(kept, ":")
}
