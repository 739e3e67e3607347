package daemon_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/netio/loop"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/mad"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// flooder is a host that asks for connections and never goes on.
type flooder struct {
	t        *testing.T
	port     *loop.Port
	from, to netip.Addr
	asked    int
	buf      []byte
}

// ask sends one more REQ to a port of rdma_cm's TCP space.
func (f *flooder) ask(port uint16) {
	f.t.Helper()
	f.asked++
	local, remote := rdma.GIDFromAddr(f.from), rdma.GIDFromAddr(f.to)
	req := mad.REQ{
		LocalID: mad.CommID(f.asked), ServiceID: 0x0106<<16 | uint64(port), LocalGUID: 0xbad,
		LocalQPN: rdma.QPN(f.asked & 0xffffff), RemoteResponseTimeout: 20,
		LocalResponseTimeout: 20, RetryCount: 7, PKey: rdma.PKeyDefault, PathMTU: rdma.MTU1024,
		RNRRetry: 7, MaxCMRetries: 15, Primary: mad.PathRecord{
			LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: local, RemoteGID: remote,
			HopLimit: 64, AckTimeout: 19,
		},
	}
	ip := mad.IPHeader{Source: netip.AddrPortFrom(f.from, 40000), Destination: f.to}
	copy(req.PrivateData[:], ip.Append(nil))
	headers := ib.Headers{
		BTH:  ib.BTH{Opcode: ib.UDSendOnly, DestQPN: 1, PKey: rdma.PKeyDefault},
		DETH: ib.DETH{QKey: rdma.QKeyGSI, SrcQPN: 1},
	}
	head := mad.Header{
		Class: mad.ClassCM, ClassVersion: 2, Method: mad.MethodSend,
		TransactionID: uint64(f.asked), Attribute: mad.AttributeREQ,
	}
	f.buf = req.Append(head.Append(headers.Append(f.buf[:0])))
	d := []netio.Datagram{{Buf: f.buf, Path: roce.Path{
		Src: f.from, Dst: f.to, SrcPort: 0xc123, HopLimit: 64, DF: true,
	}}}
	if _, err := f.port.Send(d); err != nil {
		f.t.Fatal(err)
	}
}

// A host that floods another with requests fills the backlog of the listener that it asks for, and
// no more: others connect to the other listeners, who are connected stay so, and once the backlog
// is emptied everybody is served again.
func TestConnections_FloodOfREQs_OthersStillConnect(t *testing.T) {
	hub := loop.NewHub(loop.Config{})
	join := func(name, addr string) *daemon.Daemon {
		addrs := []netip.Addr{netip.MustParseAddr(addr)}
		port, err := hub.Open(name, addrs...)
		if err != nil {
			t.Fatal(err)
		}
		wire := &daemon.Wire{Port: port, Addresses: addrs}
		return start(t, daemon.Config{Embedded: true, Wire: wire})
	}
	victim := netip.MustParseAddr("192.0.2.2")
	da, db := join("a", "192.0.2.1"), join("b", victim.String())
	evil := netip.MustParseAddr("192.0.2.66")
	port, err := hub.Open("evil", evil)
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	f := &flooder{t: t, port: port, from: evil, to: victim, buf: make([]byte, 0, 512)}
	a, asked, other := newManager(t, da), newManager(t, db), newManager(t, db)
	asked.listen(spaceTCP, "0.0.0.0", 7471) // with a backlog of 10
	other.listen(spaceTCP, "0.0.0.0", 7472)
	before, child := a.dial(other, victim, 7472)

	for range 50 {
		for range 200 {
			f.ask(7471)
			f.ask(9999) // where nobody listens
		}
		id, passive := a.dial(other, victim, 7472)
		a.do(abi.OpDisconnect, id)
		other.expect(cmDisconnected, passive)
		a.expect(cmDisconnected, id)
		a.do(abi.OpDestroyID, id)
		other.do(abi.OpDestroyID, passive)
	}
	s, _ := db.Status()
	if len(s.CMIDs) > 2+1+10 {
		t.Errorf("the flood has left %d identifiers", len(s.CMIDs))
	}
	// Ten requests wait; they are refused, and there is room again.
	for range 10 {
		e, ok := asked.read(testTimeout)
		if !ok || e.Event != cmConnectRequest {
			t.Fatalf("event %d", e.Event)
		}
		asked.do(abi.OpDestroyID, e.ID)
	}
	asked.answersAgain(a, victim)
	a.do(abi.OpDisconnect, before)
	other.expect(cmDisconnected, child)
}

// answersAgain connects to a listener that may still be told of requests of a flood.
func (m *manager) answersAgain(a *manager, ip netip.Addr) {
	m.t.Helper()
	testQPN += 2
	id := a.id(spaceTCP)
	a.resolve(id, ip, 7471)
	a.ask(abi.OpConnect, id, testQPN)
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		e := m.expect(cmConnectRequest, 0)
		if e.Param.QPN != testQPN {
			m.do(abi.OpDestroyID, e.ID)
			continue
		}
		m.ask(abi.OpAccept, e.ID, testQPN+1)
		a.expect(cmConnectResponse, id)
		return
	}
	m.t.Fatal("no room for a connection after a flood")
}
