package interop

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// row is a pair of unmodified programs, one a server on one side, the other its client on the
// other side. In their arguments DEV stands for the name of a side's device, GID for the index of
// its address in the device's table, MTU for the path MTU, PORT for a port of the row's own, BIND
// for a side's address and ADDR for the server's.
type row struct {
	name           string
	server, client string
	meet           meeting
	v6             bool // addresses are those of IPv6
	// wants is what both sides print, as a regular expression, serverWants and clientWants what
	// one does.
	wants, serverWants, clientWants string
	// endless servers go on when their client has ended.
	endless bool
	// racy programs may lose a race against each other before anything was sent, on any adapter.
	racy bool
	// datagrams is how many go to a group. Newer kernels sometimes send none of them, although
	// their program is told that all were sent.
	datagrams int
	// lacks is why the kernel cannot do it, on either side; the client has to say so there, in the
	// words of refusal.
	lacks, refusal string
}

// meeting is how a client finds its server, and so what has to be there before it starts.
type meeting int

const (
	byTCP meeting = iota // IPv4's, whatever the addresses of the queue pairs
	byCM
	inGroup // of multicast, the server's option -m
)

// side is one end of the cable.
type side interface {
	start(t *testing.T, args ...string) *program
	awaitTCP(t *testing.T, p *program, port int)
	awaitCM(t *testing.T, p *program)
	awaitGroup(t *testing.T, p *program, group netip.Addr)
	device() string
}

// link is the two sides, and what their rows share.
type link struct {
	guest *guest
	host  *host
	path  int // path MTU
	port  int // of the latest row
	tap   *wiretap
	gids  map[string]string // index of an address on its side, once it was looked up
}

// run runs rows both ways, in a group of tests each.
func (l *link) run(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.name+"/KernelServes", func(t *testing.T) { l.try(t, r, l.guest, l.host) })
		t.Run(r.name+"/WeServe", func(t *testing.T) { l.try(t, r, l.host, l.guest) })
	}
}

// triesMax bounds how often a racy row may begin.
const triesMax = 5

// lostRace is what perftest's client says when its server does not listen yet, or no longer: with
// -R the programs race with each other on any adapter.
var lostRace = regexp.MustCompile(
	`RDMA_CM_EVENT_REJECTED; error: 8\.|Unexpected CM event bl blka 8`)

// lostEnd is what either says when the other leaves before it knows that its own last message is
// out: Soft-iWARP fails what is under way when a connection ends.
var lostEnd = regexp.MustCompile(`Failed to close connection between server and client`)

// isLost reports a program that lost a race of the kind that the row has.
func (r *row) isLost(ended result, races ...*regexp.Regexp) bool {
	return r.racy && ended.Status != 0 && slices.ContainsFunc(races, func(x *regexp.Regexp) bool {
		return x.MatchString(ended.Output)
	})
}

func (l *link) try(t *testing.T, r row, server, client side) {
	if r.lacks != "" {
		l.requireRefusal(t, r)
		t.Skip(r.lacks)
	}
	l.requireGuest(t, false)
	for range triesMax {
		l.port++
		l.tap.begin(l.port)
		serve := server.start(t, l.command(t, r, r.server, server, server)...)
		l.awaitServer(t, r, server, serve)
		torn := l.torn()
		call := client.start(t, l.command(t, r, r.client, client, server)...)
		called, isOver := l.endOf(t, call, server)
		if !isOver {
			serve.stop()
			serve.end(t)
			continue
		}
		if l.torn() > torn {
			t.Logf("%s: the kernel's driver sent bytes that do not match their CRC", call.name)
			serve.stop()
			serve.end(t)
			continue
		}
		if r.isLost(called, lostRace, lostEnd) {
			serve.stop()
			serve.end(t)
			continue
		}
		l.requireGuest(t, called.Status != 0)
		call.check(t, called, r.wants, r.clientWants)
		if r.endless || t.Failed() {
			serve.stop()
		}
		if client == side(l.guest) && l.vanished(r, serve) {
			t.Logf("%s: the kernel sent fewer datagrams than it says", call.name)
			serve.stop()
			serve.end(t)
			continue
		}
		served := serve.end(t)
		if r.isLost(served, lostEnd) || l.torn() > torn {
			continue
		}
		l.requireGuest(t, served.Status != 0)
		if !r.endless {
			serve.check(t, served, r.wants, r.serverWants)
		}
		return
	}
	t.Errorf("the programs missed each other %d times", triesMax)
}

// endOf waits for a client. Now and then Soft-iWARP loses what comes in the instant in which it
// connects, and the programs wait for ever; isOver is false in that case.
func (l *link) endOf(t *testing.T, call *program, server side) (r result, isOver bool) {
	t.Helper()
	if l.guest.driver.link != siw.link {
		return call.end(t), true
	}
	select {
	case r = <-call.done:
		return r, true
	case <-time.After(patience / 3):
		l.requireGuest(t, true)
	}
	if server != side(l.guest) {
		return call.end(t), true
	}
	t.Logf("%s does not end: the kernel's driver may have lost its first message", call.name)
	call.stop()
	call.end(t)
	return result{}, false
}

// torn returns how many streams of Soft-iWARP the NIC refused for a wrong CRC. The kernel's driver
// hands pages of the program to TCP and completes the work then, so that a program which uses its
// buffer again, as it may, changes what TCP has still to send, or to send once more, behind the
// CRC: now and then, and more often under loss. A fault of ours would show in every try.
func (l *link) torn() int {
	if l.guest.driver.link != siw.link {
		return 0
	}
	return strings.Count(l.host.log.String(), "MPA wrong CRC")
}

// requireGuest skips the rest where the guest was found locked up; where something went wrong it
// looks.
func (l *link) requireGuest(t *testing.T, wentWrong bool) {
	t.Helper()
	if l.guest.locked || wentWrong && l.guest.isLockedUp() {
		t.Skip(lockedUp)
	}
}

// requireRefusal runs the client alone on the kernel, where it must not get as far as to need a
// server.
func (l *link) requireRefusal(t *testing.T, r row) {
	t.Helper()
	refused := l.guest.start(t, l.command(t, r, r.client, l.guest, l.host)...).end(t)
	if !strings.Contains(refused.Output, r.refusal) {
		t.Errorf("%s, yet %s does not say %q:\n%s", r.lacks, r.name, r.refusal, refused.Output)
	}
}

// check wants a program to have ended well, and to have said what matches.
func (p *program) check(t *testing.T, r result, wants ...string) {
	t.Helper()
	if r.Status != 0 || r.Error != "" {
		t.Errorf("%s: status %d %s\n%s", p.name, r.Status, r.Error, r.Output)
		return
	}
	for _, want := range wants {
		if !regexp.MustCompile(want).MatchString(r.Output) {
			t.Errorf("%s does not say %q:\n%s", p.name, want, r.Output)
		}
	}
}

// vanished reports whether a server waits for datagrams that never were on the cable.
func (l *link) vanished(r row, serve *program) bool {
	const plenty = 5 * time.Second
	for begin := time.Now(); r.datagrams > 0 && len(serve.done) == 0; {
		if time.Since(begin) > plenty {
			return l.tap.groups.Load() < int64(r.datagrams)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func (l *link) awaitServer(t *testing.T, r row, s side, p *program) {
	t.Helper()
	switch r.meet {
	case byTCP:
		s.awaitTCP(t, p, l.port)
	case byCM:
		s.awaitCM(t, p)
	case inGroup:
		_, group, _ := strings.Cut(r.server, "-m ")
		group, _, _ = strings.Cut(group, " ")
		s.awaitGroup(t, p, netip.MustParseAddr(group))
	}
}

// command fills in the arguments of one side.
func (l *link) command(t *testing.T, r row, text string, own, server side) []string {
	t.Helper()
	kind := "v4"
	if r.v6 {
		kind = "v6"
	}
	bind, address := addressOf(own, kind), addressOf(server, kind)
	if r.meet == byTCP {
		address = addressOf(server, "v4")
	}
	if strings.Contains(text, "GID") {
		text = strings.ReplaceAll(text, "GID", l.gidIndex(t, own, bind))
	}
	return strings.Fields(strings.NewReplacer("DEV", own.device(), "MTU", strconv.Itoa(l.path),
		"PORT", strconv.Itoa(l.port), "BIND", bind, "ADDR", address).Replace(text))
}

func addressOf(s side, kind string) string {
	_, isGuest := s.(*guest)
	switch {
	case kind == "v6" && isGuest:
		return guestV6
	case kind == "v6":
		return hostV6
	case isGuest:
		return guestV4
	}
	return hostV4
}

var gidLine = regexp.MustCompile(`GID\[\s*(\d+)\]:\s*(\S+), RoCE v2`)

// gidIndex asks the side's device where an address stands in its table.
func (l *link) gidIndex(t *testing.T, s side, address string) string {
	t.Helper()
	if index, ok := l.gids[address]; ok {
		return index
	}
	p := s.start(t, "ibv_devinfo", "-v", "-d", s.device())
	r := p.end(t)
	p.check(t, r)
	for _, m := range gidLine.FindAllStringSubmatch(r.Output, -1) {
		if m[2] == address || m[2] == "::ffff:"+address {
			l.gids[address] = m[1]
			return m[1]
		}
	}
	t.Fatalf("%s has no GID for %s:\n%s", s.device(), address, r.Output)
	return ""
}

// overV6 is the same row between addresses of IPv6.
func (r row) overV6() row {
	r.v6 = true
	r.name += " IPv6"
	if r.racy {
		r.server = strings.Replace(r.server, " -R", " --ipv6 --ipv6-addr -R", 1)
		r.client = strings.Replace(r.client, " -R", " --ipv6 --ipv6-addr -R", 1)
	}
	return r
}

// perftest makes the row of one of perftest's programs; args are those of both sides.
func perftest(tool, args string) row {
	r := row{name: tool + " " + args, clientWants: reports(tool, args)}
	r.server = tool + " -F -p PORT " + args
	if strings.Contains(args, "-R") {
		r.meet, r.racy = byCM, true
	} else {
		r.server += " -d DEV -x GID"
		if !strings.Contains(args, "-c UD") {
			r.server += " -m MTU"
		}
		if !strings.Contains(args, "-c U") && !strings.Contains(args, "-u ") {
			r.server += fmt.Sprint(" -u ", patientTimeout)
		}
	}
	r.client = r.server + " ADDR"
	return r
}

// reports is the line with which a program reports: size and number of messages, then figures,
// which are no numbers when the program could not make out the clock of the processor.
func reports(tool, args string) string {
	size, count := `\d+`, `\d+`
	fields := strings.Fields(args)
	for i := range len(fields) - 1 {
		switch {
		case fields[i] == "-s":
			size = fields[i+1]
		case fields[i] == "-n" && !strings.Contains(args, "-q "): // else of all queue pairs
			count = fields[i+1]
		}
	}
	if strings.HasPrefix(tool, "ib_atomic") {
		size = "8"
	}
	return `(?m)^ *` + size + ` +` + count + ` +\S+ `
}

// pingpong makes the row of one of libibverbs' programs.
func pingpong(args string) row {
	r := row{name: args, wants: `\d+ iters in`}
	r.server = args + " -p PORT -d DEV -g GID"
	if !strings.Contains(args, "ud_") {
		r.server += " -m MTU"
	}
	r.client = r.server + " ADDR"
	return r
}
