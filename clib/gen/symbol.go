package main

import (
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Symbol is one exported symbol of a library.
type Symbol struct {
	Name    string
	Version string
	// Hidden symbols are for programs linked long ago; new ones bind to another version.
	Hidden bool
	// Bytes is the size of a variable, 0 for a function.
	Bytes uint64
}

//go:embed libibverbs-debian12.txt
var libibverbsDebian12 string

//go:embed librdmacm-debian12.txt
var librdmacmDebian12 string

// debian12 has the lists of Debian 12 by the name of the library.
var debian12 = map[string]string{
	"libibverbs.so.1": libibverbsDebian12,
	"librdmacm.so.1":  librdmacmDebian12,
}

// libraryDirs is where distributions put the real libraries.
var libraryDirs = []string{"/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib"}

// FindLibrary returns the installed library, or "" where there is none.
func FindLibrary(name string) string {
	for _, dir := range libraryDirs {
		if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// ReadLibrary lists what a shared library exports, sorted.
func ReadLibrary(path string) ([]Symbol, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	dynamic, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	var out []Symbol
	for _, s := range dynamic {
		kind := elf.ST_TYPE(s.Info)
		exported := s.Section != elf.SHN_UNDEF && s.Section != elf.SHN_ABS && s.HasVersion
		if !exported || kind != elf.STT_FUNC && kind != elf.STT_OBJECT {
			continue
		}
		sym := Symbol{Name: s.Name, Version: s.Version, Hidden: s.VersionIndex.IsHidden()}
		if kind == elf.STT_OBJECT {
			sym.Bytes = s.Size
		}
		out = append(out, sym)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("read the symbols of %s: %w", path, errors.New("no versions in it"))
	}
	Sort(out)
	return out, nil
}

// ReadObjects returns the names that object files define for others to use.
func ReadObjects(paths []string) (map[string]bool, error) {
	defined := map[string]bool{}
	for _, path := range paths {
		file, err := elf.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
		}
		symbols, err := file.Symbols()
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("read the symbols of %s: %w", path, err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && elf.ST_BIND(s.Info) == elf.STB_GLOBAL &&
				elf.ST_VISIBILITY(s.Other) == elf.STV_DEFAULT {
				defined[s.Name] = true
			}
		}
	}
	return defined, nil
}

// Sort orders symbols by version, then name.
func Sort(list []Symbol) {
	slices.SortFunc(list, func(a, b Symbol) int {
		if c := compareVersions(a.Version, b.Version); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// compareVersions sorts IBVERBS_1.9 before IBVERBS_1.10, and private versions last.
func compareVersions(a, b string) int {
	na, nb := versionNumber(a), versionNumber(b)
	if na != nb {
		return na - nb
	}
	return strings.Compare(a, b)
}

func versionNumber(v string) int {
	const private = 1 << 20
	_, minor, _ := strings.Cut(v, "_1.")
	if n, err := strconv.Atoi(minor); err == nil {
		return n
	}
	return private
}

// Format writes a list as text, one symbol a line; Parse reads it.
func Format(list []Symbol) string {
	var b strings.Builder
	for _, s := range list {
		at := "@@"
		if s.Hidden {
			at = "@"
		}
		fmt.Fprintf(&b, "%s%s%s", s.Name, at, s.Version)
		if s.Bytes > 0 {
			fmt.Fprintf(&b, " %d", s.Bytes)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads what Format wrote.
func Parse(text string) ([]Symbol, error) {
	var out []Symbol
	for line := range strings.Lines(text) {
		word, size, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, version, ok := strings.Cut(word, "@")
		if !ok {
			return nil, fmt.Errorf("symbol list: %q has no version", word)
		}
		s := Symbol{Name: name, Hidden: true}
		s.Version = strings.TrimPrefix(version, "@")
		s.Hidden = s.Version == version
		if size != "" {
			n, err := strconv.ParseUint(size, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("symbol list: size of %s: %w", word, err)
			}
			s.Bytes = n
		}
		out = append(out, s)
	}
	return out, nil
}
