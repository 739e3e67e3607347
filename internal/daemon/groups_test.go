package daemon_test

import (
	"net/netip"
	"testing"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/netnstest"
	"github.com/softrnic/softrnic/verbs"
)

const testQKey = 0x1234

// attached makes a datagram queue pair in RTS that is attached to a group.
func attached(t *testing.T, d *daemon.Daemon, group verbs.GID) *end {
	t.Helper()
	e := newEnd(t, open(t, d), rdma.QPTypeUD, 1000, true)
	for _, step := range []error{
		e.qp.ToInit(verbs.QPAttr{QKey: testQKey}), e.qp.ToRTR(verbs.QPAttr{}),
		e.qp.ToRTS(verbs.QPAttr{}), e.qp.AttachMulticast(group),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	return e
}

// shout sends text to the group from the first GID of its family.
func (e *end) shout(group verbs.GID, text string) {
	e.t.Helper()
	gids, err := e.ctx.GIDs()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, g := range gids {
		if g.GID.Addr().Is4() != group.Addr().Is4() {
			continue
		}
		ah, err := e.pd.CreateAH(verbs.AHAttr{DGID: group, SGIDIndex: uint8(g.Index)})
		if err != nil {
			e.t.Fatal(err)
		}
		copy(e.mr.Bytes()[500:], text)
		e.post(verbs.SendWR{
			Opcode: rdma.WRSend, SGE: e.mr.SGE(500, len(text)), AH: ah,
			RemoteQPN: rdma.QPNMulticast, RemoteQKey: testQKey,
		})
		return
	}
	e.t.Fatalf("no GID of the family of %v", group)
}

// heard waits for a datagram.
func (e *end) heard(text string) {
	e.t.Helper()
	for {
		if wc := e.ok(); wc.Opcode == rdma.WCOpRecv {
			break
		}
	}
	if got := string(e.mr.Bytes()[verbs.GRHBytes : verbs.GRHBytes+len(text)]); got != text {
		e.t.Fatalf("heard %q, not %q", got, text)
	}
}

// What is sent to a group reaches each member once: on the sender's own NIC, also by the path with
// faults on it, and on others, through a real network too.
func TestGroups_MembersOnBothNICs_EachHearsOnce(t *testing.T) {
	type pair struct{ a, b *daemon.Daemon }
	rows := map[string]func() pair{
		"one NIC": func() pair { d := startLocal(t); return pair{d, d} },
		"mirror": func() pair {
			d := start(t, daemon.Config{Embedded: true, NoNetwork: true, Fault: "delay=10us"})
			return pair{d, d}
		},
		"wire": func() pair { a, b := startWired(t, ""); return pair{a, b} },
		"network": func() pair {
			na, nb := netnstest.Pair(t, 1500)
			return pair{
				startIn(t, na, daemon.Config{Embedded: true}),
				startIn(t, nb, daemon.Config{Embedded: true}),
			}
		},
	}
	for name, makePair := range rows {
		t.Run(name, func(t *testing.T) {
			p := makePair()
			for _, text := range []string{"239.1.2.3", "ff05::1234"} {
				group := rdma.GIDFromAddr(netip.MustParseAddr(text))
				a, b, c := attached(t, p.a, group), attached(t, p.b, group), attached(t, p.b, group)
				for _, e := range []*end{a, b, c} {
					e.recv(1, 0, 400)
					e.recv(2, 400, 100)
				}
				a.shout(group, "to all of "+text)
				for _, e := range []*end{a, b, c} {
					e.heard("to all of " + text)
				}
				if err := c.qp.DetachMulticast(group); err != nil {
					t.Fatal(err)
				}
				if err := c.qp.DetachMulticast(group); err == nil {
					t.Fatal("detached twice")
				}
				// Nobody heard anything twice: the second receives are still there.
				b.shout(group, "again")
				for _, e := range []*end{a, b} {
					wc := e.ok()
					for wc.Opcode != rdma.WCOpRecv {
						wc = e.ok()
					}
					if wc.ID != 2 {
						t.Fatalf("completion of receive %d", wc.ID)
					}
				}
			}
		})
	}
}
