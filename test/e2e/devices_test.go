package e2e

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		out := p.server.run(t, "ibv_devices").succeed(t).stdout
		found := regexp.MustCompile(`(?m)^\s+rnic0\s+([0-9a-f]{16})$`).FindStringSubmatch(out)
		if found == nil || found[1] == strings.Repeat("0", 16) {
			t.Fatalf("no rnic0 with a GUID in\n%s", out)
		}
		if p.client == p.server {
			return
		}
		if other := p.client.run(t, "ibv_devices").succeed(t).stdout; strings.Contains(other, found[1]) {
			t.Errorf("two hosts have the same GUID %s", found[1])
		}
	})
}

// devinfoLines are what "ibv_devinfo -v" must say, as regular expressions of lines without the
// space around them.
var devinfoLines = []string{
	`hca_id:\s+rnic0`,
	`transport:\s+InfiniBand \(0\)`,
	`node_guid:\s+(?:[0-9a-f]{4}:){3}[0-9a-f]{4}`,
	`phys_port_cnt:\s+1`,
	`max_mr_size:\s+0x[1-9a-f][0-9a-f]*`,
	`max_qp:\s+[1-9]\d*`,
	`max_qp_wr:\s+[1-9]\d*`,
	`max_sge:\s+[1-9]\d*`,
	`max_cqe:\s+[1-9]\d*`,
	`max_qp_rd_atom:\s+[1-9]\d*`,
	`atomic_cap:\s+ATOMIC_HCA \(1\)`,
	`max_pkeys:\s+1`,
	`port:\s+1`,
	`state:\s+PORT_ACTIVE \(4\)`,
	`max_mtu:\s+4096 \(5\)`,
	`active_mtu:\s+4096 \(5\)`,
	`link_layer:\s+Ethernet`,
	`max_msg_sz:\s+0x80000000`,
	`phys_state:\s+LINK_UP \(5\)`,
	`GID\[\s*0\]:\s+\S+, RoCE v2`,
}

func TestDevinfo_Verbose_TellsLimitsAndAddresses(t *testing.T) {
	atPlaces(t, func(t *testing.T, p pair) {
		out := p.server.run(t, "ibv_devinfo", "-v").succeed(t).stdout
		for _, pattern := range devinfoLines {
			if !regexp.MustCompile(`(?m)^\s*` + pattern + `\s*$`).MatchString(out) {
				t.Errorf("no line like %s", pattern)
			}
		}
		gids := regexp.MustCompile(`GID\[\s*(\d+)\]:\s+(\S+),`).FindAllStringSubmatch(out, -1)
		var addresses []string
		for _, g := range gids {
			addresses = append(addresses, g[2])
		}
		p.checkGIDs(t, addresses)
		if t.Failed() {
			t.Log(out)
		}
	})
}

// guidsOf reads "ibv_devices": names and GUIDs, in order.
func guidsOf(text string) (names, guids []string) {
	line := regexp.MustCompile(`(?m)^\s+(\S+)\s+([0-9a-f]{16})$`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		names, guids = append(names, m[1]), append(guids, m[2])
	}
	return names, guids
}

// Which devices there are is the NIC's choice, RoCE always first.
func TestDevices_Flags_NameThemAndLeaveThemOut(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                   "rnic0 iwarp0",
		"--device foo":                       "foo iwarp0",
		"--device w=iwarp,crc=on --device f": "f w",
		"--device iwarp0=none":               "rnic0",
		"--device rnic0=none":                "iwarp0",
		"--local-only":                       "rnic0",
		"--local-only --device w=iwarp":      "rnic0 w",
	} {
		t.Run(flags, func(t *testing.T) {
			m := anyMachine(t)
			m.startNIC(t, strings.Fields(flags)...)
			names, guids := guidsOf(m.run(t, "ibv_devices").succeed(t).stdout)
			if got := strings.Join(names, " "); got != want {
				t.Errorf("devices %s, want %s", got, want)
			}
			slices.Sort(guids)
			if len(slices.Compact(guids)) != len(names) {
				t.Errorf("GUIDs %v", guids)
			}
		})
	}
}

// iwarpLines are what "ibv_devinfo -v" must say of a device of iWARP.
var iwarpLines = []string{
	`hca_id:\s+iwarp0`,
	`transport:\s+iWARP \(1\)`,
	`max_mcast_grp:\s+0`,
	`max_ah:\s+0`,
	`max_pkeys:\s+0`,
	`max_srq:\s+[1-9]\d*`,
	`max_qp_rd_atom:\s+[1-9]\d*`,
	`local_ca_ack_delay:\s+0`,
	`state:\s+PORT_ACTIVE \(4\)`,
	`link_layer:\s+Ethernet`,
}

func TestDevinfo_IWARP_TellsWhatItHas(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t, "--device", "iwarp0=iwarp")
	out := m.run(t, "ibv_devinfo", "-v", "-d", "iwarp0").succeed(t).stdout
	for _, pattern := range iwarpLines {
		if !regexp.MustCompile(`(?m)^\s*` + pattern + `\s*$`).MatchString(out) {
			t.Errorf("no line like %s", pattern)
		}
	}
	// The program takes a GID whose last half is 0, as all of iWARP are, for none.
	if strings.Contains(out, "\tXRC") || strings.Contains(out, "GID[") {
		t.Error("more than iWARP has")
	}
	both := m.run(t, "ibv_devinfo").succeed(t).stdout
	first, second := strings.Index(both, "hca_id:\trnic0"), strings.Index(both, "hca_id:\tiwarp0")
	if first < 0 || second < first {
		t.Errorf("rnic0 at %d, iwarp0 at %d", first, second)
	}
	ours := m.start(t, rnic, "devinfo", "-v").succeed(t).stdout
	for _, want := range []string{
		"rnic0", "RoCE v2", "TCP",
		"iwarp0", "iWARP, with congestion=auto,crc=on,fpdu=auto,markers=off,mpa=2",
	} {
		if !strings.Contains(ours, want) {
			t.Errorf("rnic devinfo says nothing of %q", want)
		}
	}
	if t.Failed() {
		t.Log(out, both, ours)
	}
}

// TestDevices_Chosen_RpingUsesIt wants what the user says to hold, and a name that is none to be
// told in one line.
func TestDevices_Chosen_RpingUsesIt(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	for _, device := range []string{"rnic0", "iwarp0"} {
		choice := "RNIC_DEVICE=" + device
		server := m.run(t, "env", choice, "rping", "-s", "-a", "127.0.0.1", "-p", "7199", "-C", "9")
		until(t, "rping listens", func() bool { return m.hasListener(t) })
		text := m.start(t, rnic, "ps").succeed(t).stdout
		if !regexp.MustCompile(`rping\[\d+\]\s+` + device + `\s+listening`).MatchString(text) {
			t.Errorf("no listener on %s in\n%s", device, text)
		}
		client := m.run(t, "env", choice, "rping", "-c", "-a", "127.0.0.1", "-p", "7199", "-C", "9")
		if out := client.end(t); out.status != 0 {
			t.Errorf("rping on %s: status %d, %s", device, out.status, out.stderr)
		}
		server.end(t)
		stat := m.start(t, rnic, "stat").succeed(t).stdout
		if !strings.Contains(stat, device+" HW_COUNTERS") {
			t.Errorf("nothing is counted for %s:\n%s", device, stat)
		}
	}
	out := m.run(t, "env", "RNIC_DEVICE=mlx5_0", "rping", "-c", "-a", "127.0.0.1").end(t)
	want := `librdmacm(softrnic): there is no device "mlx5_0" (RNIC_DEVICE);` +
		` the NIC has: rnic0, iwarp0`
	if out.status == 0 || !strings.Contains(out.stderr, want) {
		t.Errorf("status %d, %q", out.status, out.stderr)
	}
}

// checkGIDs wants every address of the host, and those that others can reach before loopback.
func (p pair) checkGIDs(t *testing.T, gids []string) {
	t.Helper()
	loopback := slices.Index(gids, "::ffff:127.0.0.1")
	if loopback < 0 {
		t.Errorf("127.0.0.1 is not among %v", gids)
	}
	if p.server.ns == nil {
		return // the addresses of the machine are not known here
	}
	for _, want := range []string{"::ffff:10.77.0.1", "fd77::1"} {
		if i := slices.Index(gids, want); i < 0 || i > loopback {
			t.Errorf("%s is at %d of %v", want, i, gids)
		}
	}
}

// TestDevinfo_OwnCommand compares ours with what the program of rdma-core says.
func TestDevinfo_OwnCommand_AgreesWithIbvDevinfo(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	theirs := m.run(t, "ibv_devinfo", "-v").succeed(t).stdout
	ours := m.start(t, rnic, "devinfo", "-v").succeed(t).stdout
	for _, name := range []string{
		"node_guid", "max_mr_size", "max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr",
		"max_pd", "max_qp_rd_atom", "max_srq", "max_srq_wr", "max_ah", "active_mtu",
	} {
		pattern := regexp.MustCompile(`(?m)^\s*` + name + `:\s+(\S+)`)
		a, b := pattern.FindStringSubmatch(theirs), pattern.FindStringSubmatch(ours)
		if a == nil || b == nil || a[1] != b[1] {
			t.Errorf("%s: %v there, %v here", name, a, b)
		}
	}
	for _, want := range []string{"GSO", "GRO", "sent_pkts", m.socketPath(t)} {
		if !strings.Contains(ours, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(ours)
	}
}

// TestPs shows a pair of programs with what they have, and nothing once they have ended.
func TestPs_RunningPrograms_AreListedWithTheirObjects(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t)
	server, client := startEndless(t, p, "ibv_rc_pingpong -g 0 -n 1000000000")
	list := p.server.contexts(t)
	for _, program := range []*process{server, client} {
		i := slices.IndexFunc(list, func(c contextStatus) bool { return c.PID == program.pid() })
		if i < 0 {
			t.Fatalf("pid %d is not in %+v", program.pid(), list)
		}
		c := list[i]
		if c.Program != "ibv_rc_pingpong" || c.UID != p.server.uid || len(c.MRs) != 1 ||
			len(c.CQs) != 1 || len(c.QPs) != 1 || c.QPs[0].State != "RTS" || c.QPs[0].Type != "RC" {
			t.Errorf("%+v", c)
		}
	}
	text := p.server.start(t, rnic, "ps").succeed(t).stdout
	for _, want := range []string{"ibv_rc_pingpong", "RTS", "RC"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	client.kill()
	server.kill()
	p.server.awaitPrograms(t, 0)
	text = p.server.start(t, rnic, "ps").succeed(t).stdout
	if !strings.Contains(text, "no program uses the NIC") {
		t.Errorf("%q", text)
	}
}

// sysfsWithAdapter runs a program where the kernel has an adapter, for all that /sys says.
const sysfsWithAdapter = `mount -t tmpfs none /sys/class || exit 77
mkdir -p /sys/class/infiniband/mlx5_0/ports/1 /sys/class/infiniband_verbs/uverbs0
echo mlx5_0 > /sys/class/infiniband_verbs/uverbs0/ibdev
echo 1 > /sys/class/infiniband_verbs/uverbs0/abi_version
echo 6 > /sys/class/infiniband_verbs/abi_version
exec "$0" "$@"`

// The host's own adapters are not the NIC's business: a program on it sees the NIC alone.
func TestRun_HostHasAnAdapter_G10_ProgramsSeeTheNICAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts over /sys, which needs root")
	}
	m := newMachine(t, nil, 0)
	m.startNIC(t, "--local-only")
	for _, tool := range []string{"ibv_devices", "ibv_devinfo"} {
		requireProgram(t, tool)
		out := m.run(t, "unshare", "--mount", "sh", "-c", sysfsWithAdapter, tool).end(t)
		if out.status == 77 {
			t.Skipf("no mounts here: %s", out.stderr)
		}
		if out.status != 0 || !strings.Contains(out.stdout, "rnic0") ||
			strings.Contains(out.stdout, "mlx5") {
			t.Errorf("%s: status %d\n%s%s", tool, out.status, out.stdout, out.stderr)
		}
	}
}
