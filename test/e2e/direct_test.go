package e2e

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/test/netnstest"
)

var direct = ownProgram{name: "direct", libraries: "-lrdmacm -libverbs -pthread"}

// counter reads one of the counters of devices, of all of them together.
func (m *machine) counter(t *testing.T, name string) (sum uint64) {
	t.Helper()
	out := m.start(t, rnic, "stat", "--json").succeed(t)
	var s struct {
		Devices []struct {
			Counters map[string]uint64 `json:"hw_counters"`
		} `json:"devices"`
	}
	if err := json.Unmarshal([]byte(out.stdout), &s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Devices {
		sum += s.Devices[i].Counters[name]
	}
	return sum
}

// TestDirect_Cases does what direct.c does, where libraries carry operations out themselves, and
// where the NIC does.
func TestDirect_Cases(t *testing.T) {
	program := direct.build(t)
	for _, mode := range []string{"on", "off"} {
		for _, device := range directDevices {
			m := anyMachine(t)
			m.startNIC(t, "--direct="+mode)
			m.env = append(m.env, "RNIC_DEVICE="+device)
			names := []string{
				"order", "late", "revoke", "reregister", "rights", "error", "access", "atomics", "full",
				"list", "events", "extended", "fringes", "overrun", "threads", "interrupted", "renew",
			}
			if device == "iwarp0" {
				names = append(names, "disconnect")
			}
			for _, name := range names {
				t.Run(mode+"/"+device+"/"+name, func(t *testing.T) {
					before := m.counter(t, "direct_ops")
					m.run(t, program, name).succeed(t)
					done := m.counter(t, "direct_ops") - before
					if isDirect := done > 50; isDirect != (mode == "on") {
						t.Errorf("%d operations were direct", done)
					}
				})
			}
		}
	}
}

// directDevices are those whose queue pairs go direct.
var directDevices = []string{"rnic0", "iwarp0"}

// TestDirect_WithoutJoin_GoesThroughTheNIC: bytes that pass TCP could be overtaken.
func TestDirect_WithoutJoin_GoesThroughTheNIC(t *testing.T) {
	program := direct.build(t)
	m := anyMachine(t)
	m.env = append(m.env, "RNIC_DISABLE_JOIN=1", "RNIC_DEVICE=iwarp0")
	m.startNIC(t)
	for _, name := range []string{"order", "late"} {
		m.run(t, program, name).succeed(t)
	}
	if got := m.counter(t, "direct_ops"); got != 0 {
		t.Errorf("%d operations were direct", got)
	}
}

// TestDirect_Counters_TellWhatWasDone: of both ends, and nothing where a program keeps out.
func TestDirect_Counters_TellWhatWasDone(t *testing.T) {
	for _, device := range directDevices {
		t.Run(device, func(t *testing.T) { testDirectCounters(t, device) })
	}
}

func testDirectCounters(t *testing.T, device string) {
	m := anyMachine(t)
	m.startNIC(t)
	const rounds, warm, throughNIC = 1000, 16, 8
	for _, c := range []struct {
		env        string
		ops, bytes uint64
	}{
		{"", 2*rounds + warm - throughNIC, 150*rounds + 8*(warm-throughNIC)},
		{"RNIC_DIRECT=off", 0, 0},
	} {
		sent, ops := m.counter(t, "sent_bytes"), m.counter(t, "direct_ops")
		bytes := m.counter(t, "direct_bytes")
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		m.stdin, m.env = read, []string{c.env, "RNIC_DEVICE=" + device}
		p := m.run(t, direct.build(t), "count", "1000")
		m.stdin, m.env = nil, nil
		until(t, "all is done", func() bool {
			return p.hasEnded() || strings.Contains(p.stdout.String(), "done")
		})
		if got := m.counter(t, "direct_ops") - ops; got != c.ops {
			t.Errorf("%q: %d operations were direct, not %d", c.env, got, c.ops)
		}
		if got := m.counter(t, "direct_bytes") - bytes; got != c.bytes {
			t.Errorf("%q: %d bytes went directly, not %d", c.env, got, c.bytes)
		}
		// Where they went through the NIC makes no difference, but that a READ's request is
		// payload of DDP on iWARP (RFC 5040 4.4).
		want := uint64(150*rounds + 8*warm)
		if device == "iwarp0" && c.ops == 0 {
			want += 28 * rounds
		}
		if got := m.counter(t, "sent_bytes") - sent; got != want {
			t.Errorf("%q: %d bytes sent, not %d", c.env, got, want)
		}
		_, _ = io.WriteString(write, "\n")
		p.end(t)
		_, _ = read.Close(), write.Close()
	}
}

// TestDirect_RegisteredAnew_GoesDirect: of 20 WRITEs to each of 40 registrations of the same memory
// eight go through the NIC, and now and then one more.
func TestDirect_RegisteredAnew_GoesDirect(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	m.run(t, direct.build(t), "renew").succeed(t)
	if done := m.counter(t, "direct_ops"); done < 300 {
		t.Errorf("%d operations were direct, not 480", done)
	}
}

// TestDirect_CrookedAtomics_GoThroughTheNIC: it does them one after the other.
func TestDirect_CrookedAtomics_GoThroughTheNIC(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	m.run(t, direct.build(t), "crooked").succeed(t)
	if done := m.counter(t, "direct_ops"); done != 0 {
		t.Errorf("%d operations were direct", done)
	}
}

// TestDirect_Cancelled_LeavesNoLock: a thread that is cancelled is not so within a verb.
func TestDirect_Cancelled_LeavesNoLock(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	m.run(t, direct.build(t), "cancelled").succeed(t)
}

// TestDirect_Capture_SeesEverything: while a capture runs every operation has its packets, and
// afterwards they go direct again.
func TestDirect_Capture_SeesEverything(t *testing.T) {
	requireProgram(t, "tshark")
	for device, write := range map[string]string{
		"rnic0": "infiniband.bth.opcode == 10", "iwarp0": "tcp.len == 120", // with MPA's and DDP's bytes
	} {
		t.Run(device, func(t *testing.T) { testDirectCapture(t, device, write) })
	}
}

// testDirectCapture wants a packet for each WRITE, which filter finds.
func testDirectCapture(t *testing.T, device, filter string) {
	m := anyMachine(t)
	m.startNIC(t)
	m.env = append(m.env, "RNIC_DEVICE="+device)
	file := filepath.Join(m.home, "a.pcapng")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	m.stdin = read
	p := m.run(t, direct.build(t), "stream", "300")
	m.stdin = nil
	said := func(what string) {
		t.Helper()
		until(t, what, func() bool {
			return p.hasEnded() || strings.Contains(p.stdout.String(), what)
		})
	}
	said("round 1")
	before := m.counter(t, "direct_ops")
	capture := m.start(t, rnic, "capture", "-w", file)
	until(t, "the capture begins", func() bool {
		return strings.Contains(capture.stderr.String(), "capturing")
	})
	_, _ = io.WriteString(write, "\n")
	said("round 2")
	during := m.counter(t, "direct_ops") - before
	capture.signal(t, syscall.SIGINT)
	capture.end(t)
	_, _ = io.WriteString(write, "\n")
	said("round 3")
	after := m.counter(t, "direct_ops") - before - during
	_, _ = io.WriteString(write, "\n")
	p.succeed(t)
	seen := len(m.tshark(t, file, filter))
	if before < 280 || during != 0 || seen != 300 || after != 300 {
		t.Errorf("direct before, during and after the capture: %d, %d, %d; it has %d WRITEs",
			before, during, after, seen)
	}
}

// TestDirect_OtherUser_GoesThroughTheNIC: who serves several users keeps them apart.
func TestDirect_OtherUser_GoesThroughTheNIC(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("programs of two users need root")
	}
	m := newMachine(t, netnstest.New(t), 0)
	m.env = append(m.env, "RNIC_SOCKET="+filepath.Join(filepath.Dir(rnic), "users.sock"))
	m.startNIC(t, "--group", "47912")
	for _, c := range []struct {
		env      string
		isDirect bool
	}{{"", true}, {"DIRECT_TARGET_USER=47912", false}} {
		before := m.counter(t, "direct_ops")
		m.env = append(m.env, c.env)
		m.run(t, direct.build(t), "full", "100").succeed(t)
		if got := m.counter(t, "direct_ops") - before; got != 0 != c.isDirect {
			t.Errorf("%q: %d operations were direct", c.env, got)
		}
	}
}

// TestDirect_NICKilled_IsNoticed: operations that need no NIC do not go on without it.
func TestDirect_NICKilled_IsNoticed(t *testing.T) {
	m := anyMachine(t)
	nic := m.startNIC(t)
	p := m.run(t, direct.build(t), "endless")
	until(t, "it goes direct", func() bool {
		return p.hasEnded() || m.counter(t, "direct_ops") > 1000
	})
	nic.signal(t, syscall.SIGKILL)
	if out := p.end(t); out.status != 0 || !strings.Contains(out.stdout, "the NIC is gone") {
		t.Errorf("status %d, %q, %q", out.status, out.stdout, out.stderr)
	}
}

// TestDirect_TargetKilled_ErrorAsEver: who writes to a program that dies gets the completions that
// it would get of an adapter.
func TestDirect_TargetKilled_ErrorAsEver(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	for _, device := range directDevices {
		m.env = append(m.env, "RNIC_DEVICE="+device)
		p := m.run(t, direct.build(t), "orphan")
		if out := p.end(t); out.status != 0 || !strings.Contains(out.stdout, "the peer is gone") {
			t.Errorf("%s: status %d, %q, %q", device, out.status, out.stdout, out.stderr)
		}
	}
}
