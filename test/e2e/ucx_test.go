package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// ucx starts a program of UCX that may use the given transports.
func (m *machine) ucx(t *testing.T, transports string, args ...string) *process {
	t.Helper()
	requireProgram(t, args[0])
	args = append([]string{
		"run", "--device-files", "--", "env", "UCX_TLS=" + transports, "UCX_NET_DEVICES=rnic0:1",
	}, args...)
	return m.start(t, rnic, args...)
}

// TestUCX_DeviceFiles_RunsOnTheNIC: UCX connects its queue pairs itself, and wants to be told which
// IP version a datagram came with.
func TestUCX_DeviceFiles_RunsOnTheNIC(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t)
	list := p.server.ucx(t, "all", "ucx_info", "-d").succeed(t)
	for _, transport := range []string{"rc_verbs", "ud_verbs"} {
		if !strings.Contains(list.stdout, "Transport: "+transport) {
			t.Errorf("no %s in\n%s", transport, list.stdout)
		}
	}
	for _, x := range []struct {
		transports, test string
		bytes            int
	}{
		{"rc,ud,self", "tag_lat", 8},
		{"rc,ud,self", "tag_bw", 300_000},
		{"rc,ud,self", "ucp_put_bw", 4096},
		{"rc,ud,self", "ucp_cswap", 8},
		{"ud,self", "tag_lat", 1000},
	} {
		t.Run(x.transports+" "+x.test, func(t *testing.T) {
			port := newPort()
			server := p.server.ucx(t, x.transports, "ucx_perftest", "-p", strconv.Itoa(port))
			server.awaitListening(t, port)
			client := p.server.ucx(t, x.transports, "ucx_perftest", p.address, "-p",
				strconv.Itoa(port), "-t", x.test, "-s", strconv.Itoa(x.bytes), "-n", "200")
			out := client.end(t)
			if out.status != 0 || !regexp.MustCompile(`(?m)^Final: +200 `).MatchString(out.stdout) {
				t.Errorf("status %d\n%s\n%s", out.status, out.stdout, out.stderr)
			}
			server.kill()
		})
	}
}
