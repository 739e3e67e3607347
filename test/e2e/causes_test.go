package e2e

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/nic"
)

var mistaken = ownProgram{name: "mistakes", libraries: "-libverbs"}

// An unmodified program that makes mistakes leaves a chain of causes for each, on standard error
// when that is asked for, and in "rnic ps --errors" also after its end.
func TestCauses_ProgramsMistakes_E09_AreToldInPlainWords(t *testing.T) {
	m := anyMachine(t)
	m.env = append(m.env, "RNIC_VERBOSE=1")
	up := m.start(t, rnic, "up")
	until(t, "the NIC is ready", func() bool {
		return strings.Contains(up.stdout.String(), "is ready")
	})
	out := m.run(t, mistaken.build(t)).end(t)
	want := "modify 22\npost 22\nwr_id 8 status 10\nwr_id 9 status 5\n"
	if out.status != 0 || out.stdout != want {
		t.Errorf("the program says %q", out.stdout)
	}
	for _, want := range []string{
		"modify_qp: RC QP cannot go from RESET to RTS",
		"ibv_post_send of wr_id 7 on QP 0x",
		"2 scatter/gather entries; the QP has room for 1",
		"wr_id 8 on QP 0x", "remote access error (status 10, vendor_err 0x6201)",
		"NAK syndrome 0x62", "64 bytes at 0x", "rnic explain wc status 10",
	} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("standard error does not say %q:\n%s", want, out.stderr)
		}
	}
	text := strings.Join(strings.Fields(m.start(t, rnic, "ps", "--errors").succeed(t).stdout), " ")
	for _, want := range []string{
		`mistakes\[\d+\] \(ended\), QP 0x[0-9a-f]+, verb`,
		`ibv_modify_qp failed with EINVAL \(22, invalid argument\)`,
		`ibv_post_send of wr_id 7, WRITE, failed with EINVAL`,
		`a request of the peer was refused: RC_WRITE_ONLY`,
		`range outside the region: key 0x[0-9a-f]{8}, 0x[0-9a-f]+…0x[0-9a-f]+ \(64 bytes\)`,
		`the region is 0x[0-9a-f]+…0x[0-9a-f]+ \(4096 bytes\)`,
		`wr_id 8, WRITE: remote access error \(IBV_WC_REM_ACCESS_ERR, 10\)`,
		`with NAK remote access error \(syndrome 0x62\)`,
		`at the peer, mistakes\[\d+\]: range outside the region`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("ps --errors does not say %s:\n%s", want, text)
		}
	}
	var report struct {
		Errors []nic.ErrorStatus `json:"errors"`
	}
	raw := m.start(t, rnic, "ps", "--errors", "--json").succeed(t).stdout
	if err := json.Unmarshal([]byte(raw), &report); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	kinds := map[nic.ErrorKind]int{}
	for _, e := range report.Errors {
		kinds[e.Kind]++
	}
	if kinds[nic.ErrorVerb] != 1 || kinds[nic.ErrorPost] != 1 || kinds[nic.ErrorPeer] != 1 ||
		kinds[nic.ErrorRequest] != 1 {
		t.Errorf("errors by kind: %v", kinds)
	}
	if log := up.stderr.String(); !strings.Contains(log, "IBV_WC_REM_ACCESS_ERR") {
		t.Errorf("the log does not tell of the failure:\n%s", log)
	}
}

// A connection that fails is told on both sides: to who asked, and to who was asked in vain.
func TestCauses_NobodyListens_E09_BothSidesAreTold(t *testing.T) {
	m := anyMachine(t)
	m.env = append(m.env, "RNIC_VERBOSE=1")
	up := m.start(t, rnic, "up")
	until(t, "the NIC is ready", func() bool {
		return strings.Contains(up.stdout.String(), "is ready")
	})
	out := m.run(t, "rping", "-c", "-a", "127.0.0.1", "-p", "7999", "-C", "1").end(t)
	for _, want := range []string{"RDMA_CM_EVENT_REJECTED", "rnic explain reject 8"} {
		if out.status == 0 || !strings.Contains(out.stderr, want) {
			t.Errorf("status %d; standard error does not say %q:\n%s", out.status, want, out.stderr)
		}
	}
	text := strings.Join(strings.Fields(m.start(t, rnic, "ps", "--errors").succeed(t).stdout), " ")
	for _, want := range []string{
		"request refused", "127.0.0.1 asked for a connection with 127.0.0.1, port 7999 of TCP",
		"(ended)", "invalid service ID (IB_CM_REJ_INVALID_SERVICE_ID)", "likely: the server",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("ps --errors does not say %q:\n%s", want, text)
		}
	}
}
