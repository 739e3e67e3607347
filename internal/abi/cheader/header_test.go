package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const headerFile = "../../../clib/include/rnic_abi.h"

func TestHeader_OfRepository_IsUpToDate(t *testing.T) {
	got, err := os.ReadFile(headerFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Header() {
		t.Errorf("%s is stale: run go generate ./internal/abi/...", headerFile)
	}
}

// TestHeader_Contents_AreAllOfPackageABI reads the package's source: what it exports and the
// lists of this generator must not drift apart.
func TestHeader_Contents_AreAllOfPackageABI(t *testing.T) {
	listed := map[string]bool{"Op": true, "Vendor": true} // numbers, whose values are constants
	for _, v := range structs {
		listed[reflect.TypeOf(v).Name()] = true
	}
	for _, group := range constants {
		for _, c := range group.list {
			listed[c.name] = true
		}
	}
	paths, err := filepath.Glob("../*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source of package abi: %v", err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range exported(file) {
			if !listed[name] {
				t.Errorf("%s: %s is not in contents.go", path, name)
			}
		}
	}
}

func exported(file *ast.File) []string {
	var names []string
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					names = append(names, spec.Name.Name)
				}
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					if id.IsExported() && gen.Tok == token.CONST {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return names
}

// TestHeader_CompilersLayout_EqualsGo lets each C compiler print what it makes of the header.
func TestHeader_CompilersLayout_EqualsGo(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			if _, err := exec.LookPath(cc); err != nil {
				t.Skipf("%s is not installed", cc)
			}
			checkLayout(t, cc)
		})
	}
}

func checkLayout(t *testing.T, cc string) {
	var prog, want strings.Builder
	prog.WriteString("#include <stdio.h>\n#include \"rnic_abi.h\"\nint main(void)\n{\n")
	for _, v := range structs {
		typ := reflect.TypeOf(v)
		name := structName(typ)
		fmt.Fprintf(&prog, "printf(\"%s %%zu\\n\", sizeof(struct %s));\n", name, name)
		fmt.Fprintf(&want, "%s %d\n", name, typ.Size())
		for f := range fields(typ) {
			fmt.Fprintf(&prog, "printf(\"%s.%s %%zu\\n\", offsetof(struct %s, %s));\n",
				name, fieldName(f.Name), name, fieldName(f.Name))
			fmt.Fprintf(&want, "%s.%s %d\n", name, fieldName(f.Name), f.Offset)
		}
	}
	for _, group := range constants {
		for _, c := range group.list {
			fmt.Fprintf(&prog, "printf(\"%s %%llu\\n\", (unsigned long long)%s);\n",
				macroName(c.name), macroName(c.name))
			fmt.Fprintf(&want, "%s %d\n", macroName(c.name), c.value)
		}
	}
	prog.WriteString("return 0;\n}\n")
	src := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(src, []byte(prog.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	bin := strings.TrimSuffix(src, ".c")
	cmd := exec.Command(cc, "-std=c11", "-Wall", "-Wextra", "-Werror",
		"-I", filepath.Dir(headerFile), "-o", bin, src)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("C sees\n%s\nGo sees\n%s", got, want.String())
	}
}

// TestStructs_Fields_HavePaddingNowhere keeps every byte that crosses the boundary named.
func TestStructs_Fields_HavePaddingNowhere(t *testing.T) {
	for _, v := range structs {
		typ := reflect.TypeOf(v)
		end := uintptr(0)
		for f := range fields(typ) {
			if f.Offset != end {
				t.Errorf("%v.%s: %d bytes of padding before it", typ, f.Name, f.Offset-end)
			}
			end = f.Offset + f.Type.Size()
		}
		if end != typ.Size() {
			t.Errorf("%v: %d bytes of padding at its end", typ, typ.Size()-end)
		}
	}
}

func TestFieldName_SpellingsOfGo_BecomeC(t *testing.T) {
	for in, want := range map[string]string{
		"WRID": "wr_id", "NumSGE": "num_sge", "ImmOrRKey": "imm_or_rkey",
		"DLIDPathBits":    "dlid_path_bits",
		"HCACoreClockKHz": "hca_core_clock_khz", "DestQPN": "dest_qpn", "SGIDIndex": "sgid_index",
		"Reserved2": "reserved2", "CapFlags2": "cap_flags2", "CQE": "cqe", "IOVA": "iova",
		"SQIndex": "sq_index",
	} {
		if got := fieldName(in); got != want {
			t.Errorf("fieldName(%s) = %s, want %s", in, got, want)
		}
	}
}
