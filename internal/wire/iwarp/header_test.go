package iwarp

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/test/headertest"
)

// headerCase is a header with its bytes as the standard draws them.
type headerCase headertest.Case

func parser[T any, P headertest.Pointer[T]](
	parse func([]byte) (T, error),
) func([]byte) (headertest.Header, error) {
	return headertest.Parser[T, P](parse)
}

func headerCases() []headerCase {
	return []headerCase{
		{
			&Setup{IRD: 0x1234, ORD: 0x2bcd, PeerToPeer: true, RTRRead: true}, "92346bcd",
			"ird=4660 ord=11213 peer_to_peer rtr_read", SetupLen, parser(ParseSetup),
		},
		{
			&Setup{IRD: 1, ORD: 2, RTRSend: true, RTRWrite: true}, "40018002",
			"ird=1 ord=2 rtr_send rtr_write", SetupLen, parser(ParseSetup),
		},
		{new(Marker(0x1234)), "00001234", "Marker{fpduptr=4660}", MarkerLen, parser(ParseMarker)},
		{
			&ReadRequest{SinkSTag: 1, SinkTO: 2, Length: 3, SourceSTag: 4, SourceTO: 5},
			"00000001" + "0000000000000002" + "00000003" + "00000004" + "0000000000000005",
			"ReadRequest{sink=0x00000001+0x2 source=0x00000004+0x5 len=3}",
			ReadRequestLen, parser(ParseReadRequest),
		},
		{
			&AtomicRequest{
				Op: AtomicCompareSwap, ID: 1, STag: 2, TO: 3, Data: 4, DataMask: 5, Compare: 6,
				CompareMask: 7,
			},
			"00000002" + "00000001" + "00000002" + "0000000000000003" + "0000000000000004" +
				"0000000000000005" + "0000000000000006" + "0000000000000007",
			"AtomicRequest{CMP_SWAP id=1 stag=0x00000002 to=0x3 data=0x4/0x5 compare=0x6/0x7}",
			AtomicRequestLen, parser(ParseAtomicRequest),
		},
		{
			&AtomicResponse{ID: 1, Original: 0x0123456789abcdef}, "00000001" + "0123456789abcdef",
			"AtomicResponse{id=1 orig=0x123456789abcdef}",
			AtomicResponseLen, parser(ParseAtomicResponse),
		},
		{
			new(Immediate{1, 2, 3, 4, 5, 6, 7, 8}), "0102030405060708",
			"Immediate{0x0102030405060708}", ImmediateLen, parser(ParseImmediate),
		},
	}
}

func TestHeader_Each_BytesTextAndLengths(t *testing.T) {
	for _, c := range headerCases() {
		headertest.Run(t, headertest.Case(c), ErrTruncated)
	}
}

func TestHeader_ValuesBeyondTheirWidth_DoNotSpill(t *testing.T) {
	setup := Setup{IRD: 0xffff, ORD: 0xffff}
	if got := hex.EncodeToString(setup.Append(nil)); got != "3fff3fff" {
		t.Errorf("Setup is %s", got)
	}
	atomic := AtomicRequest{Op: 0xff}
	if got := hex.EncodeToString(atomic.Append(nil)[:4]); got != "0000000f" {
		t.Errorf("AtomicRequest starts with %s", got)
	}
	h := Header{Opcode: 0xf0 | OpcodeSend}
	if got := hex.EncodeToString(h.Append(nil)[:2]); got != "0143" {
		t.Errorf("Header starts with %s", got)
	}
	marker, err := ParseMarker([]byte{0xff, 0xff, 0x12, 0x37})
	if err != nil || marker != 0x1234 {
		t.Errorf("%v, %v", marker, err)
	}
	if got := hex.EncodeToString(Marker(0x1237).Append(nil)); got != "00001234" {
		t.Errorf("Marker is %s", got)
	}
}

func TestHeader_DDP_BytesAndText(t *testing.T) {
	cases := []struct {
		header     Header
		wire, text string
	}{
		{
			Header{Opcode: OpcodeWrite, Last: true, STag: 0x11223344, TO: 0x0102030405060708},
			"c140" + "11223344" + "0102030405060708",
			"WRITE stag=0x11223344 to=0x102030405060708 last",
		},
		{
			Header{Opcode: OpcodeReadResponse, STag: 1, TO: 2},
			"8142" + "00000001" + "0000000000000002", "READ_RESPONSE stag=0x00000001 to=0x2",
		},
		{
			Header{Opcode: OpcodeSendSolicitedInv, Last: true, STag: 0x11223344, MSN: 5, MO: 6},
			"4146" + "11223344" + "00000000" + "00000005" + "00000006",
			"SEND_SE_INV qn=0 msn=5 mo=6 inv=0x11223344 last",
		},
		{
			Header{Opcode: OpcodeTerminate, Last: true, MSN: 1},
			"4147" + "00000000" + "00000002" + "00000001" + "00000000",
			"TERMINATE qn=2 msn=1 mo=0 last",
		},
		{
			Header{Opcode: OpcodeAtomicResponse, Last: true, MSN: 1},
			"414b" + "00000000" + "00000003" + "00000001" + "00000000",
			"ATOMIC_RESPONSE qn=3 msn=1 mo=0 last",
		},
	}
	for _, c := range cases {
		if got := hex.EncodeToString(c.header.Append(nil)); got != c.wire {
			t.Errorf("%v is %s, want %s", c.header, got, c.wire)
		}
		if got := c.header.String(); got != c.text {
			t.Errorf("prints %q, want %q", got, c.text)
		}
		if got := c.header.Len() * 2; got != len(c.wire) {
			t.Errorf("%v: Len is %d", c.header, got)
		}
	}
}

// genHeader makes headers that have all and only what their opcode sends.
func genHeader(t *rapid.T) Header {
	opcodes := []Opcode{}
	for o := range Opcode(opcodeCount) {
		if o.IsKnown() {
			opcodes = append(opcodes, o)
		}
	}
	h := Header{
		Opcode: rapid.SampledFrom(opcodes).Draw(t, "opcode"),
		Last:   rapid.Bool().Draw(t, "last"),
	}
	info := h.Opcode.Info()
	if info.Tagged || info.Invalidate {
		h.STag = rdma.Key(rapid.Uint32().Draw(t, "stag"))
	}
	if info.Tagged {
		h.TO = rapid.Uint64().Draw(t, "to")
	} else {
		h.MSN = rapid.Uint32().Draw(t, "msn")
		h.MO = rapid.Uint32().Draw(t, "mo")
	}
	return h
}

func TestHeader_Any_RoundTripsWithItsPayload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHeader(t)
		payload := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
		b := append(h.Append(nil), payload...)
		got := Header{Opcode: 99, STag: 99, TO: 99, MSN: 99, MO: 99} // stale
		rest, err := got.Parse(b)
		if err != nil || got != h || !bytes.Equal(rest, payload) {
			t.Fatalf("got %v %x (%v), want %v", got, rest, err, h)
		}
		if cap(rest) != len(rest) {
			t.Fatal("appending to the payload would write on the pad")
		}
	})
}

func TestHeader_ReservedBits_AreNotLookedAt(t *testing.T) {
	want := Header{Opcode: OpcodeSend, MSN: 1, Last: true}
	b := want.Append(nil)
	b[0] |= 0x3c
	b[1] |= 0x30
	copy(b[2:6], "\xff\xff\xff\xff") // an STag to invalidate, and nothing is to be invalidated
	var h Header
	if _, err := h.Parse(b); err != nil || h != want {
		t.Errorf("%v, %v", h, err)
	}
}

func TestHeader_Refused_SaysWithWhatCode(t *testing.T) {
	tagged := Header{Opcode: OpcodeWrite, Last: true}
	untagged := Header{Opcode: OpcodeSend, Last: true, MSN: 1}
	set := func(h Header, at int, value byte) []byte {
		b := h.Append(nil)
		b[at] = value
		return b
	}
	cases := []struct {
		name string
		b    []byte
		want Code
	}{
		{"nothing", nil, CodeDDPLocal},
		{"short tagged", tagged.Append(nil)[:TaggedLen-1], CodeDDPLocal},
		{"short untagged", untagged.Append(nil)[:UntaggedLen-1], CodeDDPLocal},
		{"DDP version of tagged", set(tagged, 0, 0xc0), CodeTaggedVersion},
		{"DDP version of untagged", set(untagged, 0, 0x42), CodeUntaggedVersion},
		{"RDMAP version of tagged", set(tagged, 1, 0x00), CodeRDMAPVersion},
		{"RDMAP version of untagged", set(untagged, 1, 0x83), CodeRDMAPVersion},
		{"unknown opcode", set(untagged, 1, 0x4c), CodeOpcode},
		{"last unknown opcode", set(tagged, 1, 0x4f), CodeOpcode},
		{"tagged Send", set(tagged, 1, 0x43), CodeOpcode},
		{"untagged Write", set(untagged, 1, 0x40), CodeOpcode},
		{"Send on the queue of requests", set(untagged, 9, 1), CodeOpcode},
		{"READ request on the queue of Sends", set(untagged, 1, 0x41), CodeOpcode},
		{"queue 4", set(untagged, 9, 4), CodeUntaggedQN},
		{"queue 2^24", set(untagged, 6, 1), CodeUntaggedQN},
	}
	for _, c := range cases {
		var h Header
		payload, err := h.Parse(c.b)
		got, ok := CodeOf(err)
		if !ok || got != c.want || payload != nil || err.Error() == "" {
			t.Errorf("%s: %v (%v), want %v", c.name, got, err, c.want)
		}
	}
	if _, ok := CodeOf(nil); ok {
		t.Error("no error has a code")
	}
	if _, ok := CodeOf(ErrTruncated); ok {
		t.Error("another error has a code")
	}
}

func TestOpcode_AllValues_HaveTheRowOfTheStandard(t *testing.T) {
	// Queue −1 is a tagged message.
	want := map[Opcode]struct {
		name  string
		queue int
	}{
		0: {"WRITE", -1}, 1: {"READ_REQUEST", 1}, 2: {"READ_RESPONSE", -1}, 3: {"SEND", 0},
		4: {"SEND_INV", 0}, 5: {"SEND_SE", 0}, 6: {"SEND_SE_INV", 0}, 7: {"TERMINATE", 2},
		8: {"IMMEDIATE", 0}, 9: {"IMMEDIATE_SE", 0}, 10: {"ATOMIC_REQUEST", 1},
		11: {"ATOMIC_RESPONSE", 3},
	}
	for i := range 256 {
		o := Opcode(i)
		w, isKnown := want[o]
		if o.IsKnown() != isKnown {
			t.Errorf("%v: known is %v", o, o.IsKnown())
		}
		if !isKnown {
			if got := o.String(); got != fmt.Sprintf("OPCODE_%d", i) {
				t.Errorf("prints %q", got)
			}
			continue
		}
		info := o.Info()
		if o.String() != w.name || info.Tagged != (w.queue < 0) ||
			!info.Tagged && int(info.Queue) != w.queue {
			t.Errorf("%d: %v %+v", i, o, info)
		}
		if wantSE := o == 5 || o == 6 || o == 9; info.Solicited != wantSE {
			t.Errorf("%v: solicited is %v", o, info.Solicited)
		}
		if wantInv := o == 4 || o == 6; info.Invalidate != wantInv {
			t.Errorf("%v: invalidate is %v", o, info.Invalidate)
		}
	}
}

func TestAtomicOp_Unknown_IsPrintedAsNumber(t *testing.T) {
	for op, want := range map[AtomicOp]string{
		0: "FETCH_ADD", 1: "ATOMIC_1", 2: "CMP_SWAP", 15: "ATOMIC_15",
	} {
		if got := op.String(); got != want {
			t.Errorf("%d prints %q", op, got)
		}
	}
}
