package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "directory of the module")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
		os.Exit(1)
	}
}

// documents are the data files with the titles of their parts.
var documents = []struct{ file, title string }{
	{"libibverbs.txt", "libibverbs"},
	{"librdmacm.txt", "librdmacm"},
	{"semantics.txt", "What verbs carry"},
}

func run(root string) error {
	sources, err := readSources(filepath.Join(root, "clib"))
	if err != nil {
		return err
	}
	tests, err := findTests(root)
	if err != nil {
		return err
	}
	var parts []part
	for _, d := range documents {
		rows, err := readData(filepath.Join(root, "scripts/conformance/data", d.file))
		if err != nil {
			return err
		}
		parts = append(parts, part{d.title, rows})
	}
	exceptions, err := readExceptions(filepath.Join(root, "scripts/conformance/data/iwarp.txt"))
	if err != nil {
		return err
	}
	judge := newJudge(sources, tests, exceptions)
	text, err := judge.render(parts)
	if err == nil {
		err = judge.unused()
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs/conformance.md"), []byte(text), 0o644)
}
