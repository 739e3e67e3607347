package vmtest

import (
	"bytes"
	"fmt"
	"os"
	"path"
)

// archive writes the format that the kernel unpacks into its first root file system: cpio "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	out   bytes.Buffer
	known map[string]bool
	inode int
}

// addFile adds a copy of a file of the host.
func (a *archive) addFile(name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.add(name, 0o100755, content)
	return nil
}

func (a *archive) addDir(name string) { a.add(name, 0o040755, nil) }

// addConsole adds the device that the kernel opens for the first process.
func (a *archive) addConsole() {
	a.header(entry{name: "dev/console", mode: 0o020600, major: 5, minor: 1})
}

// add adds an entry, unless it is there, and its parents.
func (a *archive) add(name string, mode int, content []byte) {
	if a.known[name] {
		return
	}
	if parent := path.Dir(name); parent != "." {
		a.addDir(parent)
	}
	if a.known == nil {
		a.known = map[string]bool{}
	}
	a.known[name] = true
	a.header(entry{name: name, mode: mode, size: len(content)})
	a.out.Write(content)
	a.pad()
}

type entry struct {
	name         string
	mode, size   int
	major, minor int
}

func (a *archive) header(e entry) {
	a.inode++
	fmt.Fprintf(&a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, e.mode, 0, 0, 1, 0, e.size, 0, 0, e.major, e.minor, len(e.name)+1, 0)
	a.out.WriteString(e.name)
	a.out.WriteByte(0)
	a.pad()
}

// pad aligns to four bytes, headers and contents alike.
func (a *archive) pad() {
	for a.out.Len()%4 != 0 {
		a.out.WriteByte(0)
	}
}

func (a *archive) finish() []byte {
	a.header(entry{name: "TRAILER!!!"})
	return a.out.Bytes()
}
