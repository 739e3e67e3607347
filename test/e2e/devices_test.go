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
