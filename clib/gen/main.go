package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	name := flag.String("name", "libibverbs.so.1", "library to generate for")
	library := flag.String("library", "", "its real counterpart, by default the one installed")
	out := flag.String("out", "", "directory for the version script and the stubs")
	list := flag.Bool("list", false, "print the library's symbols and do nothing else")
	flag.Parse()
	if *library == "" {
		*library = FindLibrary(*name)
	}
	symbols, err := symbolsOf(*name, *library)
	if err == nil && *list {
		fmt.Print(Format(symbols))
		return
	}
	if err == nil {
		base, _, _ := strings.Cut(*name, ".")
		err = generate(symbols, filepath.Join(*out, base), flag.Args())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "clib/gen: %v\n", err)
		os.Exit(1)
	}
}

// generate writes both files, whose names begin with base, from the object files given.
func generate(symbols []Symbol, base string, objects []string) error {
	implemented, err := ReadObjects(objects)
	if err != nil {
		return err
	}
	script := []byte(VersionScript(symbols, implemented))
	if err := os.WriteFile(base+".map", script, 0o644); err != nil {
		return err
	}
	return os.WriteFile(base+"-stubs.c", []byte(Stubs(symbols, implemented)), 0o644)
}

func symbolsOf(name, library string) ([]Symbol, error) {
	if library == "" {
		return Parse(debian12[name])
	}
	return ReadLibrary(library)
}
