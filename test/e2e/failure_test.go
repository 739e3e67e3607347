package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// contextStatus is the part of "rnic ps --json" that tests look at: what one program has.
type contextStatus struct {
	Program string `json:"program"`
	PID     int    `json:"pid"`
	UID     uint32 `json:"uid"`
	MRs     []any  `json:"mrs"`
	CQs     []struct {
		Completions uint64 `json:"completions"`
	} `json:"cqs"`
	QPs []struct {
		QPN    uint32 `json:"qpn"`
		Type   string `json:"type"`
		State  string `json:"state"`
		Remote string `json:"remote_gid"`
	} `json:"qps"`
}

// cmStatus is one listener or connection of the connection manager.
type cmStatus struct {
	PID   int    `json:"pid"`
	State string `json:"state"`
}

// users is what "rnic ps --json" says.
type users struct {
	Contexts []contextStatus `json:"contexts"`
	CMIDs    []cmStatus      `json:"cm_ids"`
}

func (m *machine) users(t *testing.T) users {
	t.Helper()
	var u users
	out := m.start(t, rnic, "ps", "--json").end(t)
	if out.status == 1 && strings.Contains(out.stderr, "no NIC is running") {
		return u // it ends with its last program
	}
	if out.status != 0 || out.stderr != "" {
		t.Fatalf("rnic ps: status %d, %s", out.status, out.stderr)
	}
	if err := json.Unmarshal([]byte(out.stdout), &u); err != nil {
		t.Fatalf("rnic ps --json: %v\n%s", err, out.stdout)
	}
	return u
}

// contexts lists the programs on a machine's NIC.
func (m *machine) contexts(t *testing.T) []contextStatus {
	t.Helper()
	return m.users(t).Contexts
}

// deviceStatus is the part of "rnic devinfo --json" that tests look at.
type deviceStatus struct {
	PID       int    `json:"pid"`
	MTU       int    `json:"active_mtu"`
	LocalOnly string `json:"local_only"`
	Network   struct {
		ReceiveBuffer int               `json:"receive_buffer_bytes"`
		Counters      map[string]uint64 `json:"counters"`
	} `json:"network"`
	GIDs []struct {
		Index     int    `json:"index"`
		GID       string `json:"gid"`
		Interface string `json:"interface"`
	} `json:"gids"`
}

func (m *machine) device(t *testing.T) deviceStatus {
	t.Helper()
	out := m.start(t, rnic, "devinfo", "--json").succeed(t)
	var d deviceStatus
	if err := json.Unmarshal([]byte(out.stdout), &d); err != nil {
		t.Fatalf("rnic devinfo --json: %v\n%s", err, out.stdout)
	}
	if d.PID <= 0 {
		t.Fatalf("no pid of the NIC in\n%s", out.stdout)
	}
	return d
}

// startNIC starts a NIC in the foreground and waits until it says that it is ready.
func (m *machine) startNIC(t *testing.T, flags ...string) *process {
	t.Helper()
	p := m.start(t, rnic, append([]string{"up"}, flags...)...)
	p.name = "rnic up"
	until(t, "the NIC is ready", func() bool {
		if p.hasEnded() {
			t.Fatalf("rnic up ended: %s%s", p.stdout.String(), p.stderr.String())
		}
		return strings.Contains(p.stdout.String(), "ready")
	})
	return p
}

// awaitPrograms waits until the programs that have opened the device are as many.
func (m *machine) awaitPrograms(t *testing.T, count int) {
	t.Helper()
	until(t, fmt.Sprintf("%d programs are on the NIC", count), func() bool {
		return len(m.contexts(t)) == count
	})
}

// completions is what a program's queues have received so far.
func (m *machine) completions(t *testing.T, pid int) (sum uint64) {
	t.Helper()
	for _, c := range m.contexts(t) {
		for _, q := range c.CQs {
			if c.PID == pid {
				sum += q.Completions
			}
		}
	}
	return sum
}

// awaitTraffic waits until the program has completed a hundred requests more than it has now.
func (m *machine) awaitTraffic(t *testing.T, pid int) {
	t.Helper()
	before := m.completions(t, pid)
	until(t, "the program's messages flow", func() bool {
		return m.completions(t, pid) > before+100
	})
}

// endless are programs that would go on for longer than any test waits, in the ways in which a
// program can wait: by looking and asleep.
var endless = []string{
	"ib_write_bw -F -D 600 -f 0",
	"ib_send_bw -F -n 100000000 -e",
	"ib_read_lat -F -D 600 -f 0",
	"ibv_rc_pingpong -g 0 -n 1000000000",
	"ibv_rc_pingpong -g 0 -n 1000000000 -e",
	"ibv_ud_pingpong -g 0 -n 1000000000 -e",
}

// startEndless starts a server and a client of one of them and waits until messages flow.
func startEndless(t *testing.T, p pair, command string) (server, client *process) {
	t.Helper()
	port := newPort()
	args := append(strings.Fields(command), "-p", strconv.Itoa(port))
	server = p.server.run(t, args...)
	server.awaitListening(t, port)
	client = p.client.run(t, append(args, p.address)...)
	p.client.awaitTraffic(t, client.pid())
	return server, client
}

// promptly is how soon a program must have noticed that its NIC or its peer is gone. The longest
// way there is that of retry_cnt 7 and timeout 14 of the programs, half a second.
const promptly = 15 * time.Second

func TestNICKilled_RunningPrograms_EndWithAnError(t *testing.T) {
	for _, command := range endless {
		t.Run(command, func(t *testing.T) {
			m := anyMachine(t)
			nic := m.startNIC(t)
			a, b := startEndless(t, onOneHost(m), command)
			nic.signal(t, syscall.SIGKILL)
			for _, program := range []*process{a, b} {
				if out := program.endWithin(t, promptly); out.status == 0 {
					t.Errorf("%s ended with status 0", program.name)
				}
			}
		})
	}
}

func TestNICKilled_NextProgram_GetsANewOne(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t).signal(t, syscall.SIGKILL)
	row := pingpongRow{tool: "ibv_rc_pingpong", args: "-c", bytes: 4096, iters: 1000}
	row.test(t, onOneHost(m))
}

func TestNICShutDown_RunningPrograms_EndWithAnError(t *testing.T) {
	m := anyMachine(t)
	m.startNIC(t)
	a, b := startEndless(t, onOneHost(m), endless[4])
	m.start(t, rnic, "down").succeed(t)
	for _, program := range []*process{a, b} {
		if out := program.endWithin(t, promptly); out.status == 0 {
			t.Errorf("%s ended with status 0", program.name)
		}
	}
}

// TestClientKilled also has a pair of programs that must not notice.
func TestClientKilled_Others_GoOn(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t)
	bystanders := [2]*process{}
	bystanders[0], bystanders[1] = startEndless(t, p, endless[3])
	for _, command := range endless {
		_, client := startEndless(t, p, command)
		client.signal(t, syscall.SIGKILL)
		client.end(t)
		killPrograms(t, p.server, bystanders[:]...)
	}
	p.server.awaitTraffic(t, bystanders[1].pid())
	for _, b := range bystanders {
		if b.hasEnded() {
			t.Errorf("%s has ended: %v", b.name, b.end(t))
		}
		b.kill()
	}
	p.server.awaitPrograms(t, 0)
}

// killPrograms kills every program on the NIC but those that are to stay, and waits until what
// they had is gone.
func killPrograms(t *testing.T, m *machine, stay ...*process) {
	t.Helper()
	for _, c := range m.contexts(t) {
		keep := false
		for _, s := range stay {
			keep = keep || s.pid() == c.PID
		}
		if !keep {
			_ = syscall.Kill(c.PID, syscall.SIGKILL)
		}
	}
	m.awaitPrograms(t, len(stay))
}

func TestClientStopped_Others_GoOn(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t)
	_, stopped := startEndless(t, p, endless[0])
	stopped.signal(t, syscall.SIGSTOP)
	awaitStopped(t, stopped.pid())
	for _, row := range []perfRow{
		{tool: "ib_write_bw", args: "-n 1000", sizes: []int{65536}, iters: 1000},
		{tool: "ib_send_lat", args: "-n 1000", sizes: []int{2}, iters: 1000},
	} {
		row.test(t, p)
	}
	killPrograms(t, p.server)
}

// oneHostOrSelf is one host with a machine of any kind.
func oneHostOrSelf(t *testing.T) pair {
	t.Helper()
	return onOneHost(anyMachine(t))
}

func onOneHost(m *machine) pair { return pair{server: m, client: m, address: "127.0.0.1"} }

// A peer that is gone is noticed by who has requests outstanding. The ping-pong programs wait for
// a message most of the time, and would wait for ever on any adapter.
func TestPeerKilled_OtherHost_GetsAnError(t *testing.T) {
	p := twoHosts(t, userOne)
	p.server.startNIC(t)
	p.client.startNIC(t)
	server, client := startEndless(t, p, endless[0])
	server.signal(t, syscall.SIGKILL)
	if out := client.endWithin(t, promptly); out.status == 0 {
		t.Errorf("the client ended with status 0: %s", out.stdout)
	}
	p.client.awaitPrograms(t, 0)
	p.server.awaitPrograms(t, 0)
}

func TestPeerNICKilled_OtherHost_GetsAnError(t *testing.T) {
	p := twoHosts(t, userOne)
	nic := p.server.startNIC(t)
	p.client.startNIC(t)
	_, client := startEndless(t, p, endless[0])
	nic.signal(t, syscall.SIGKILL)
	if out := client.endWithin(t, promptly); out.status == 0 {
		t.Errorf("the client ended with status 0: %s", out.stdout)
	}
	p.client.awaitPrograms(t, 0)
}

// TestGarbage_RoCEPort sends what no peer would while programs talk, and wants it counted and
// nobody disturbed.
func TestGarbage_RoCEPort_IsCountedAndDisturbsNobody(t *testing.T) {
	p := twoHosts(t, userOne)
	p.server.startNIC(t)
	p.client.startNIC(t)
	row := perfRow{tool: "ib_write_bw", args: "-n 20000", sizes: []int{65536}, iters: 20000}
	port := newPort()
	server := p.server.run(t, row.command(port)...)
	server.awaitListening(t, port)
	client := p.client.run(t, append(row.command(port), p.address)...)
	p.client.awaitTraffic(t, client.pid())
	var sender net.Conn
	p.client.ns.Do(func() {
		var err error
		if sender, err = net.Dial("udp", net.JoinHostPort(p.address, "4791")); err != nil {
			t.Fatal(err)
		}
	})
	defer sender.Close()
	for i := range 5000 {
		// An empty datagram, too short ones, and long ones whose ICRC cannot be right.
		if _, err := sender.Write(make([]byte, i%1500)); err != nil {
			t.Fatal(err)
		}
	}
	report, clocked := row.succeed(t, client)
	row.checkReport(t, report, clocked)
	row.succeed(t, server)
	counters := p.server.device(t).Network.Counters
	if counters["rx_icrc_bad"] == 0 || counters["rx_short"] == 0 {
		t.Errorf("not counted: %v", counters)
	}
}

// TestGarbage_ControlSocket connects to the socket and says what no program would.
func TestGarbage_ControlSocket_DisturbsNobody(t *testing.T) {
	p := oneHostOrSelf(t)
	p.server.startNIC(t)
	server, client := startEndless(t, p, endless[3])
	socket := p.server.socketPath(t)
	for i := range 200 {
		conn, err := net.Dial("unixpacket", socket)
		if err != nil {
			t.Fatal(err)
		}
		for j := range 20 {
			garbage := make([]byte, 1+(i*j*31)%6000)
			for k := range garbage {
				garbage[k] = byte(i*k + j)
			}
			if _, err := conn.Write(garbage); err != nil {
				break // the NIC has had enough
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []*process{server, client} {
		if program.hasEnded() {
			t.Errorf("%s has ended: %v", program.name, program.end(t))
		}
	}
	killPrograms(t, p.server)
}
