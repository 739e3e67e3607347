package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	library := flag.String("library", FindLibrary(), "real library whose symbols to export")
	out := flag.String("out", "", "directory for libibverbs.map and stubs.c")
	list := flag.Bool("list", false, "print the library's symbols and do nothing else")
	flag.Parse()
	if err := run(*library, *out, *list, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "clib/gen: %v\n", err)
		os.Exit(1)
	}
}

// run generates the files from the object files given.
func run(library, out string, list bool, objects []string) error {
	symbols, err := symbolsOf(library)
	if err != nil {
		return err
	}
	if list {
		fmt.Print(Format(symbols))
		return nil
	}
	implemented, err := ReadObjects(objects)
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(out, "libibverbs.map"), []byte(VersionScript(symbols)), 0o644)
	if err != nil {
		return err
	}
	stubs := Stubs(symbols, implemented)
	return os.WriteFile(filepath.Join(out, "stubs.c"), []byte(stubs), 0o644)
}

func symbolsOf(library string) ([]Symbol, error) {
	if library == "" {
		return Parse(debian12)
	}
	return ReadLibrary(library)
}
