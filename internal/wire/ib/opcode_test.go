package ib

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
)

// describe prints a row in the form of testdata/opcodes.txt.
func describe(o Opcode) []string {
	info := o.Info()
	var headers, types []string
	names := []string{
		"RDETH", "DETH", "XRCETH", "FETH", "RETH", "AtomicETH", "AETH", "AtomicAckETH", "ImmDt", "IETH",
	}
	for i, n := range names {
		if info.Headers.Has(1 << i) {
			headers = append(headers, n)
		}
	}
	all := []rdma.QPType{
		rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD, rdma.QPTypeXRCRecv, rdma.QPTypeXRCSend,
	}
	for _, t := range all {
		if info.QPTypes.Has(t) {
			types = append(types, t.String())
		}
	}
	dash := func(list []string, sep string) string {
		if len(list) == 0 {
			return "-"
		}
		return strings.Join(list, sep)
	}
	return []string{
		fmt.Sprintf("%02x", uint8(o)),
		o.String(),
		dash(headers, "+"),
		[...]string{"none", "full", "some", "any", "8", "16"}[info.Payload],
		info.Position.String(),
		[...]string{"unknown", "request", "response", "acknowledge", "notification"}[info.Role],
		dash(types, ","),
	}
}

func TestOpcode_All256_MatchTheStandard(t *testing.T) {
	text, err := os.ReadFile("testdata/opcodes.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] != "#" {
			want[f[0]] = f
		}
	}
	for i := range 256 {
		o := Opcode(i)
		row, known := want[fmt.Sprintf("%02x", i)]
		if o.IsKnown() != known {
			t.Errorf("opcode %#02x: known is %t, want %t", i, o.IsKnown(), known)
			continue
		}
		if !known {
			checkUnknown(t, o)
			continue
		}
		if got := describe(o); strings.Join(got, " ") != strings.Join(row, " ") {
			t.Errorf("opcode %#02x:\n got %v\nwant %v", i, got, row)
		}
	}
}

func checkUnknown(t *testing.T, o Opcode) {
	t.Helper()
	if *o.Info() != (OpcodeInfo{Name: "unknown"}) || o.Class() != ClassUnknown {
		t.Errorf("opcode %#02x: unknown, but has a row: %+v", uint8(o), *o.Info())
	}
	if o.IsFirst() || o.IsMiddle() || o.IsLast() || o.IsOnly() || o.IsRequest() || o.IsResponse() {
		t.Errorf("opcode %#02x: unknown, but has a position or role", uint8(o))
	}
	if want := fmt.Sprintf("OPCODE_0x%02x", uint8(o)); o.String() != want {
		t.Errorf("opcode %#02x prints %q, want %q", uint8(o), o, want)
	}
}

func TestOpcode_All256_PredicatesAgreeWithTheName(t *testing.T) {
	for i := range 256 {
		o := Opcode(i)
		if !o.IsKnown() {
			continue
		}
		name := o.Info().Name
		check := func(what string, got, want bool) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %s is %t, want %t", name, what, got, want)
			}
		}
		check("IsFirst", o.IsFirst(), strings.Contains(name, "FIRST"))
		check("IsMiddle", o.IsMiddle(), strings.Contains(name, "MIDDLE"))
		check("IsLast", o.IsLast(), strings.Contains(name, "LAST"))
		check("StartsMessage", o.StartsMessage(), o.IsFirst() || o.IsOnly())
		check("EndsMessage", o.EndsMessage(), !o.IsFirst() && !o.IsMiddle())
		check("HasImm", o.HasImm(), strings.Contains(name, "IMM"))
		check("HasInvalidate", o.HasInvalidate(), strings.HasSuffix(name, "INV"))
		check("IsSend", o.IsSend(), strings.Contains(name, "_SEND"))
		check("IsWrite", o.IsWrite(), strings.Contains(name, "_WRITE") && o != RCAtomicWrite)
		check("IsReadRequest", o.IsReadRequest(), strings.HasSuffix(name, "READ_REQUEST"))
		check("IsReadResponse", o.IsReadResponse(), strings.Contains(name, "READ_RESPONSE"))
		check("IsAcknowledge", o.IsAcknowledge(), strings.Contains(name, "ACKNOWLEDGE"))
		check("IsAtomic", o.IsAtomic(), o.Has(HasAtomicETH))
		check("IsResponse", o.IsResponse(), o.IsAcknowledge() || o.IsReadResponse())
		check("IsRequest", o.IsRequest(), !o.IsResponse() && o != CNP)
		check("HasRETH", o.HasRETH(), o.Has(HasRETH))
		check("HasAETH", o.HasAETH(), o.Has(HasAETH))
		check("class prefix", strings.HasPrefix(name, o.Class().String()), true)
	}
}

func TestOpcode_Constants_HaveTheirNames(t *testing.T) {
	names := map[Opcode]string{
		RCSendFirst: "RC_SEND_FIRST", RCSendLastImm: "RC_SEND_LAST_WITH_IMM",
		RCSendOnlyImm: "RC_SEND_ONLY_WITH_IMM", RCWriteOnlyImm: "RC_WRITE_ONLY_WITH_IMM",
		RCReadRequest: "RC_READ_REQUEST", RCReadResponseOnly: "RC_READ_RESPONSE_ONLY",
		RCAcknowledge: "RC_ACKNOWLEDGE", RCAtomicAcknowledge: "RC_ATOMIC_ACKNOWLEDGE",
		RCCompareSwap: "RC_CMP_SWAP", RCFetchAdd: "RC_FETCH_ADD",
		RCSendLastInv: "RC_SEND_LAST_WITH_INV", RCSendOnlyInv: "RC_SEND_ONLY_WITH_INV",
		RCFlush: "RC_FLUSH", RCAtomicWrite: "RC_ATOMIC_WRITE",
		UCSendFirst: "UC_SEND_FIRST", UCWriteLastImm: "UC_WRITE_LAST_WITH_IMM",
		UDSendOnly: "UD_SEND_ONLY", UDSendOnlyImm: "UD_SEND_ONLY_WITH_IMM", CNP: "CNP",
		XRCSendFirst: "XRC_SEND_FIRST", XRCWriteOnly: "XRC_WRITE_ONLY",
		XRCAcknowledge: "XRC_ACKNOWLEDGE", XRCSendOnlyInv: "XRC_SEND_ONLY_WITH_INV",
		XRCFlush: "XRC_FLUSH",
	}
	for o, want := range names {
		if o.String() != want {
			t.Errorf("opcode %#02x is %s, want %s", uint8(o), o, want)
		}
	}
}

func TestPayloadRule_Boundaries(t *testing.T) {
	const mtu = 1024
	tests := []struct {
		rule    PayloadRule
		allowed []int
		refused []int
	}{
		{PayloadNone, []int{0}, []int{1, mtu}},
		{PayloadFull, []int{mtu}, []int{0, mtu - 1, mtu + 1}},
		{PayloadSome, []int{1, mtu}, []int{0, mtu + 1}},
		{PayloadAny, []int{0, 1, mtu}, []int{-1, mtu + 1}},
		{PayloadEight, []int{8}, []int{0, 7, 9}},
		{PayloadSixteen, []int{16}, []int{0, 15, 17}},
		{PayloadSixteen + 1, nil, []int{0, 1, mtu}},
	}
	for _, tt := range tests {
		for _, n := range tt.allowed {
			if !tt.rule.Allows(n, mtu) {
				t.Errorf("rule %d refuses %d bytes", tt.rule, n)
			}
		}
		for _, n := range tt.refused {
			if tt.rule.Allows(n, mtu) {
				t.Errorf("rule %d allows %d bytes", tt.rule, n)
			}
		}
	}
}
