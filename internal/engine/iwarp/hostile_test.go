package iwarp

import (
	"bytes"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// offence is something that a peer does to a node with one receive of 100 bytes, and what comes of
// it.
type offence struct {
	name string
	say  func(r *raw) []byte
	code iwarp.Code
	// status is that of the receive, success where it was not in use and is flushed.
	status rdma.WCStatus
	raised rdma.EventType
	fault  mem.Fault
	vendor abi.Vendor // of the evidence; any where it is not said
	node   func(*nodeConfig)
}

func sendHeader(edit func(*iwarp.Header)) iwarp.Header {
	h := iwarp.Header{Opcode: iwarp.OpcodeSend, Last: true, MSN: 1}
	if edit != nil {
		edit(&h)
	}
	return h
}

// only is an untagged message of one segment.
func only(op iwarp.Opcode, msn uint32, n int) []byte {
	return fpdu(iwarp.Header{Opcode: op, Last: true, MSN: msn}, make([]byte, n))
}

func writeTo(key rdma.Key, to uint64) iwarp.Header {
	return iwarp.Header{Opcode: iwarp.OpcodeWrite, Last: true, STag: key, TO: to}
}

func readOf(key rdma.Key, to uint64, n uint32, msn uint32) []byte {
	x := iwarp.ReadRequest{SinkSTag: 5, SourceSTag: key, SourceTO: to, Length: n}
	return fpdu(iwarp.Header{Opcode: iwarp.OpcodeReadRequest, Last: true, MSN: msn}, x.Append(nil))
}

func atomicOf(x iwarp.AtomicRequest, msn uint32) []byte {
	return fpdu(iwarp.Header{Opcode: iwarp.OpcodeAtomicRequest, Last: true, MSN: msn}, x.Append(nil))
}

// bent is a Send whose ULPDU is changed.
func bent(edit func(b []byte) []byte) func(*raw) []byte {
	return func(*raw) []byte {
		h := sendHeader(nil)
		return fpduOf(edit(append(h.Append(nil), "0123456789"...)))
	}
}

func said(b ...[]byte) func(*raw) []byte { return func(*raw) []byte { return bytes.Join(b, nil) } }

// otherPD registers the node's memory for another protection domain.
func otherPD(r *raw) rdma.Key {
	return r.n.register(testPD+1, rdma.AccessLocalWrite|rdma.AccessRemoteAny, nil).Key
}

func readOnly(r *raw) rdma.Key { return r.n.register(testPD, rdma.AccessRemoteRead, nil).Key }
func localOnly(r *raw) rdma.Key {
	return r.n.register(testPD, rdma.AccessLocalWrite, nil).Key
}

const (
	reqErr    = rdma.EventQPReqErr
	accessErr = rdma.EventQPAccessErr
)

var offences = []offence{
	{
		name: "DDP version, untagged", code: iwarp.CodeUntaggedVersion, raised: reqErr,
		say: bent(func(b []byte) []byte { b[0] = b[0]&^3 | 2; return b }),
	},
	{
		name: "DDP version, tagged", code: iwarp.CodeTaggedVersion, raised: reqErr,
		say: bent(func(b []byte) []byte { b[0] = 0xc0; return b }),
	},
	{
		name: "RDMAP version", code: iwarp.CodeRDMAPVersion, raised: reqErr,
		say: bent(func(b []byte) []byte { b[1] &= 0x3f; return b }),
	},
	{
		name: "unknown opcode", code: iwarp.CodeOpcode, raised: reqErr,
		say: bent(func(b []byte) []byte { b[1] = b[1]&0xf0 | 0xe; return b }),
	},
	{
		name: "Send, tagged", code: iwarp.CodeOpcode, raised: reqErr,
		say: bent(func(b []byte) []byte { b[0] |= 0x80; return b }),
	},
	{
		name: "Send on the queue of requests", code: iwarp.CodeOpcode, raised: reqErr,
		say: bent(func(b []byte) []byte { b[9] = 1; return b }),
	},
	{
		name: "queue 4", code: iwarp.CodeUntaggedQN, raised: reqErr,
		say: bent(func(b []byte) []byte { b[9] = 4; return b }),
	},
	{
		name: "queue 2^32-1", code: iwarp.CodeUntaggedQN, raised: reqErr,
		say: bent(func(b []byte) []byte { copy(b[6:10], "\xff\xff\xff\xff"); return b }),
	},
	{
		name: "ULPDU of one byte", code: iwarp.CodeDDPLocal, raised: reqErr,
		say: bent(func(b []byte) []byte { return b[:1] }),
	},
	{
		name: "untagged header cut", code: iwarp.CodeDDPLocal, raised: reqErr,
		say: bent(func(b []byte) []byte { return b[:17] }),
	},
	{
		name: "tagged header cut", code: iwarp.CodeDDPLocal, raised: reqErr,
		say: bent(func(b []byte) []byte { b[0] |= 0x80; return b[:13] }),
	},

	{
		name: "MSN 0", code: iwarp.CodeUntaggedMSN, raised: reqErr,
		say: said(fpdu(sendHeader(func(h *iwarp.Header) { h.MSN = 0 }), nil)),
	},
	{
		name: "MSN 2", code: iwarp.CodeUntaggedMSN, raised: reqErr,
		say: said(fpdu(sendHeader(func(h *iwarp.Header) { h.MSN = 2 }), nil)),
	},
	{
		name: "MO in the first segment", code: iwarp.CodeUntaggedMO, raised: reqErr,
		say: said(fpdu(sendHeader(func(h *iwarp.Header) { h.MO = 4 }), nil)),
	},
	{
		name: "MO ahead in the second", code: iwarp.CodeUntaggedMO, status: rdma.WCRemInvReqErr,
		say: said(
			fpdu(sendHeader(func(h *iwarp.Header) { h.Last = false }), []byte("1234")),
			fpdu(sendHeader(func(h *iwarp.Header) { h.MO = 5 }), []byte("1234")),
		),
	},
	{
		name: "another opcode in the second", code: iwarp.CodeOpcode, status: rdma.WCRemInvReqErr,
		say: said(
			fpdu(sendHeader(func(h *iwarp.Header) { h.Last = false }), []byte("1234")),
			fpdu(sendHeader(func(h *iwarp.Header) {
				h.MO, h.Opcode = 4, iwarp.OpcodeSendSolicited
			}), []byte("1234")),
		),
	},
	{
		name: "longer than the receive", code: iwarp.CodeUntaggedTooLong, status: rdma.WCLocLenErr,
		say: said(fpdu(sendHeader(nil), make([]byte, 101))),
	},
	{
		name: "longer than the receive in the second", code: iwarp.CodeUntaggedTooLong,
		status: rdma.WCLocLenErr,
		say: said(
			fpdu(sendHeader(func(h *iwarp.Header) { h.Last = false }), make([]byte, 60)),
			fpdu(sendHeader(func(h *iwarp.Header) { h.MO = 60 }), make([]byte, 60)),
		),
	},
	{
		name: "no receive", code: iwarp.CodeUntaggedNoBuffer, raised: reqErr,
		say: said(
			fpdu(sendHeader(nil), nil),
			fpdu(sendHeader(func(h *iwarp.Header) { h.MSN = 2 }), nil),
		),
	},
	{
		name: "invalidates what cannot be", code: iwarp.CodeProtectionInvalidate,
		status: rdma.WCRemAccessErr, fault: mem.FaultNotWindow,
		say: func(r *raw) []byte {
			return fpdu(sendHeader(func(h *iwarp.Header) {
				h.Opcode, h.STag = iwarp.OpcodeSendInvalidate, r.n.region.Key
			}), nil)
		},
	},
	{
		name: "invalidates nothing", code: iwarp.CodeProtectionSTag, status: rdma.WCRemAccessErr,
		fault: mem.FaultKey,
		say: said(fpdu(sendHeader(func(h *iwarp.Header) {
			h.Opcode, h.STag = iwarp.OpcodeSendSolicitedInv, 0x777
		}), nil)),
	},

	{
		name: "WRITE to no STag", code: iwarp.CodeTaggedSTag, raised: accessErr, fault: mem.FaultKey,
		say: said(fpdu(writeTo(0x777, testBase), make([]byte, 8))),
	},
	{
		name: "WRITE before the region", code: iwarp.CodeTaggedBounds, raised: accessErr,
		fault: mem.FaultBounds, say: func(r *raw) []byte {
			return fpdu(writeTo(r.n.region.Key, testBase-1), make([]byte, 8))
		},
	},
	{
		name: "WRITE over the end of the region", code: iwarp.CodeTaggedBounds, raised: accessErr,
		fault: mem.FaultBounds, say: func(r *raw) []byte {
			return fpdu(writeTo(r.n.region.Key, testBase+1<<20-7), make([]byte, 8))
		},
	},
	{
		name: "WRITE around the address space", code: iwarp.CodeTaggedWrap, raised: accessErr,
		fault: mem.FaultBounds, say: func(r *raw) []byte {
			return fpdu(writeTo(r.n.region.Key, ^uint64(0)-3), make([]byte, 8))
		},
	},
	{
		name: "WRITE of another PD", code: iwarp.CodeTaggedStream, raised: accessErr,
		fault: mem.FaultPD, say: func(r *raw) []byte {
			return fpdu(writeTo(otherPD(r), testBase), make([]byte, 8))
		},
	},
	{
		name: "WRITE without the right", code: iwarp.CodeProtectionAccess, raised: accessErr,
		fault: mem.FaultRights, say: func(r *raw) []byte {
			return fpdu(writeTo(readOnly(r), testBase), make([]byte, 8))
		},
	},
	{
		name: "WRITE that the QP does not allow", code: iwarp.CodeProtectionAccess, raised: accessErr,
		fault: mem.FaultRights, say: func(r *raw) []byte {
			return fpdu(writeTo(r.n.region.Key, testBase), make([]byte, 8))
		}, node: func(c *nodeConfig) { c.access = rdma.AccessLocalWrite | rdma.AccessRemoteRead },
	},

	{
		name: "READ of no STag", code: iwarp.CodeProtectionSTag, raised: accessErr,
		fault: mem.FaultKey, say: said(readOf(0x777, testBase, 8, 1)),
	},
	{
		name: "READ over the end", code: iwarp.CodeProtectionBounds, raised: accessErr,
		fault: mem.FaultBounds, say: func(r *raw) []byte {
			return readOf(r.n.region.Key, testBase+1<<20-7, 8, 1)
		},
	},
	{
		name: "READ around the address space", code: iwarp.CodeProtectionWrap, raised: accessErr,
		fault: mem.FaultBounds, say: func(r *raw) []byte {
			return readOf(r.n.region.Key, ^uint64(0), 8, 1)
		},
	},
	{
		name: "READ of more than there can be", code: iwarp.CodeProtectionBounds, raised: accessErr,
		fault: mem.FaultBounds, say: func(r *raw) []byte {
			return readOf(r.n.region.Key, testBase, 0xffffffff, 1)
		},
	},
	{
		name: "READ of another PD", code: iwarp.CodeProtectionStream, raised: accessErr,
		fault: mem.FaultPD, say: func(r *raw) []byte { return readOf(otherPD(r), testBase, 8, 1) },
	},
	{
		name: "READ without the right", code: iwarp.CodeProtectionAccess, raised: accessErr,
		fault: mem.FaultRights, say: func(r *raw) []byte {
			return readOf(localOnly(r), testBase, 8, 1)
		},
	},
	{
		name: "READ that the QP does not allow", code: iwarp.CodeProtectionAccess, raised: accessErr,
		fault: mem.FaultRights, say: func(r *raw) []byte {
			return readOf(r.n.region.Key, testBase, 8, 1)
		}, node: func(c *nodeConfig) { c.access = rdma.AccessRemoteWrite | rdma.AccessLocalWrite },
	},
	{
		name: "READ with MSN 2", code: iwarp.CodeUntaggedMSN, raised: reqErr,
		say: said(readOf(1, 0, 0, 2)),
	},
	{
		name: "READ request too long", code: iwarp.CodeUntaggedTooLong, raised: reqErr,
		vendor: abi.VendorLength, say: said(only(iwarp.OpcodeReadRequest, 1, 29)),
	},
	{
		name: "READ request too short", code: iwarp.CodeOperationOther, raised: reqErr,
		vendor: abi.VendorLength, say: said(only(iwarp.OpcodeReadRequest, 1, 27)),
	},
	{
		name: "READ request in segments", code: iwarp.CodeOperationOther, raised: reqErr,
		vendor: abi.VendorProtocol,
		say:    said(fpdu(iwarp.Header{Opcode: iwarp.OpcodeReadRequest, MSN: 1}, make([]byte, 28))),
	},
	{
		name: "answer to no READ", code: iwarp.CodeOpcode, raised: reqErr,
		say: said(fpdu(iwarp.Header{Opcode: iwarp.OpcodeReadResponse, Last: true, STag: 1}, nil)),
	},
	{
		name: "answer to no atomic", code: iwarp.CodeOpcode, raised: reqErr,
		say: said(only(iwarp.OpcodeAtomicResponse, 1, 12)),
	},

	{
		name: "atomic not aligned", code: iwarp.CodeOperationOther, raised: reqErr,
		say: func(r *raw) []byte {
			return atomicOf(iwarp.AtomicRequest{STag: r.n.region.Key, TO: testBase + 4}, 1)
		},
	},
	{
		name: "atomic of an unknown kind", code: iwarp.CodeOperationOther, raised: reqErr,
		say: func(r *raw) []byte {
			return atomicOf(iwarp.AtomicRequest{STag: r.n.region.Key, TO: testBase, Op: 7}, 1)
		},
	},
	{
		name: "atomic without the right", code: iwarp.CodeProtectionAccess, raised: accessErr,
		fault: mem.FaultRights, say: func(r *raw) []byte {
			return atomicOf(iwarp.AtomicRequest{STag: readOnly(r), TO: testBase}, 1)
		},
	},
	{
		name: "immediate data without a receive", code: iwarp.CodeUntaggedNoBuffer, raised: reqErr,
		say: said(
			fpdu(sendHeader(nil), nil),
			only(iwarp.OpcodeImmediate, 2, 8),
		),
	},
	{
		name: "immediate data too short", code: iwarp.CodeOperationOther, raised: reqErr,
		vendor: abi.VendorLength, say: said(only(iwarp.OpcodeImmediate, 1, 7)),
	},
	{
		name: "immediate data too long", code: iwarp.CodeUntaggedTooLong, raised: reqErr,
		vendor: abi.VendorLength, say: said(only(iwarp.OpcodeImmediateSolicited, 1, 9)),
	},
	{
		name: "immediate data inside a Send", code: iwarp.CodeUntaggedMSN, status: rdma.WCRemInvReqErr,
		say: said(
			fpdu(sendHeader(func(h *iwarp.Header) { h.Last = false }), []byte("1234")),
			fpdu(sendHeader(func(h *iwarp.Header) { h.Opcode = iwarp.OpcodeImmediate }), make([]byte, 8)),
		),
	},
}

// TestHostile_EveryOffence_IsTerminatedWithItsCode says what is wrong to a node in one piece, byte
// by byte, and with a CRC.
func TestHostile_EveryOffence_IsTerminatedWithItsCode(t *testing.T) {
	for _, x := range offences {
		for _, way := range []string{"at once", "byte by byte", "with CRC"} {
			t.Run(x.name+", "+way, func(t *testing.T) { commit(t, &x, way) })
		}
	}
}

func commit(t *testing.T, x *offence, way string) {
	c := nodeConfig{conn: ConnConfig{CRC: way == "with CRC"}}
	if x.node != nil {
		x.node(&c)
	}
	r := responderNode(t, c)
	pattern(r.n.mem, 9)
	r.n.receive(1, r.n.at(0, 100))
	b := x.say(r)
	before := bytes.Clone(r.n.mem)
	if way == "byte by byte" {
		for i := range b {
			r.say(b[i : i+1])
		}
	} else {
		r.say(b)
	}
	term := r.wantTerminate(x.code)
	if x.code != iwarp.CodeDDPLocal && len(term.DDP) == 0 {
		t.Error("the Terminate does not show the header")
	}
	status := x.status
	got := r.n.recvs.take()
	switch {
	case len(got) != 1:
		t.Fatalf("receives %+v", got)
	case status != 0 && rdma.WCStatus(got[0].Status) != status:
		t.Errorf("receive %v, want %v", rdma.WCStatus(got[0].Status), status)
	case status == 0 && got[0].Status != uint32(rdma.WCWRFlushErr) && got[0].Status != 0:
		t.Errorf("receive %v", rdma.WCStatus(got[0].Status))
	}
	switch {
	case status != 0 && len(r.n.raised) != 0, status == 0 && len(r.n.raised) != 1:
		t.Errorf("events %v", r.n.raised)
	case status == 0 && r.n.raised[0] != x.raised:
		t.Errorf("event %v, want %v", r.n.raised[0], x.raised)
	}
	if len(r.n.causes) != 1 || !r.n.causes[0].HasTerminate || r.n.causes[0].IsTold ||
		r.n.causes[0].Terminate != uint16(x.code) || r.n.causes[0].Fault != x.fault {
		t.Errorf("evidence %+v", r.n.causes)
	} else if x.vendor != 0 && r.n.causes[0].Vendor != x.vendor {
		t.Errorf("evidence %v, want %v", r.n.causes[0].Vendor, x.vendor)
	}
	if !bytes.Equal(before[100:], r.n.mem[100:]) {
		t.Error("memory has changed outside the receive")
	}
	r.say(b) // nobody listens any more
}

// The evidence of a header that cannot be read names no message, neither a WRITE nor the one
// before.
func TestHostile_HeaderThatIsNone_IsNotTakenForAMessage(t *testing.T) {
	r := responderNode(t, nodeConfig{})
	r.n.receive(1, r.n.at(0, 100))
	r.say(fpdu(sendHeader(nil), make([]byte, 10)))
	r.say(bent(func(b []byte) []byte { b[0] = b[0]&^3 | 3; return b })(r))
	r.wantTerminate(iwarp.CodeUntaggedVersion)
	if len(r.n.causes) != 1 || iwarp.Opcode(r.n.causes[0].Opcode).IsKnown() {
		t.Errorf("evidence %+v", r.n.causes)
	}
}

func TestHostile_WrongCRC_PlacesNothing(t *testing.T) {
	for _, op := range []iwarp.Opcode{iwarp.OpcodeSend, iwarp.OpcodeWrite} {
		r := responderNode(t, nodeConfig{conn: ConnConfig{CRC: true}})
		r.n.receive(1, r.n.at(0, 100))
		h := iwarp.Header{Opcode: op, Last: true, MSN: 1, STag: r.n.region.Key, TO: testBase}
		b := fpdu(h, []byte("must not be seen"))
		b[len(b)/2] ^= 0x10
		r.say(b)
		r.wantTerminate(iwarp.CodeMPACRC)
		if r.n.counters[work.CountBadFPDU] != 1 || r.n.counters[work.CountSentTerminate] != 1 {
			t.Errorf("counters %v", r.n.counters)
		}
		if !bytes.Equal(r.n.mem[:100], make([]byte, 100)) {
			t.Error("placed")
		}
	}
}

func TestHostile_WrongMarker_IsTerminated(t *testing.T) {
	for at, want := range map[int]iwarp.Code{2: iwarp.CodeMPAMarker, 514: iwarp.CodeMPAMarker} {
		r := responderNode(t, nodeConfig{conn: ConnConfig{Markers: true}})
		r.n.receive(1, r.n.at(0, 2000))
		var m iwarp.Marks
		m.StartFPDU()
		b := m.Append(nil, fpdu(sendHeader(nil), make([]byte, 1000)))
		b[at] ^= 0x04
		r.say(b)
		r.wantTerminate(want)
	}
}

// TestHostile_Answers_ThatDoNotFit sends answers to a READ or atomic that it did not ask for.
func TestHostile_Answers_ThatDoNotFit(t *testing.T) {
	answer := func(stag rdma.Key, to uint64, n int, last bool) []byte {
		return fpdu(iwarp.Header{
			Opcode: iwarp.OpcodeReadResponse, STag: stag, TO: to, Last: last,
		}, make([]byte, n))
	}
	for _, x := range []struct {
		name string
		op   rdma.WROpcode
		b    []byte
		code iwarp.Code
	}{
		{"another STag", rdma.WRRead, answer(2, 0, 8, true), iwarp.CodeTaggedSTag},
		{"another TO", rdma.WRRead, answer(1, 1, 8, true), iwarp.CodeTaggedBounds},
		{"too long", rdma.WRRead, answer(1, 0, 9, true), iwarp.CodeTaggedBounds},
		{"too short", rdma.WRRead, answer(1, 0, 7, true), iwarp.CodeTaggedBounds},
		{
			"too long in the second", rdma.WRRead,
			append(answer(1, 0, 4, false), answer(1, 4, 5, true)...), iwarp.CodeTaggedBounds,
		},
		{"READ data for an atomic", rdma.WRFetchAdd, answer(1, 0, 8, true), iwarp.CodeOpcode},
		{"an atomic's answer for a READ", rdma.WRRead, fpdu(iwarp.Header{
			Opcode: iwarp.OpcodeAtomicResponse, Last: true, MSN: 1,
		}, make([]byte, 12)), iwarp.CodeOpcode},
		{"another atomic's answer", rdma.WRFetchAdd, fpdu(iwarp.Header{
			Opcode: iwarp.OpcodeAtomicResponse, Last: true, MSN: 1,
		}, make([]byte, 12)), iwarp.CodeOperationOther},
		{"an atomic's answer with MSN 2", rdma.WRFetchAdd, fpdu(iwarp.Header{
			Opcode: iwarp.OpcodeAtomicResponse, Last: true, MSN: 2,
		}, append([]byte{0, 0, 0, 1}, make([]byte, 8)...)), iwarp.CodeUntaggedMSN},
	} {
		r := initiatorNode(t, nodeConfig{})
		pattern(r.n.mem, 3)
		before := bytes.Clone(r.n.mem)
		r.n.post(r.now, wqeOf(x.op, 4), r.n.at(200, 8))
		r.drain()
		if got := r.hear(); len(got) != 1 {
			t.Fatalf("%s: heard %v", x.name, got)
		}
		r.say(x.b)
		r.wantTerminate(x.code)
		wantStatus(t, r.n.sends.take(), rdma.WCWRFlushErr)
		if !bytes.Equal(before[208:], r.n.mem[208:]) || !bytes.Equal(before[:200], r.n.mem[:200]) {
			t.Errorf("%s: memory changed", x.name)
		}
	}
}

func TestHostile_MoreReadsThanAgreed_AreTerminated(t *testing.T) {
	r := responderNode(t, nodeConfig{params: Params{IRD: 2, ORD: 2}})
	var b []byte
	for i := range 3 {
		b = append(b, readOf(r.n.region.Key, testBase, 64<<10, uint32(i+1))...)
	}
	r.say(b)
	r.wantTerminate(iwarp.CodeUntaggedNoBuffer)
	if r.n.causes[0].Vendor != abi.VendorRDAtomic {
		t.Errorf("evidence %+v", r.n.causes)
	}
}

// TestHostile_TerminatedHeader_IsOfReadsAndAtomicsAlone: readers take what is marked as an RDMAP
// header for that of a READ (RFC 5040 4.8).
func TestHostile_TerminatedHeader_IsOfReadsAndAtomicsAlone(t *testing.T) {
	r := responderNode(t, nodeConfig{})
	r.say(only(iwarp.OpcodeImmediate, 1, iwarp.ImmediateLen))
	if x := r.wantTerminate(iwarp.CodeUntaggedNoBuffer); len(x.DDP) == 0 || len(x.RDMAP) != 0 {
		t.Errorf("Terminate with %d and %d bytes of headers", len(x.DDP), len(x.RDMAP))
	}
}

func TestHostile_Terminate_FlushesAndTells(t *testing.T) {
	for _, isMirrored := range []bool{false, true} {
		r := initiatorNode(t, nodeConfig{})
		r.n.receive(1, r.n.at(0, 10))
		r.n.post(r.now, wqeOf(rdma.WRRead, 4), r.n.at(200, 8))
		r.drain()
		asked := r.hear()
		x := iwarp.Terminate{
			Code: iwarp.CodeProtectionSTag, HasLength: true, SegmentLen: 46,
			DDP: asked[0].header.Append(nil), RDMAP: asked[0].payload, IsMirrored: isMirrored,
		}
		r.say(fpdu(iwarp.Header{Opcode: iwarp.OpcodeTerminate, Last: true, MSN: 1}, x.Append(nil)))
		if e := r.n.end(); e.How != HowTerminateReceived || e.Code != iwarp.CodeProtectionSTag ||
			r.n.c.Closing() != CloseFIN || r.n.counters[work.CountRcvdTerminate] != 1 {
			t.Errorf("ended %+v", e)
		}
		wantStatus(t, r.n.sends.take(), rdma.WCRemAccessErr)
		wantStatus(t, r.n.recvs.take(), rdma.WCWRFlushErr)
		if c := r.n.causes; len(c) != 1 || !c[0].IsTold || c[0].WRID != 4 ||
			c[0].Status != rdma.WCRemAccessErr ||
			c[0].Terminate != uint16(iwarp.CodeProtectionSTag) || c[0].Asked != rdma.AccessRemoteRead {
			t.Errorf("evidence %+v", c)
		}
	}
	// One that is about no request names none.
	r := responderNode(t, nodeConfig{})
	x := iwarp.Terminate{Code: iwarp.CodeRDMAPLocal}
	r.say(fpdu(iwarp.Header{Opcode: iwarp.OpcodeTerminate, Last: true, MSN: 1}, x.Append(nil)))
	if c := r.n.causes; len(c) != 1 || !c[0].IsTold || c[0].Status != rdma.WCSuccess {
		t.Errorf("evidence %+v", c)
	}
	// A Terminate that is cut, or longer than any.
	for _, n := range []int{0, 1, 3, 5, 200, 9000} {
		r := responderNode(t, nodeConfig{})
		h := iwarp.Header{Opcode: iwarp.OpcodeTerminate, Last: true, MSN: 1}
		r.say(fpdu(h, bytes.Repeat([]byte{0xff}, n)))
		if e := r.n.end(); e.How != HowTerminateReceived {
			t.Errorf("Terminate of %d bytes: %+v", n, e)
		}
	}
}
