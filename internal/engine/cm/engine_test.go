package cm

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// The peer of these tests speaks for itself: it sends MADs made by hand.
var (
	ourGID    = rdma.GID{15: 1}
	peerGID   = rdma.GID{15: 2}
	otherGID  = rdma.GID{15: 3}
	fromPeer  = &Path{SGID: ourGID, DGID: peerGID}
	fromOther = &Path{SGID: ourGID, DGID: otherGID}
)

// request is a REQ that nothing is wrong with.
func request(id mad.CommID, qpn rdma.QPN, psn rdma.PSN) *mad.REQ {
	return &mad.REQ{
		LocalID: id, ServiceID: 7, LocalGUID: 0xbb, LocalQPN: qpn, StartPSN: psn,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, RetryCount: 7, PKey: 0xffff,
		PathMTU: rdma.MTU1024, RNRRetry: 7, MaxCMRetries: 15,
		Primary: mad.PathRecord{LocalGID: peerGID, RemoteGID: ourGID, AckTimeout: 19},
	}
}

func madOf(a mad.Attribute, m body) []byte {
	var b [mad.Len]byte
	compose(&b, 77, a, m)
	return b[:]
}

func listening() *Engine {
	e := New(Config{NodeGUID: 0xaa, Seed: 5})
	e.Listen(7, exact, 0, 3)
	return e
}

// established returns an engine with a passive connection to the peer's ID 1 and QPN 100.
func established(t *testing.T) (*Engine, ID) {
	t.Helper()
	e := listening()
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(1, 100, 1)))
	id := event(t, e, EventRequestReceived).ID
	e.Accept(0, id, &AcceptParams{QPN: 200})
	one(t, e)
	e.HandleMAD(0, fromPeer, 1,
		madOf(mad.AttributeRTU, &mad.RTU{LocalID: 1, RemoteID: mad.CommID(id)}))
	event(t, e, EventEstablished)
	return e, id
}

// refusal returns the REJ that was sent.
func refusal(t *testing.T, e *Engine) mad.REJ {
	t.Helper()
	var rej mad.REJ
	m := one(t, e)
	if h, _ := mad.ParseHeader(m.MAD[:]); h.Attribute != mad.AttributeREJ {
		t.Fatalf("sent %v", h)
	}
	if err := rej.Parse(m.MAD[mad.HeaderLen:]); err != nil {
		t.Fatal(err)
	}
	return rej
}

func TestRequest_Faults_GetTheirReason(t *testing.T) {
	for _, c := range []struct {
		reason mad.Reason
		spoil  func(m *mad.REQ)
	}{
		{mad.ReasonInvalidServiceID, func(m *mad.REQ) { m.ServiceID = 8 }},
		{mad.ReasonInvalidTransport, func(m *mad.REQ) { m.Transport = mad.TransportRD }},
		{mad.ReasonInvalidTransport, func(m *mad.REQ) { m.Transport = 3 | 2<<2 }},
		{mad.ReasonInvalidMTU, func(m *mad.REQ) { m.PathMTU = 0 }},
		{mad.ReasonInvalidMTU, func(m *mad.REQ) { m.PathMTU = 6 }},
		{mad.ReasonUnsupportedRequest, func(m *mad.REQ) { m.LocalQPN = 1 }},
		{mad.ReasonUnsupportedRequest, func(m *mad.REQ) { m.LocalQPN = rdma.QPNMulticast }},
		{mad.ReasonInvalidCommID, func(m *mad.REQ) { m.LocalID = 0 }},
	} {
		e := listening()
		m := request(1, 100, 1)
		c.spoil(m)
		e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, m))
		rej := refusal(t, e)
		if rej.Reason != c.reason || rej.RemoteID != m.LocalID || rej.LocalID != 0 {
			t.Errorf("%v for %v", &rej, m)
		}
		if e.Len() != 0 || e.pending != 0 {
			t.Errorf("%d connections are kept", e.Len())
		}
	}
}

func TestRequest_OtherClassVersion_IsRefused(t *testing.T) {
	e := listening()
	b := madOf(mad.AttributeREQ, request(1, 100, 1))
	b[2] = 1
	e.HandleMAD(0, fromPeer, 1, b)
	if rej := refusal(t, e); rej.Reason != mad.ReasonInvalidClassVersion {
		t.Errorf("%v", &rej)
	}
	b = madOf(mad.AttributeSIDRREQ, &mad.SIDRREQ{RequestID: 1, ServiceID: 7})
	b[2] = 1
	e.HandleMAD(0, fromPeer, 1, b)
	m := one(t, e)
	if status := m.MAD[mad.HeaderLen+4]; status != uint8(mad.SIDRStatusUnsupportedVersion) {
		t.Errorf("status %d", status)
	}
}

func TestRequest_EveryTransport_MakesItsQueuePair(t *testing.T) {
	for transport, want := range map[mad.Transport]rdma.QPType{
		mad.TransportRC: rdma.QPTypeRC, mad.TransportUC: rdma.QPTypeUC,
		mad.TransportXRC: rdma.QPTypeXRCRecv,
	} {
		e := listening()
		m := request(1, 100, 1)
		m.Transport = transport
		e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, m))
		if v := event(t, e, EventRequestReceived); v.QPType != want {
			t.Errorf("%v makes %v", transport, v.QPType)
		}
	}
}

// TestXRC_QPN_TravelsAsEEContext: annex A14 keeps the receiving QP's number where reliable
// datagrams have the end-to-end context.
func TestXRC_QPN_TravelsAsEEContext(t *testing.T) {
	e := listening()
	m := request(1, 100, 1)
	m.Transport = mad.TransportXRC
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, m))
	id := event(t, e, EventRequestReceived).ID
	e.Accept(0, id, &AcceptParams{QPN: 201})
	var rep mad.REP
	sent := one(t, e)
	_ = rep.Parse(sent.MAD[mad.HeaderLen:])
	if rep.LocalEECN != 201 || rep.LocalQPN != 0 || !rep.SRQ {
		t.Errorf("%v", &rep)
	}

	active := New(Config{Seed: 9})
	id, refused := active.Connect(0, &ConnectParams{
		Path: *fromPeer, QPType: rdma.QPTypeXRCSend, PathMTU: rdma.MTU1024, LocalQPN: 5,
	})
	if refused != nil {
		t.Fatal(refused)
	}
	one(t, active)
	rep.LocalID, rep.RemoteID = 1, mad.CommID(id)
	active.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREP, &rep))
	if v := event(t, active, EventReplyReceived); v.RemoteQPN != 201 {
		t.Errorf("remote QPN %v", v.RemoteQPN)
	}
}

// TestReject_EveryReason_ReachesTheOwner sends each reason that there is in both directions.
func TestReject_EveryReason_ReachesTheOwner(t *testing.T) {
	for reason := mad.Reason(1); reason <= 40; reason++ {
		w := newWorld(t)
		a, b := w.nodes["a"], w.nodes["b"]
		b.e.Listen(7, exact, 0, 1)
		info, private := []byte("where to go"), []byte("sorry")
		b.onEvent = func(v *Event) {
			if v.Kind == EventRequestReceived {
				b.e.Reject(w.now, v.ID, &RejectParams{
					Reason: uint16(reason), AdditionalInfo: info, PrivateData: private,
				})
			}
		}
		id, _ := a.e.Connect(0, &ConnectParams{
			Path: a.path(b), ServiceID: 7, LocalQPN: 5, QPType: rdma.QPTypeRC,
			PathMTU: rdma.MTU1024,
		})
		a.drain()
		w.run(clock.Time(time.Second))
		b.drain()
		w.run(clock.Time(2 * time.Second))
		if len(a.events) != 1 {
			t.Fatalf("reason %d: %d events", reason, len(a.events))
		}
		v := a.events[0]
		if v.ID != id || v.Kind != EventRejected || v.Reason != uint16(reason) ||
			!bytes.Equal(v.AdditionalInfo[:v.AdditionalLen], info) || textOf(&v) != "sorry" {
			t.Errorf("reason %d: %+v", reason, v)
		}
	}
}

// TestPrivateData_TooLong_IsRefused: one byte more than fits is an error, and what fits arrives.
func TestPrivateData_TooLong_IsRefused(t *testing.T) {
	long := make([]byte, 300)
	e, id := established(t)
	if e.Disconnect(0, id, long[:mad.DREQPrivateLen+1]) == nil {
		t.Error("DREQ")
	}
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(2, 101, 1)))
	id = event(t, e, EventRequestReceived).ID
	if e.Accept(0, id, &AcceptParams{PrivateData: long[:mad.REPPrivateLen+1]}) == nil {
		t.Error("REP")
	}
	if e.Reject(0, id, &RejectParams{PrivateData: long[:mad.REJPrivateLen+1]}) == nil ||
		e.Reject(0, id, &RejectParams{AdditionalInfo: long[:mad.REJInfoLen+1]}) == nil {
		t.Error("REJ")
	}
	good := ConnectParams{Path: *fromPeer, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024}
	for name, spoil := range map[string]func(p *ConnectParams){
		"private data": func(p *ConnectParams) { p.PrivateData = long[:mad.REQPrivateLen+1] },
		"MTU":          func(p *ConnectParams) { p.PathMTU = 6 },
		"UD":           func(p *ConnectParams) { p.QPType = rdma.QPTypeUD },
		"retry":        func(p *ConnectParams) { p.RetryCount = 8 },
		"RNR":          func(p *ConnectParams) { p.RNRRetry = 8 },
		"CM retries":   func(p *ConnectParams) { p.MaxCMRetries = 16 },
		"timeout":      func(p *ConnectParams) { p.CMResponseTimeout = 32 },
		"ACK timeout":  func(p *ConnectParams) { p.AckTimeout = 32 },
	} {
		p := good
		spoil(&p)
		if _, refused := e.Connect(0, &p); refused == nil {
			t.Errorf("Connect with a bad %s", name)
		}
	}
	if _, refused := e.Connect(0, &good); refused != nil {
		t.Error(refused)
	}
	if _, refused := e.QueryService(0, &SIDRParams{
		PrivateData: long[:mad.SIDRREQPrivateLen+1],
	}); refused == nil {
		t.Error("SIDR_REQ")
	}
}

// TestStranger_CannotTouchAConnection: another host that has seen the communication IDs, and
// claims the peer's GUID, ends and changes nothing.
func TestStranger_CannotTouchAConnection(t *testing.T) {
	e, id := established(t)
	local := mad.CommID(id)
	for a, m := range map[mad.Attribute]body{
		mad.AttributeREQ:  request(1, 100, 2),
		mad.AttributeDREQ: &mad.DREQ{LocalID: 1, RemoteID: local, RemoteQPN: 200},
		mad.AttributeREJ:  &mad.REJ{LocalID: 1, RemoteID: local, Reason: mad.ReasonConsumer},
		mad.AttributeRTU:  &mad.RTU{LocalID: 1, RemoteID: local},
	} {
		e.HandleMAD(0, fromOther, 1, madOf(a, m))
		var v Event
		for e.PollEvent(&v) {
			if v.ID == id {
				t.Errorf("%v: %v", a, v.Kind)
			}
		}
		if info, _ := e.Query(id); info.State != StateEstablished {
			t.Fatalf("%v: %v", a, info.State)
		}
	}
}

// TestRequest_SameIDNewQueuePair_IsANewConnection: a peer that was restarted and numbers its
// connections as before must not be taken for the old one.
func TestRequest_SameIDNewQueuePair_IsANewConnection(t *testing.T) {
	e, id := established(t)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(1, 100, 2)))
	if v := event(t, e, EventDisconnected); v.ID != id || v.How != DisconnectedStale {
		t.Errorf("%+v", v)
	}
	var m Message
	for e.PollTransmit(0, &m) {
	}
	if h, _ := mad.ParseHeader(m.MAD[:]); h.Attribute != mad.AttributeREJ {
		t.Errorf("last is %v", h)
	}
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(1, 100, 2)))
	if v := event(t, e, EventRequestReceived); v.ID == id || v.StartPSN != 2 {
		t.Errorf("%+v", v)
	}
}

// TestTimewait_NewQPNOrPSN_IsNeverRefused_C02 goes through what a peer may use again.
func TestTimewait_NewQPNOrPSN_IsNeverRefused_C02(t *testing.T) {
	for _, again := range []*mad.REQ{
		request(2, 100, 1), // the same QPN and PSN under another ID
		request(2, 100, 9),
		request(1, 101, 1), // the same ID
		request(1, 100, 9),
		request(2, 101, 9),
	} {
		e, id := established(t)
		e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeDREQ,
			&mad.DREQ{LocalID: 1, RemoteID: mad.CommID(id), RemoteQPN: 200}))
		event(t, e, EventDisconnected)
		one(t, e)
		e.HandleMAD(1, fromPeer, 1, madOf(mad.AttributeREQ, again))
		event(t, e, EventRequestReceived)
		none(t, e)
		checkEngine(t, e)
		if info, _ := e.Query(id); info.State != StateTimewait {
			t.Errorf("the old connection is %v", info.State)
		}
	}
}

// TestFlood_Requests_CostNoMoreThanTheBounds sends more REQs than there is room for, from one
// peer that never goes on, to an application that takes none: at first they get no answer, and
// when it has taken none for long a rejection.
func TestFlood_Requests_CostNoMoreThanTheBounds(t *testing.T) {
	e := listening()
	for service := uint64(8); service < 20; service++ {
		e.Listen(service, exact, 1<<30, 3)
	}
	var m Message
	sent, taken := 0, 0
	for i := range 3 * limits.MaxCMRequests {
		req := request(mad.CommID(i+1), rdma.QPN(i+2), 1)
		req.ServiceID = uint64(7 + i%13)
		var now clock.Time
		if i >= 2*limits.MaxCMRequests {
			now = now.Add(limits.CMBacklogPatience)
		}
		e.HandleMAD(now, fromPeer, 1, madOf(mad.AttributeREQ, req))
		if i%4 != 0 {
			continue
		}
		for e.PollTransmit(now, &m) {
			if sent++; now == 0 {
				t.Fatalf("request %d is answered at once", i)
			}
		}
	}
	checkEngine(t, e)
	var v Event
	for e.PollEvent(&v) {
		taken++
	}
	if e.pending != limits.MaxCMRequests || e.Len() != e.pending || taken != e.pending {
		t.Errorf("%d pending, %d connections, %d events", e.pending, e.Len(), taken)
	}
	if sent < limits.MaxCMRequests-4 {
		t.Errorf("only %d refusals", sent)
	}
}

// TestFlood_Nonsense_LeavesRoomForConnections: answers to strangers do not fill the queue.
func TestFlood_Nonsense_LeavesRoomForConnections(t *testing.T) {
	e, id := established(t)
	for i := range 2 * limits.MaxCMTransmit {
		e.HandleMAD(0, fromOther, 1, madOf(mad.AttributeDREQ, &mad.DREQ{LocalID: mad.CommID(i)}))
	}
	if refused := e.Disconnect(0, id, nil); refused != nil {
		t.Fatal(refused)
	}
	var m Message
	count := 0
	for e.PollTransmit(0, &m) {
		count++
	}
	h, _ := mad.ParseHeader(m.MAD[:])
	if count != limits.MaxCMReplies+1 || h.Attribute != mad.AttributeDREQ {
		t.Errorf("%d messages, the last is %v", count, h.Attribute)
	}
	if e.Stats().Dropped == 0 {
		t.Error("nothing is counted as dropped")
	}
}

// TestLingering_Bound_ForgetsTheOldest: connecting and leaving at speed does not pile up.
func TestLingering_Bound_ForgetsTheOldest(t *testing.T) {
	e := listening()
	var m Message
	for i := range limits.MaxCMLingering + 100 {
		e.HandleMAD(0, fromPeer, 1,
			madOf(mad.AttributeREQ, request(mad.CommID(i+1), rdma.QPN(i+2), 1)))
		e.Release(0, event(t, e, EventRequestReceived).ID)
		for e.PollTransmit(0, &m) {
		}
	}
	if e.Len() != limits.MaxCMLingering || len(e.peers) != e.Len() {
		t.Errorf("%d connections, %d peers", e.Len(), len(e.peers))
	}
	checkEngine(t, e)
	for e.PollTimeout() != clock.Never {
		e.HandleTimeout(clock.Time(time.Hour))
	}
	if e.Len() != 0 {
		t.Errorf("%d connections are left", e.Len())
	}
}

func TestConnect_TooMany_IsRefused(t *testing.T) {
	e := New(Config{Seed: 1})
	p := ConnectParams{Path: *fromPeer, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024}
	var m Message
	for range limits.MaxCMConnections {
		if _, refused := e.Connect(0, &p); refused != nil {
			t.Fatal(refused)
		}
		e.PollTransmit(0, &m)
	}
	if _, refused := e.Connect(0, &p); refused == nil {
		t.Error("one more than there may be")
	}
	e.Listen(7, exact, 0, 3)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(1, 100, 1)))
	if rej := refusal(t, e); rej.Reason != mad.ReasonNoResources {
		t.Errorf("%v", &rej)
	}
	if e.pending != 0 {
		t.Errorf("%d pending", e.pending)
	}
}

func TestListen_Ranges_TheExactOneWins(t *testing.T) {
	e := New(Config{Seed: 1})
	for _, l := range []struct {
		service, mask uint64
		cookie        uint32
		ok            bool
	}{
		{0x100, 0xff00, 1, true},
		{0x1ff, 0xff00, 2, false}, // the same range
		{0x105, exact, 3, true},
		{0x105, exact, 4, false},
		{0, 0, 5, true},
	} {
		if refused := e.Listen(l.service, l.mask, 0, l.cookie); (refused == nil) != l.ok {
			t.Errorf("%x/%x: %v", l.service, l.mask, refused)
		}
	}
	for service, want := range map[uint64]uint32{0x105: 3, 0x106: 1, 0x205: 5} {
		if l := e.listeners.find(service); l == nil || l.cookie != want {
			t.Errorf("%x leads to %+v", service, l)
		}
	}
	e.Unlisten(3)
	e.Unlisten(5)
	if l := e.listeners.find(0x105); l == nil || l.cookie != 1 {
		t.Errorf("%+v", l)
	}
	if l := e.listeners.find(0x205); l != nil {
		t.Errorf("%+v", l)
	}
	for i := range 2 * limits.MaxCMListeners {
		e.Listen(uint64(1<<32+i), exact, 0, 9)
	}
	if got := len(e.listeners.exact) + len(e.listeners.ranges); got != limits.MaxCMListeners {
		t.Errorf("%d listeners", got)
	}
}

func TestClassPortInfo_Get_IsAnswered(t *testing.T) {
	e := New(Config{Seed: 1})
	h := mad.Header{
		Class: mad.ClassCM, ClassVersion: 2, Method: mad.MethodGet, TransactionID: 9,
		Attribute: mad.AttributeClassPortInfo,
	}
	e.HandleMAD(0, fromPeer, 1, append(h.Append(nil), make([]byte, mad.DataLen)...))
	m := one(t, e)
	got, _ := mad.ParseHeader(m.MAD[:])
	h.Method = mad.MethodGetResponse
	var info mad.ClassPortInfo
	_ = info.Parse(m.MAD[mad.HeaderLen:])
	if got != h || info.BaseVersion != 1 || info.ClassVersion != 2 ||
		info.Capabilities&mad.CapabilityRC == 0 {
		t.Errorf("%v %v", got, &info)
	}
}

func TestLAP_IsDeclined(t *testing.T) {
	e, id := established(t)
	for remote, want := range map[mad.CommID]mad.APRStatus{
		mad.CommID(id): mad.APRStatusUnsupported, 5: mad.APRStatusInvalidCommID,
	} {
		e.HandleMAD(0, fromPeer, 1,
			madOf(mad.AttributeLAP, &mad.LAP{LocalID: 1, RemoteID: remote, RemoteQPN: 200}))
		m := one(t, e)
		var apr mad.APR
		_ = apr.Parse(m.MAD[mad.HeaderLen:])
		if apr.Status != want || apr.RemoteID != 1 || apr.LocalID != remote {
			t.Errorf("%v", &apr)
		}
	}
}

func TestDREQ_WrongQPN_IsIgnored(t *testing.T) {
	e, id := established(t)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeDREQ,
		&mad.DREQ{LocalID: 1, RemoteID: mad.CommID(id), RemoteQPN: 201}))
	none(t, e)
	if info, _ := e.Query(id); info.State != StateEstablished {
		t.Errorf("%v", info.State)
	}
}

// TestTimeouts_OfAPeer_AreBounded: neither 4 µs nor two hours are what we wait for.
func TestTimeouts_OfAPeer_AreBounded(t *testing.T) {
	for n, want := range map[uint8]time.Duration{
		0: 4096 << 13, 13: 4096 << 13, 20: 4096 << 20, 31: 4096 << 24,
	} {
		if got := duration(n); got != want {
			t.Errorf("2^%d waits %v", n, got)
		}
	}
	for _, c := range [][3]uint8{{15, 19, 19}, {18, 19, 20}, {19, 19, 20}, {20, 0, 20}, {31, 31, 31}} {
		if got := sumTimeouts(c[0], c[1]); got != c[2] || sumTimeouts(c[1], c[0]) != got {
			t.Errorf("2^%d + 2^%d is 2^%d", c[0], c[1], got)
		}
	}
}

func TestStats_CountMessages(t *testing.T) {
	e, _ := established(t)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(1, 100, 1)))
	e.HandleMAD(0, fromPeer, 1, []byte("short"))
	s := e.Stats()
	if s.Received.Of(mad.AttributeREQ) != 2 || s.Received.Of(mad.AttributeRTU) != 1 ||
		s.Sent.Of(mad.AttributeREP) != 1 || s.Duplicates.Of(mad.AttributeREQ) != 1 ||
		s.Ignored != 1 || s.Sent.Of(0) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestReleasedConnection_HasNoEvents: also those that were waiting.
func TestReleasedConnection_HasNoEvents(t *testing.T) {
	e := listening()
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(1, 100, 1)))
	v := event(t, e, EventRequestReceived)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREJ,
		&mad.REJ{LocalID: 1, RemoteID: mad.CommID(v.ID), Reason: mad.ReasonTimeout}))
	e.Release(0, v.ID)
	if e.PollEvent(&v) {
		t.Errorf("%v", v.Kind)
	}
	if e.Len() != 0 {
		t.Errorf("%d connections", e.Len())
	}
}

// TestIDs_OfTwoLives_Differ, else a peer takes new connections for old ones.
func TestIDs_OfTwoLives_Differ(t *testing.T) {
	seen := map[ID]bool{}
	p := ConnectParams{Path: *fromPeer, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024}
	for seed := range uint64(100) {
		e := New(Config{NodeGUID: 1, Seed: seed})
		id, _ := e.Connect(0, &p)
		if id == 0 || seen[id] {
			t.Errorf("ID %08x comes again", uint32(id))
		}
		seen[id] = true
	}
}

// TestRequest_WhileOurDREQIsOut_EndsTheOldConnection: a connection that we are leaving ends for
// good when its peer shows that it has forgotten it.
func TestRequest_WhileOurDREQIsOut_EndsTheOldConnection(t *testing.T) {
	e, id := established(t)
	e.Disconnect(0, id, nil)
	one(t, e)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREQ, request(2, 100, 9)))
	if v := event(t, e, EventDisconnected); v.ID != id || v.How != DisconnectedStale {
		t.Errorf("%+v", v)
	}
	event(t, e, EventRequestReceived)
	none(t, e)
	checkEngine(t, e)
}

// TestReply_FromAQPOfAnotherConnection_EndsThatOne: the peer was restarted and answers our REQ with
// a QP that, as far as we know, belongs to a connection.
func TestReply_FromAQPOfAnotherConnection_EndsThatOne(t *testing.T) {
	e, old := established(t)
	id, _ := e.Connect(0, &ConnectParams{
		Path: *fromPeer, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024, LocalQPN: 5,
	})
	one(t, e)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREP, &mad.REP{
		LocalID: 50, RemoteID: mad.CommID(id), LocalQPN: 100, LocalGUID: 0xbb,
	}))
	if v := event(t, e, EventDisconnected); v.ID != old || v.How != DisconnectedStale {
		t.Errorf("%+v", v)
	}
	if v := event(t, e, EventReplyReceived); v.ID != id || v.RemoteQPN != 100 {
		t.Errorf("%+v", v)
	}
	one(t, e) // the DREQ of the old one
	checkEngine(t, e)
}

// TestReply_SecondFromAnotherPeerLife_IsRefused: the connection stays with whom it was made.
func TestReply_SecondFromAnotherPeerLife_IsRefused(t *testing.T) {
	e := New(Config{Seed: 4})
	id, _ := e.Connect(0, &ConnectParams{
		Path: *fromPeer, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024, LocalQPN: 5,
	})
	one(t, e)
	rep := &mad.REP{LocalID: 50, RemoteID: mad.CommID(id), LocalQPN: 100}
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREP, rep))
	event(t, e, EventReplyReceived)
	e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREP, rep))
	none(t, e) // a duplicate: the owner has not decided
	other := *rep
	other.LocalID = 51
	for _, ready := range []bool{false, true} {
		if ready {
			e.Ready(0, id)
			m := one(t, e)
			e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREP, rep))
			if again := one(t, e); again != m {
				t.Error("the RTU is not the same")
			}
		}
		e.HandleMAD(0, fromPeer, 1, madOf(mad.AttributeREP, &other))
		if rej := refusal(t, e); rej.RemoteID != 51 || rej.Answered != mad.AnsweredREP ||
			rej.Reason != mad.ReasonInvalidCommID {
			t.Errorf("%v", &rej)
		}
	}
}

// TestQuery_SameIDOtherQuestion_IsANewQuery: an answer that is kept for duplicates does not answer
// what a restarted peer asks.
func TestQuery_SameIDOtherQuestion_IsANewQuery(t *testing.T) {
	e := listening()
	e.Listen(8, exact, 0, 4)
	ask := func(service uint64) {
		e.HandleMAD(0, fromPeer, 1,
			madOf(mad.AttributeSIDRREQ, &mad.SIDRREQ{RequestID: 1, ServiceID: service}))
	}
	ask(7)
	id := event(t, e, EventServiceRequest).ID
	ask(7)
	none(t, e) // the owner has not decided
	e.AnswerService(0, id, &SIDRAnswer{QPN: 5})
	m := one(t, e)
	ask(7)
	if again := one(t, e); again != m {
		t.Error("the answer is not the same")
	}
	ask(8)
	if v := event(t, e, EventServiceRequest); v.Cookie != 4 {
		t.Errorf("%+v", v)
	}
	checkEngine(t, e)
}

func TestStates_HaveNames(t *testing.T) {
	for s := StateClosed; s <= StateQueryAnswered; s++ {
		if s.String() == "unknown" {
			t.Errorf("state %d has no name", s)
		}
	}
	for k := EventRequestReceived; k <= EventServiceReply; k++ {
		if k.String() == "unknown event" {
			t.Errorf("event %d has no name", k)
		}
	}
	if State(200).String() != "unknown" || EventKind(200).String() != "unknown event" ||
		Disconnection(200).String() != "unknown" {
		t.Error("what there is not has a name")
	}
}

func TestQuery_DescribesBothEnds(t *testing.T) {
	e, id := established(t)
	info, ok := e.Query(id)
	want := Info{
		State: StateEstablished, Path: *fromPeer, ServiceID: 7, RemoteID: 1, LocalQPN: 200,
		RemoteQPN: 100,
	}
	if !ok || info != want {
		t.Errorf("%+v", info)
	}
	if _, ok := e.Query(id + 1); ok {
		t.Error("a connection that there is not")
	}
}

// BenchmarkConnectAndDisconnect is the cost of both sides of a connection, without a network.
func BenchmarkConnectAndDisconnect(b *testing.B) {
	active, passive := New(Config{NodeGUID: 1, Seed: 1}), New(Config{NodeGUID: 2, Seed: 2})
	passive.Listen(7, exact, 0, 1)
	there := Path{SGID: ourGID, DGID: peerGID}
	back := Path{SGID: peerGID, DGID: ourGID}
	var m Message
	var v Event
	now := clock.Time(0)
	carry := func() {
		for active.PollTransmit(now, &m) {
			passive.HandleMAD(now, &back, 1, m.MAD[:])
		}
		for passive.PollTransmit(now, &m) {
			active.HandleMAD(now, &there, 1, m.MAD[:])
		}
	}
	b.ReportAllocs()
	for i := range b.N {
		id, _ := active.Connect(now, &ConnectParams{
			Path: there, ServiceID: 7, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024,
			LocalQPN: rdma.QPN(2 + i%1000000),
		})
		carry()
		passive.PollEvent(&v)
		other := v.ID
		passive.Accept(now, other, &AcceptParams{QPN: rdma.QPN(2 + i%1000000)})
		carry()
		active.PollEvent(&v)
		active.Ready(now, id)
		carry()
		passive.PollEvent(&v)
		active.Disconnect(now, id, nil)
		carry()
		active.PollEvent(&v)
		passive.PollEvent(&v)
		active.Release(now, id)
		passive.Release(now, other)
		now = now.Add(time.Millisecond)
		active.HandleTimeout(now)
		passive.HandleTimeout(now)
	}
	stats := active.Stats()
	if stats.Received.Of(mad.AttributeDREP) != uint64(b.N) {
		b.Errorf("%+v", stats)
	}
}

// FuzzHandleMAD drives an engine by bytes: messages with any content, to connections that exist or
// not, between calls of its owner and time that passes. Nothing may panic, hang or not add up.
func FuzzHandleMAD(f *testing.F) {
	f.Add([]byte{})
	for a := mad.AttributeREQ; a <= mad.AttributeAPR; a++ {
		f.Add([]byte{0, byte(a - mad.AttributeREQ), 1, 0, 0, 0, 7, 1, 2, 3, 9, 3, 0xff})
		f.Add(bytes.Repeat([]byte{0, byte(a - mad.AttributeREQ), 3, 1, 1, 0, 7, 2, 5}, 9))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 4096 {
			return // the checks after each step look at everything
		}
		d := &driver{t: t, e: New(Config{NodeGUID: 1, Seed: 3}), script: script}
		d.e.Listen(7, exact, 4, 1)
		d.e.Listen(0, 0, 4, 2)
		for len(d.script) > 0 {
			d.step()
			checkEngine(t, d.e)
		}
		for i := 0; d.e.PollTimeout() != clock.Never; i++ {
			if i > 100000 {
				t.Fatal("timers never end")
			}
			d.e.HandleTimeout(d.e.PollTimeout())
			d.drain()
		}
		for _, id := range d.ids {
			d.e.Release(d.now, id)
		}
		for d.e.PollTimeout() != clock.Never {
			d.e.HandleTimeout(d.e.PollTimeout())
			d.drain()
		}
		if d.e.Len() != 0 || d.e.pending != 0 {
			t.Fatalf("%d connections are left", d.e.Len())
		}
	})
}

// driver reads a script of bytes.
type driver struct {
	t      *testing.T
	e      *Engine
	now    clock.Time
	script []byte
	ids    []ID
}

func (d *driver) byte() byte {
	if len(d.script) == 0 {
		return 0
	}
	b := d.script[0]
	d.script = d.script[1:]
	return b
}

// id is one that exists, most of the time.
func (d *driver) id() ID {
	if i := int(d.byte()); i < 200 && len(d.ids) > 0 {
		return d.ids[i%len(d.ids)]
	}
	return ID(d.byte())
}

func (d *driver) step() {
	e := d.e
	switch d.byte() % 16 {
	case 9:
		if id, refused := e.Connect(d.now, &ConnectParams{
			Path: *fromPeer, QPType: rdma.QPTypeRC, PathMTU: rdma.MTU1024,
			LocalQPN: rdma.QPN(d.byte()), MaxCMRetries: d.byte() % 4,
		}); refused == nil {
			d.ids = append(d.ids, id)
		}
	case 10:
		e.Accept(d.now, d.id(), &AcceptParams{QPN: rdma.QPN(d.byte())})
	case 11:
		e.Ready(d.now, d.id())
		e.Established(d.now, d.id())
	case 12:
		e.Reject(d.now, d.id(), &RejectParams{Reason: uint16(d.byte())})
		e.Delay(d.now, d.id(), d.byte())
	case 13:
		e.Disconnect(d.now, d.id(), nil)
		e.Taken(d.id())
	case 14:
		e.Release(d.now, d.id())
		e.AnswerService(d.now, d.id(), &SIDRAnswer{Status: d.byte()})
	case 15:
		d.now = d.now.Add(time.Duration(d.byte()) * 100 * time.Millisecond)
		e.HandleTimeout(d.now)
	default:
		d.message()
	}
	d.drain()
}

// message sends a MAD whose data is the script's, but for IDs that exist.
func (d *driver) message() {
	attribute := mad.AttributeREQ + mad.Attribute(d.byte()%12)
	if attribute > mad.AttributeAPR {
		attribute = mad.AttributeClassPortInfo
	}
	b := madOf(attribute, new(mad.RTU))
	data := b[mad.HeaderLen:]
	length := min(int(d.byte()), len(data))
	d.script = d.script[copy(data[:length], d.script):]
	if attribute != mad.AttributeREQ && attribute != mad.AttributeSIDRREQ {
		at := 4
		if attribute == mad.AttributeSIDRREP {
			at = 0
		}
		binary.BigEndian.PutUint32(data[at:], uint32(d.id()))
		if c := d.e.conns[d.id()]; c != nil && at == 4 {
			binary.BigEndian.PutUint32(data, uint32(c.peerID))
		}
	}
	if flip := d.byte(); flip < 8 {
		b[flip%4]++ // another class, version or method
	}
	from := fromPeer
	if d.byte() > 250 {
		from = fromOther
	}
	d.e.HandleMAD(d.now, from, 1, b)
}

func (d *driver) drain() {
	var m Message
	for d.e.PollTransmit(d.now, &m) {
		if m.MAD[0] != mad.BaseVersion || m.DestQPN != 1 {
			d.t.Fatalf("sent %x", m.MAD)
		}
	}
	var v Event
	for d.e.PollEvent(&v) {
		if v.Kind == EventRequestReceived || v.Kind == EventServiceRequest {
			d.ids = append(d.ids, v.ID)
		}
	}
}
