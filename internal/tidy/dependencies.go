package tidy

import (
	"fmt"
	"slices"
	"strings"
)

// dependency is a module that this one may require: what for, and the packages that may import
// it. Tests may import any of them.
type dependency struct {
	module, why string
	importers   []string
}

//tidy:table
var dependencies = []dependency{
	{
		module: "github.com/spf13/cobra", why: "sub-commands and flags",
		importers: []string{"cmd/rnic"},
	},
	{
		module: "golang.org/x/sys", why: "system calls that package syscall lacks",
		importers: []string{
			"internal/netio/...", "internal/hostnet", "internal/shm", "internal/ctl",
			"internal/dropin", "internal/daemon", "internal/bench/...", "verbs", "cmd/rnic",
			"test/...",
		},
	},
	{
		module: "github.com/vishvananda/netlink", why: "addresses and links of the host",
		importers: []string{"internal/hostnet", "test/..."},
	},
	{
		module: "github.com/gopacket/gopacket", why: "pcapng files",
		importers: []string{"internal/netio/pcap"},
	},
	{
		module: "github.com/prometheus/client_golang", why: "counters for Prometheus",
		importers: []string{"internal/telemetry"},
	},
	{
		module: "github.com/prometheus/common", why: "the text format of Prometheus",
		importers: []string{"internal/telemetry"},
	},
	{module: "golang.org/x/net", why: "the test of net.Conn"},
	{module: "pgregory.net/rapid", why: "property tests"},
	{module: "go.uber.org/goleak", why: "finding goroutines that a test leaves"},
}

// checkDependencies compares imports and go.mod with the table above.
func checkDependencies(r *Repo) []Problem {
	var out []Problem
	for _, f := range r.gos {
		for _, spec := range f.ast.Imports {
			full := strings.Trim(spec.Path.Value, `"`)
			if text := judgeDependency(f, full); text != "" {
				out = append(out, Problem{Path: f.path, Line: r.line(spec.Pos()), Text: text})
			}
		}
	}
	for i, line := range strings.Split(string(r.read("go.mod")), "\n") {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "v") || fields[0] == "toolchain" {
			continue // not a direct requirement
		}
		if dependencyOf(fields[0]) == nil {
			text := fields[0] + " is required, but not in the dependencies of internal/tidy"
			out = append(out, Problem{Path: "go.mod", Line: i + 1, Text: text})
		}
	}
	return out
}

func dependencyOf(full string) *dependency {
	for i := range dependencies {
		if m := dependencies[i].module; full == m || strings.HasPrefix(full, m+"/") {
			return &dependencies[i]
		}
	}
	return nil
}

func judgeDependency(f *goFile, full string) string {
	first, _, _ := strings.Cut(full, "/")
	if _, own := ownDir(full); own || !strings.Contains(first, ".") {
		return ""
	}
	d := dependencyOf(full)
	if d == nil {
		return full + " is not in the dependencies of internal/tidy"
	}
	allowed := func(p string) bool { return matchPackage(p, f.dir) }
	if f.test || slices.ContainsFunc(d.importers, allowed) {
		return ""
	}
	if d.importers == nil {
		return fmt.Sprintf("%s is for %s, in tests only", d.module, d.why)
	}
	return fmt.Sprintf("%s is for %s, in %s only",
		d.module, d.why, strings.Join(d.importers, ", "))
}
