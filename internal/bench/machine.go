package bench

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Machine describes where a run was.
type Machine struct {
	Processor string   `json:"processor"`
	Cores     int      `json:"cores"`
	IsVirtual bool     `json:"is_virtual,omitempty"`
	MemoryGB  float64  `json:"memory_gb"`
	Kernel    string   `json:"kernel"`
	System    string   `json:"system"`
	Go        string   `json:"go"`
	Load      string   `json:"load_before"`
	User      string   `json:"user"`
	Peers     []string `json:"peers,omitempty"` // each with its version
}

// Describe looks at this machine. Packages are those of the peers, as the distribution calls them.
func Describe(packages ...string) Machine {
	m := Machine{
		Cores: runtime.NumCPU(), Go: runtime.Version(), User: "an ordinary user",
		Kernel: readLine("/proc/sys/kernel/osrelease"), System: runtime.GOOS,
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "model name":
			m.Processor = strings.TrimSpace(value)
		case "flags":
			m.IsVirtual = slices.Contains(strings.Fields(value), "hypervisor")
		}
	}
	release, _ := os.ReadFile("/etc/os-release")
	for line := range strings.Lines(string(release)) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			m.System = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	var kilobytes float64
	if _, err := fmt.Sscanf(readLine("/proc/meminfo"), "MemTotal: %f kB", &kilobytes); err == nil {
		m.MemoryGB = float64(int(kilobytes*1024/1e8)) / 10
	}
	if fields := strings.Fields(readLine("/proc/loadavg")); len(fields) > 0 {
		m.Load = fields[0]
	}
	if os.Geteuid() == 0 {
		m.User = "root"
	}
	m.Peers = versions(packages)
	return m
}

// versions asks the package manager of Debian; elsewhere nothing is known.
func versions(packages []string) []string {
	var out []string
	for _, name := range packages {
		text, err := exec.Command("dpkg-query", "-W", "-f=${Version}", name).Output()
		if err == nil && len(text) > 0 {
			out = append(out, name+" "+string(text))
		}
	}
	return out
}

func readLine(name string) string {
	text, _ := os.ReadFile(name)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// isLike says that figures of one machine mean something on the other.
func (m *Machine) isLike(other *Machine) bool {
	return m.Processor == other.Processor && m.Cores == other.Cores
}

// isBusy says that something else ran when the run began, so that its figures mean little.
func (m *Machine) isBusy() bool {
	load, err := strconv.ParseFloat(m.Load, 64)
	return err == nil && load > 0.5*float64(m.Cores)
}
