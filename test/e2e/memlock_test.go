package e2e

import (
	"os"
	"strconv"
	"testing"
)

// A program that may lock no memory at all registers what it likes: neither it nor its NIC, which
// is started under the same limit, pins a page.
func TestRun_NothingMayBeLocked_M01_RegistersMemory(t *testing.T) {
	requireProgram(t, "prlimit")
	requireProgram(t, "ib_write_bw")
	p := oneHostOrSelf(t)
	if os.Geteuid() == 0 {
		p = oneHost(t, userOne) // the limit does not bind root
	}
	port := newPort()
	args := []string{
		"--memlock=0:0", rnic, "run", "--",
		"ib_write_bw", "-F", "-p", strconv.Itoa(port), "-n", "20", "-s", "8388608",
	}
	server := p.server.start(t, "prlimit", args...)
	server.awaitListening(t, port)
	client := p.client.start(t, "prlimit", append(args, p.address)...)
	client.succeed(t)
	server.succeed(t)
}
