package verbs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Case E09: a status says what was seen and what is likely wrong; case E08: it keeps the wr_id.
func TestStatusError_E08_E09_SaysWhatWhereAndWhy(t *testing.T) {
	for _, tc := range []struct {
		wc   WC
		is   error
		want []string
	}{
		{
			WC{ID: 42, QPN: 0x11, Status: WCRemAccessErr, Evidence: Evidence(abi.VendorNak) | 0x62<<8},
			ErrRemoteAccess,
			[]string{
				"request 42", "0x000011", "remote access error", "NAK: remote access",
				"wrong or outdated rkey",
			},
		},
		{
			WC{Status: WCRetryExcErr, Evidence: Evidence(abi.VendorAckTimeout)},
			ErrRetryExceeded,
			[]string{"transport retry counter", "no answer within timeout", "not ready"},
		},
		{
			WC{Status: WCRetryExcErr, Evidence: Evidence(abi.VendorNoNIC)},
			ErrRetryExceeded,
			[]string{"no NIC at the peer's address", "rdma_rxe is not running"},
		},
		{
			WC{Status: WCRNRRetryExcErr, Evidence: Evidence(abi.VendorRNR)},
			ErrRNRRetryExceeded,
			[]string{"rnr_retry ran out", "posted no receive"},
		},
		{
			WC{Status: WCWRFlushErr, Evidence: Evidence(abi.VendorFlushed)},
			ErrFlushed,
			[]string{"flushed", "QP was in error before"},
		},
		{WC{Status: WCFatalErr, Evidence: 200}, nil, []string{"fatal error", "0xc8"}},
	} {
		err := tc.wc.Err()
		var status *StatusError
		if !errors.As(err, &status) || status.ID != tc.wc.ID || status.Status != tc.wc.Status {
			t.Fatalf("%+v gives %v", tc.wc, err)
		}
		if tc.is != nil && !errors.Is(fmt.Errorf("send: %w", err), tc.is) {
			t.Errorf("%v is not %v", err, tc.is)
		}
		if errors.Is(err, ErrLocalLength) {
			t.Errorf("%v is a length error", err)
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
	}
	if err := (&WC{ID: 1}).Err(); err != nil {
		t.Errorf("success gives %v", err)
	}
}

func TestEvidence_EveryCode_HasWords(t *testing.T) {
	for v := abi.VendorNak; v <= abi.VendorFlushed; v++ {
		if s := Evidence(v).String(); s == "" || strings.HasPrefix(s, "vendor error") {
			t.Errorf("code %d reads %q", v, s)
		}
	}
}

func TestRefusal_Keeps_ErrnoReasonAndVerb(t *testing.T) {
	n, c := openFake(t)
	n.deny(abi.OpAllocPD, syscall.ENOMEM, "limit of 9 domains")
	_, err := c.AllocPD()
	var refusal *Refusal
	if !errors.Is(err, syscall.ENOMEM) || !errors.As(err, &refusal) {
		t.Fatalf("refused with %v", err)
	}
	for _, want := range []string{"allocate protection domain", "limit of 9 domains"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestEndpoint_Text_RoundTrips(t *testing.T) {
	for _, addr := range []string{"10.1.2.3", "fe80::1", "2001:db8::5"} {
		want := Endpoint{
			QPN: 0x123456, PSN: 0xfedcba, MTU: MTU1024, QKey: 0x80010000,
			GID: rdma.GIDFromAddr(netip.MustParseAddr(addr)),
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Endpoint
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("%s reads as %+v, %v", text, got, err)
		}
	}
}

func FuzzEndpoint_Unmarshal_AcceptsOnlyWhatItWrites(f *testing.F) {
	f.Add("000011/0001ff/1024/11111111/::ffff:10.1.2.3")
	f.Add("ffffff/ffffff/4096/ffffffff/fe80::1%eth0")
	f.Add("1/2/3")
	f.Fuzz(func(t *testing.T, text string) {
		var e, again Endpoint
		if e.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(e.String())); err != nil || again != e {
			t.Errorf("%q reads as %+v, its own text as %+v, %v", text, e, again, err)
		}
	})
}

// grhOf builds the 40 bytes that a receiver of a datagram finds in front.
func grhOf(src, dst netip.Addr, tos byte, flow uint32, rubbish byte) []byte {
	b := make([]byte, GRHBytes)
	if src.Is6() {
		b[0], b[1] = 0x60|tos>>4, tos<<4|byte(flow>>16)
		b[2], b[3] = byte(flow>>8), byte(flow)
		copy(b[8:], src.AsSlice())
		copy(b[24:], dst.AsSlice())
		return b
	}
	for i := range b[:20] {
		b[i] = rubbish
	}
	v4 := b[20:]
	v4[0], v4[1] = 0x45, tos
	copy(v4[12:], src.AsSlice())
	copy(v4[16:], dst.AsSlice())
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(v4[i])<<8 | uint32(v4[i+1])
	}
	sum = sum>>16 + sum&0xffff
	sum = ^(sum>>16 + sum&0xffff)
	v4[10], v4[11] = byte(sum>>8), byte(sum)
	return b
}

func TestParseGRH_TellsIPv4FromIPv6(t *testing.T) {
	v4a, v4b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	// An address whose last four bytes look like the start of an IPv4 header.
	v6a, v6b := netip.MustParseAddr("fd00::4500:54"), netip.MustParseAddr("fd00::2")
	for _, tc := range []struct {
		name     string
		grh      []byte
		src, dst netip.Addr
		flow     uint32
	}{
		{"IPv4", grhOf(v4a, v4b, 0x28, 0, 0), v4a, v4b, 0},
		{"IPv4 after bytes like IPv6", grhOf(v4a, v4b, 0x28, 0, 0x60), v4a, v4b, 0},
		{"IPv6", grhOf(v6a, v6b, 0x28, 0xabcde, 0), v6a, v6b, 0xabcde},
	} {
		back, to, ok := parseGRH(tc.grh)
		want := AHAttr{DGID: rdma.GIDFromAddr(tc.src), TrafficClass: 0x28, FlowLabel: tc.flow}
		if !ok || back != want || to != rdma.GIDFromAddr(tc.dst) {
			t.Errorf("%s: %+v to %v, %v", tc.name, back, to, ok)
		}
	}
	if _, _, ok := parseGRH(make([]byte, GRHBytes)); ok {
		t.Error("zeros pass for a header")
	}
}
