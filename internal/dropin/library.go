package dropin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// files holds .keep besides the libraries, so that a checkout without built libraries compiles.
//
//go:embed all:files
var files embed.FS

// ErrNotBuilt is returned by Install of a binary that carries no libraries.
var ErrNotBuilt = errors.New("this rnic was built without the drop-in libraries;" +
	" build it with make in a checkout of the sources")

// Library is one shared object under the name that programs ask the dynamic linker for.
type Library struct {
	Name    string // libibverbs.so.1
	Content []byte
}

// Libraries returns what the binary carries, sorted by name; none in a binary built without.
func Libraries() []Library {
	entries, err := fs.ReadDir(files, "files")
	if err != nil {
		return nil // cannot be: the directory is embedded
	}
	var out []Library
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		content, err := files.ReadFile(path.Join("files", entry.Name()))
		if err == nil {
			out = append(out, Library{Name: entry.Name(), Content: content})
		}
	}
	return out
}

// Version names the content of libraries: the same libraries have the same version.
func Version(libraries []Library) string {
	hash := sha256.New()
	for _, l := range libraries {
		fmt.Fprintf(hash, "%s %d\n", l.Name, len(l.Content))
		hash.Write(l.Content)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}
