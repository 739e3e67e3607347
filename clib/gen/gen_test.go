package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var sample = []Symbol{
	{Name: "ibv_open_device", Version: "IBVERBS_1.0", Hidden: true},
	{Name: "ibv_rate_to_mult", Version: "IBVERBS_1.0"},
	{Name: "ibv_open_device", Version: "IBVERBS_1.1"},
	{Name: "ibv_query_thing", Version: "IBVERBS_1.9"},
	{Name: "ibv_create_thing", Version: "IBVERBS_1.10"},
	{Name: "verbs_flag", Version: "IBVERBS_PRIVATE_50", Bytes: 4},
}

func TestFormat_Parse_ReturnsTheList(t *testing.T) {
	got, err := Parse(Format(sample))
	if err != nil || !reflect.DeepEqual(got, sample) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestParse_BadLists_AreRefused(t *testing.T) {
	for _, text := range []string{"ibv_open_device\n", "a@@V x\n"} {
		if list, err := Parse(text); err == nil {
			t.Errorf("%q: %v", text, list)
		}
	}
}

func TestSort_Versions_AreNumbersAndPrivateLast(t *testing.T) {
	shuffled := []Symbol{sample[5], sample[4], sample[0], sample[3], sample[2], sample[1]}
	Sort(shuffled)
	if !reflect.DeepEqual(shuffled, sample) {
		t.Errorf("got %+v", shuffled)
	}
}

// TestDebian12_List_HasWhatPerftestNeeds guards the list that is used where no library is.
func TestDebian12_List_HasWhatPerftestNeeds(t *testing.T) {
	list, err := Parse(debian12["libibverbs.so.1"])
	if err != nil || len(list) != 180 {
		t.Fatalf("%d symbols, %v", len(list), err)
	}
	text := Format(list)
	for _, want := range []string{
		"ibv_query_qp_data_in_order@@IBVERBS_1.14\n", "ibv_open_device@IBVERBS_1.0\n",
		"verbs_register_driver_34@@IBVERBS_PRIVATE_34\n",
		"verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestDebian12_LibraryRDMACM_HasAllVersions(t *testing.T) {
	list, err := Parse(debian12["librdmacm.so.1"])
	if err != nil || len(list) != 68 {
		t.Fatalf("%d symbols, %v", len(list), err)
	}
	want := []string{"RDMACM_1.0", "RDMACM_1.1", "RDMACM_1.2", "RDMACM_1.3"}
	if got := versions(list); !slices.Equal(got, want) {
		t.Errorf("versions %v", got)
	}
	stubs := Stubs(list, map[string]bool{"rdma_create_id": true})
	if strings.Contains(stubs, "rdma_create_id") || strings.Contains(stubs, "return errno") ||
		!strings.Contains(stubs, "intptr_t rsocket(void)\n{\n\terrno = EOPNOTSUPP;\n\treturn -1;") {
		t.Error(stubs)
	}
}

// TestGenerate_SymbolsOfAnotherRelease_AreExported links a library of a list that no release has,
// and reads it back: other distributions have other private versions.
func TestGenerate_SymbolsOfAnotherRelease_AreExported(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gcc := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, out)
		}
	}
	write("own.c", "int ibv_open_device(void);\nint ibv_open_device(void) { return 42; }\n"+
		"__attribute__((visibility(\"hidden\"))) int ibv_create_thing(void) { return 1; }\n")
	gcc("-fPIC", "-c", "-o", path("own.o"), path("own.c"))
	implemented, err := ReadObjects([]string{path("own.o")})
	if err != nil || !implemented["ibv_open_device"] || len(implemented) != 1 {
		t.Fatalf("implemented: %v, %v", implemented, err)
	}
	delete(implemented, "ibv_create_thing")
	write("stubs.c", Stubs(sample, implemented))
	write("map", VersionScript(sample, implemented))
	write("own.c", "int ibv_open_device(void);\nint ibv_open_device(void) { return 42; }\n")
	gcc("-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared",
		"-Wl,--version-script="+path("map"), "-o", path("lib.so"), path("own.c"), path("stubs.c"),
		"-fvisibility=default")
	got, err := ReadLibrary(path("lib.so"))
	if err != nil || !reflect.DeepEqual(got, sample) {
		t.Errorf("exported %s, %v", Format(got), err)
	}
}

func TestReadLibrary_NotALibrary_IsAnError(t *testing.T) {
	for _, path := range []string{"/nonexistent", "gen_test.go"} {
		if list, err := ReadLibrary(path); err == nil {
			t.Errorf("%s: %v", path, list)
		}
	}
}
