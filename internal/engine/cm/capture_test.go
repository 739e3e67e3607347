package cm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/mad"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// The tests here let an engine take one side of a conversation that two kernels had, and compare
// what it sends with what the kernel sent, byte by byte. Only the communication IDs and transaction
// IDs, which each side makes up, are the kernel's own.

// heard is a MAD of a capture.
type heard struct {
	from, to rdma.GID
	header   mad.Header
	bytes    []byte
}

// conversation returns the MADs between the first two IDs of a capture.
func conversation(t *testing.T, name string) []heard {
	t.Helper()
	b, err := os.ReadFile("../../wire/roce/testdata/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	const fileHeader, recordHeader = 24, 16
	var out []heard
	for b = b[fileHeader:]; len(b) >= recordHeader; {
		n := binary.LittleEndian.Uint32(b[8:])
		f, err := roce.ParseFrame(b[recordHeader : recordHeader+n])
		b = b[recordHeader+n:]
		if errors.Is(err, roce.ErrNotRoCE) {
			continue
		}
		var h ib.Headers
		payload, err := h.Parse(f.Packet())
		if err != nil {
			t.Fatal(err)
		}
		if h.BTH.DestQPN != rdma.QPNGSI {
			continue
		}
		m := heard{
			from: rdma.GIDFromAddr(f.Path.Src), to: rdma.GIDFromAddr(f.Path.Dst), bytes: payload,
		}
		if m.header, err = mad.ParseHeader(payload); err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

// first returns the first message of a kind and parses it.
func first(t *testing.T, all []heard, a mad.Attribute, m interface{ Parse([]byte) error }) heard {
	t.Helper()
	for _, h := range all {
		if h.header.Attribute == a {
			if err := m.Parse(h.bytes[mad.HeaderLen:]); err != nil {
				t.Fatal(err)
			}
			return h
		}
	}
	t.Fatalf("no %v", a)
	return heard{}
}

// Offsets in a MAD of what each side makes up.
const (
	atTransactionID = 8
	atLocalID       = mad.HeaderLen
	atRemoteID      = mad.HeaderLen + 4
)

// put writes an ID into a copy of a MAD.
func put(b []byte, at int, id uint32) []byte {
	out := bytes.Clone(b)
	binary.BigEndian.PutUint32(out[at:], id)
	return out
}

// sameBut compares a message with the kernel's but for some fields.
func sameBut(t *testing.T, got, want []byte, fields ...int) {
	t.Helper()
	got = bytes.Clone(got)
	for _, at := range fields {
		n := 4
		if at == atTransactionID {
			n = 8
		}
		copy(got[at:at+n], want[at:])
	}
	if !bytes.Equal(got, want) {
		t.Errorf("sent\n%x, the kernel\n%x", got, want)
	}
}

func one(t *testing.T, e *Engine) Message {
	t.Helper()
	var m, more Message
	if !e.PollTransmit(0, &m) {
		t.Fatal("nothing was sent")
	}
	if e.PollTransmit(0, &more) {
		t.Fatal("more was sent")
	}
	return m
}

func none(t *testing.T, e *Engine) {
	t.Helper()
	var m Message
	if e.PollTransmit(0, &m) {
		t.Fatalf("%x was sent", m.MAD)
	}
}

func event(t *testing.T, e *Engine, kind EventKind) Event {
	t.Helper()
	var v Event
	if !e.PollEvent(&v) || v.Kind != kind {
		t.Fatalf("event is %v, want %v", v.Kind, kind)
	}
	return v
}

var kernelConversations = []string{
	"rxe-rping", "rxe-rping-v6", "rxe-ucmatose", "rxe-rdma_client", "rxe-nvmeof-discover",
	"rxe-mtu4096-rping", "rxe-riostream", "rxe-vt-rnr",
}

func TestCapture_PassiveSide_SendsWhatTheKernelSends(t *testing.T) {
	for _, name := range kernelConversations {
		t.Run(name, func(t *testing.T) {
			all := conversation(t, name)
			var req mad.REQ
			var rep mad.REP
			asked := first(t, all, mad.AttributeREQ, &req)
			accepted := first(t, all, mad.AttributeREP, &rep)
			e := New(Config{NodeGUID: rep.LocalGUID, Seed: 1, AckDelay: DefaultAckDelay})
			e.Listen(req.ServiceID, exact, 0, 3)
			back := Path{SGID: asked.to, DGID: asked.from}
			e.HandleMAD(0, &back, 1, asked.bytes)
			v := event(t, e, EventRequestReceived)
			if v.RemoteQPN != req.LocalQPN || v.StartPSN != req.StartPSN || v.Cookie != 3 ||
				v.PathMTU != req.PathMTU || v.QPType != rdma.QPTypeRC || v.RetryCount != req.RetryCount ||
				v.Path.DGID != req.Primary.LocalGID || v.Path.HopLimit != 64 ||
				v.Path.FlowLabel != req.Primary.FlowLabel || v.AckTimeout != DefaultAckTimeout {
				t.Errorf("%+v", v)
			}
			e.Accept(0, v.ID, &AcceptParams{
				QPN: rep.LocalQPN, StartPSN: rep.StartPSN, RNRRetry: rep.RNRRetry,
				ResponderResources: rep.ResponderResources, InitiatorDepth: rep.InitiatorDepth,
				FlowControl: rep.FlowControl, SRQ: rep.SRQ, PrivateData: rep.PrivateData[:],
			})
			m := one(t, e)
			sameBut(t, m.MAD[:], accepted.bytes, atLocalID)
			ready := first(t, all, mad.AttributeRTU, new(mad.RTU))
			e.HandleMAD(0, &back, 1, put(ready.bytes, atRemoteID, uint32(v.ID)))
			event(t, e, EventEstablished)
			farewell(t, e, all, v.ID, asked.from)
		})
	}
}

func TestCapture_ActiveSide_SendsWhatTheKernelSends(t *testing.T) {
	for _, name := range kernelConversations {
		t.Run(name, func(t *testing.T) {
			all := conversation(t, name)
			var req mad.REQ
			asked := first(t, all, mad.AttributeREQ, &req)
			e := New(Config{NodeGUID: req.LocalGUID, Seed: 1, AckDelay: DefaultAckDelay})
			id, refusal := e.Connect(0, &ConnectParams{
				Path: Path{
					SGID: asked.from, DGID: asked.to, FlowLabel: req.Primary.FlowLabel,
					HopLimit: 64, Port: 1,
				},
				ServiceID: req.ServiceID, PKey: req.PKey, LocalQPN: req.LocalQPN,
				StartPSN: req.StartPSN, QPType: rdma.QPTypeRC, PathMTU: req.PathMTU,
				ResponderResources: req.ResponderResources, InitiatorDepth: req.InitiatorDepth,
				RetryCount: req.RetryCount, RNRRetry: req.RNRRetry, SRQ: req.SRQ,
				FlowControl: req.FlowControl, MaxCMRetries: DefaultMaxCMRetries,
				PrivateData: req.PrivateData[:],
			})
			if refusal != nil {
				t.Fatal(refusal)
			}
			m := one(t, e)
			sameBut(t, m.MAD[:], asked.bytes, atTransactionID, atLocalID)
			if m.DestQPN != rdma.QPNGSI {
				t.Errorf("to %v", m.DestQPN)
			}
			var rep mad.REP
			accepted := first(t, all, mad.AttributeREP, &rep)
			back := Path{SGID: asked.from, DGID: asked.to}
			e.HandleMAD(0, &back, 1, put(accepted.bytes, atRemoteID, uint32(id)))
			v := event(t, e, EventReplyReceived)
			if v.RemoteQPN != rep.LocalQPN || v.StartPSN != rep.StartPSN || v.AckTimeout != 19 ||
				v.RNRRetry != rep.RNRRetry || v.AckDelay != DefaultAckDelay {
				t.Errorf("%+v", v)
			}
			e.Ready(0, id)
			m = one(t, e)
			ready := first(t, all, mad.AttributeRTU, new(mad.RTU))
			sameBut(t, m.MAD[:], ready.bytes, atTransactionID, atLocalID)
			farewell(t, e, all, id, asked.to)
		})
	}
}

// farewell plays the end from this side or from the other, whichever the capture shows.
func farewell(t *testing.T, e *Engine, all []heard, id ID, peer rdma.GID) {
	t.Helper()
	var dreq mad.DREQ
	asked := first(t, all, mad.AttributeDREQ, &dreq)
	answered := first(t, all, mad.AttributeDREP, new(mad.DREP))
	if asked.from == peer {
		back := Path{SGID: asked.to, DGID: asked.from}
		e.HandleMAD(0, &back, 1, put(asked.bytes, atRemoteID, uint32(id)))
		m := one(t, e)
		sameBut(t, m.MAD[:], answered.bytes, atTransactionID, atLocalID)
		if v := event(t, e, EventDisconnected); v.How != DisconnectedByPeer {
			t.Errorf("disconnected %v", v.How)
		}
		return
	}
	if refusal := e.Disconnect(0, id, nil); refusal != nil {
		t.Fatal(refusal)
	}
	m := one(t, e)
	sameBut(t, m.MAD[:], asked.bytes, atTransactionID, atLocalID)
	back := Path{SGID: asked.from, DGID: asked.to}
	e.HandleMAD(0, &back, 1, put(answered.bytes, atRemoteID, uint32(id)))
	if v := event(t, e, EventDisconnected); v.How != DisconnectedByReply {
		t.Errorf("disconnected %v", v.How)
	}
}

func TestCapture_Reject_SendsWhatTheKernelSends(t *testing.T) {
	all := conversation(t, "rxe-vt-reject")
	var req mad.REQ
	var rej mad.REJ
	asked := first(t, all, mad.AttributeREQ, &req)
	refused := first(t, all, mad.AttributeREJ, &rej)
	e := New(Config{NodeGUID: 5, Seed: 1})
	e.Listen(req.ServiceID, exact, 0, 3)
	e.HandleMAD(0, &Path{SGID: asked.to, DGID: asked.from}, 1, asked.bytes)
	v := event(t, e, EventRequestReceived)
	e.Reject(0, v.ID, &RejectParams{Reason: uint16(rej.Reason), PrivateData: rej.PrivateData[:]})
	m := one(t, e)
	sameBut(t, m.MAD[:], refused.bytes, atLocalID)

	// And one that nobody listens for: nothing is made up, so nothing differs.
	all = conversation(t, "rxe-rping-reject")
	asked = first(t, all, mad.AttributeREQ, &req)
	refused = first(t, all, mad.AttributeREJ, &rej)
	e.HandleMAD(0, &Path{SGID: asked.to, DGID: asked.from}, 1, asked.bytes)
	m = one(t, e)
	sameBut(t, m.MAD[:], refused.bytes)
}

func TestCapture_RejectedByTheKernel_IsAnEvent(t *testing.T) {
	for name, want := range map[string]mad.Reason{
		"rxe-vt-reject": mad.ReasonConsumer, "rxe-rping-reject": mad.ReasonInvalidServiceID,
	} {
		all := conversation(t, name)
		refused := first(t, all, mad.AttributeREJ, new(mad.REJ))
		e := New(Config{NodeGUID: 5, Seed: 1})
		id, _ := e.Connect(0, &ConnectParams{
			Path: Path{SGID: refused.to, DGID: refused.from}, QPType: rdma.QPTypeRC,
			PathMTU: rdma.MTU1024, LocalQPN: 5,
		})
		one(t, e)
		back := Path{SGID: refused.to, DGID: refused.from}
		e.HandleMAD(0, &back, 1, put(refused.bytes, atRemoteID, uint32(id)))
		v := event(t, e, EventRejected)
		if mad.Reason(v.Reason) != want {
			t.Errorf("%s: reason %d", name, v.Reason)
		}
		if want == mad.ReasonConsumer && !bytes.HasPrefix(v.PrivateData[:], []byte("no thanks\x00")) {
			t.Errorf("private data %q", v.PrivateData[:16])
		}
	}
}

func TestCapture_ServiceQuery_SendsWhatTheKernelSends(t *testing.T) {
	all := conversation(t, "rxe-udaddy")
	var q mad.SIDRREQ
	var a mad.SIDRREP
	asked := first(t, all, mad.AttributeSIDRREQ, &q)
	answered := first(t, all, mad.AttributeSIDRREP, &a)
	passive := New(Config{NodeGUID: 5, Seed: 1})
	passive.Listen(q.ServiceID, exact, 0, 3)
	passive.HandleMAD(0, &Path{SGID: asked.to, DGID: asked.from}, 1, asked.bytes)
	v := event(t, passive, EventServiceRequest)
	passive.AnswerService(0, v.ID, &SIDRAnswer{QPN: a.QPN, QKey: a.QKey})
	m := one(t, passive)
	sameBut(t, m.MAD[:], answered.bytes)

	active := New(Config{NodeGUID: 6, Seed: 2})
	id, _ := active.QueryService(0, &SIDRParams{
		Path: Path{SGID: asked.from, DGID: asked.to}, ServiceID: q.ServiceID, PKey: q.PKey,
		PrivateData: q.PrivateData[:],
	})
	m = one(t, active)
	sameBut(t, m.MAD[:], asked.bytes, atTransactionID, atLocalID)
	active.HandleMAD(0, &Path{SGID: asked.from, DGID: asked.to}, 1,
		put(answered.bytes, atLocalID, uint32(id)))
	v = event(t, active, EventServiceReply)
	if v.RemoteQPN != a.QPN || v.QKey != a.QKey || v.Status != 0 {
		t.Errorf("%+v", v)
	}
}
