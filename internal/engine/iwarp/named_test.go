package iwarp

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// verdict is a Terminate about a request that waits for its answer.
type verdict struct {
	name string
	// waiting are the requests that wait; those to answered have their answers, and the Terminate
	// shows the headers of number of.
	waiting  []abi.SendWQE
	answered int
	of       int
	edit     func(t *iwarp.Terminate)
	code     iwarp.Code
	// want is the status of that request; all others are flushed.
	want rdma.WCStatus
}

var (
	oneRead     = []abi.SendWQE{asking(rdma.WRRead, 0x1000)}
	oneAtomic   = []abi.SendWQE{asking(rdma.WRCompareSwap, 0x1000)}
	misplaced   = []abi.SendWQE{asking(rdma.WRFetchAdd, 0x1004)}
	readAndMore = []abi.SendWQE{
		asking(rdma.WRRead, 0x1000), asking(rdma.WRRead, 0x2000), asking(rdma.WRFetchAdd, 0x3000),
	}
)

func asking(op rdma.WROpcode, at uint64) abi.SendWQE {
	w := wqeOf(op, 0)
	w.RKey, w.RemoteAddr = 0x77, at
	return w
}

func withoutContent(t *iwarp.Terminate) { t.RDMAP = nil }

//tidy:table
var verdicts = []verdict{
	{"READ", oneRead, 0, 0, nil, iwarp.CodeProtectionSTag, rdma.WCRemAccessErr},
	{"READ before others", readAndMore, 0, 0, nil, iwarp.CodeProtectionBounds, rdma.WCRemAccessErr},
	{"READ after others", readAndMore, 1, 1, nil, iwarp.CodeProtectionBounds, rdma.WCRemAccessErr},
	{"READ behind one without answer", readAndMore, 0, 1, nil, iwarp.CodeProtectionBounds, flushed},
	{"READ whose source is gone", oneRead, 0, 0, nil, iwarp.CodeRDMAPLocal, rdma.WCRemOpErr},
	{"atomic", oneAtomic, 0, 0, nil, iwarp.CodeProtectionAccess, rdma.WCRemAccessErr},
	{"misaligned atomic", misplaced, 0, 0, nil, iwarp.CodeOperationOther, rdma.WCRemInvReqErr},
	{"aligned atomic", oneAtomic, 0, 0, nil, iwarp.CodeOperationOther, rdma.WCRemOpErr},
	{"unknown atomic", oneAtomic, 0, 0, withoutContent, iwarp.CodeOpcode, rdma.WCRemInvReqErr},
	{
		"READ beyond the peer's IRD", readAndMore, 1, 1, withoutContent, iwarp.CodeUntaggedNoBuffer,
		rdma.WCRemInvReqErr,
	},
	{
		"READ by its number", oneRead, 0, 0, withoutContent, iwarp.CodeProtectionSTag,
		rdma.WCRemAccessErr,
	},
	{
		"READ with a wrong number, as of Soft-iWARP", oneRead, 0, 0, numbered(8),
		iwarp.CodeProtectionBounds, rdma.WCRemAccessErr,
	},
	{
		"READ that was not asked for", oneRead, 0, 0,
		func(t *iwarp.Terminate) { copy(t.RDMAP, "\x00\x00\x00\x63") },
		iwarp.CodeProtectionBounds, flushed,
	},
	{
		"number of a request to come", oneRead, 0, 0,
		func(t *iwarp.Terminate) { withoutContent(t); numbered(9)(t) },
		iwarp.CodeProtectionBounds, flushed,
	},
	{
		"atomic with the number of a READ", readAndMore, 0, 2,
		func(t *iwarp.Terminate) { withoutContent(t); numbered(2)(t) },
		iwarp.CodeProtectionBounds, flushed,
	},
	{
		"WRITE", oneRead, 0, 0,
		func(t *iwarp.Terminate) {
			h := iwarp.Header{Opcode: iwarp.OpcodeWrite, Last: true, STag: 7}
			t.DDP, t.RDMAP = h.Append(nil), nil
		},
		iwarp.CodeTaggedSTag, flushed,
	},
	{
		"no header", oneRead, 0, 0, func(t *iwarp.Terminate) { t.DDP, t.RDMAP = nil, nil },
		iwarp.CodeProtectionSTag, flushed,
	},
}

const flushed = rdma.WCWRFlushErr

// numbered changes the MSN.
func numbered(msn uint32) func(*iwarp.Terminate) {
	return func(t *iwarp.Terminate) { binary.BigEndian.PutUint32(t.DDP[10:], msn) }
}

// TestTerminate_NamedRequest_FailsWithItsStatus: a READ or an atomic that the peer refuses fails as
// it would on InfiniBand where the Terminate proves that it is about that one.
func TestTerminate_NamedRequest_FailsWithItsStatus(t *testing.T) {
	for i := range verdicts {
		x := &verdicts[i]
		t.Run(x.name, func(t *testing.T) { x.run(t) })
	}
}

// afterReadAsRTR is an initiator whose ready-to-receive message was a READ, which has the first
// number.
func afterReadAsRTR(t *testing.T) *raw {
	r := newRaw(t, true, nodeConfig{params: Params{IRD: 8, ORD: 8, RTR: RTRRead}})
	r.frame()
	r.say(frameBytes(iwarp.Frame{
		IsReply: true, Revision: 2, Enhanced: true, LargeFPDU: true,
		Setup: iwarp.Setup{IRD: 8, ORD: 8, PeerToPeer: true, RTRRead: true},
	}))
	r.say(fpdu(iwarp.Header{Opcode: iwarp.OpcodeReadResponse, Last: true, STag: rtrSTag}, nil))
	if all := r.hear(); len(all) != 1 || all[0].header.MSN != 1 || r.n.q.State() != rdma.QPStateRTS {
		t.Fatalf("not connected: %v, %v", all, r.n.events)
	}
	return r
}

func (x *verdict) run(t *testing.T) {
	r := afterReadAsRTR(t)
	for i, w := range x.waiting {
		w.WRID = uint64(i)
		r.n.post(r.now, w, r.n.at(8*i, 8))
	}
	last := len(x.waiting)
	r.n.post(r.now, wqeOf(rdma.WRWrite, uint64(last)), r.n.at(100, 8))
	r.drain()
	asked := r.hear()
	if len(asked) != last+1 {
		t.Fatalf("%d messages", len(asked))
	}
	for i := range x.answered {
		q, _ := iwarp.ParseReadRequest(asked[i].payload)
		h := iwarp.Header{Opcode: iwarp.OpcodeReadResponse, Last: true, STag: q.SinkSTag}
		r.say(fpdu(h, make([]byte, 8)))
		wantStatus(t, r.n.sends.take(), rdma.WCSuccess)
	}
	term := iwarp.Terminate{
		Code: x.code, HasLength: true, DDP: asked[x.of].header.Append(nil), RDMAP: asked[x.of].payload,
	}
	if x.edit != nil {
		x.edit(&term)
	}
	r.say(fpdu(iwarp.Header{Opcode: iwarp.OpcodeTerminate, Last: true, MSN: 1}, term.Append(nil)))
	want := slices.Repeat([]rdma.WCStatus{flushed}, last+1)
	want[x.of] = x.want
	got := r.n.sends.take()
	wantStatus(t, got, want[x.answered:]...)
	named := abi.Vendor(got[x.of-x.answered].VendorErr) == abi.VendorTerminate
	if named != (x.want != flushed) {
		t.Errorf("vendor error %#x", got[0].VendorErr)
	}
	if c := r.n.causes; len(c) != 1 || x.want != flushed &&
		(c[0].Status != x.want || c[0].WRID != uint64(x.of)) {
		t.Errorf("evidence %+v", c)
	}
}
