package interop

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// What judges the others is judged here.

func TestWiretap_WrongFrame_Complains(t *testing.T) {
	for _, from := range []struct {
		name, src, dst string
		kind           roce.EtherType
	}{
		{"IPv4", hostV4, guestV4, roce.EtherTypeIPv4},
		{"IPv6", hostV6, guestV6, roce.EtherTypeIPv6},
	} {
		f := roce.Frame{Ethernet: roce.Ethernet{Type: from.kind}, Path: roce.Path{
			Src: netip.MustParseAddr(from.src), Dst: netip.MustParseAddr(from.dst),
			SrcPort: 50000, HopLimit: 64, DF: true,
		}}
		f.Payload = roce.AppendICRC(&f.Path, make([]byte, ib.BTHLen+100))
		f.UDPChecksum = roce.UDPChecksum(&f.Path, f.Payload)
		for _, test := range []struct {
			wrong string
			spoil func(f *roce.Frame)
		}{
			{"", func(*roce.Frame) {}},
			{"the UDP checksum", func(f *roce.Frame) { f.Payload[20] ^= 1 }},
			{"the ICRC", func(f *roce.Frame) {
				f.Payload[20] ^= 1
				f.UDPChecksum = roce.UDPChecksum(&f.Path, f.Payload)
			}},
		} {
			spoilt := f
			spoilt.Payload = slices.Clone(f.Payload)
			test.spoil(&spoilt)
			w := &wiretap{}
			if !w.examine(spoilt.Append(nil), ours) {
				t.Errorf("%s: not RoCE", from.name)
			}
			got := strings.Join(w.complaints, "; ")
			if !strings.HasPrefix(got, test.wrong) || test.wrong == "" && got != "" {
				t.Errorf("%s: %q, not %q", from.name, got, test.wrong)
			}
		}
	}
}

func TestPerftest_Report_IsFound(t *testing.T) {
	const report = " #bytes     #iterations    BW peak[MB/sec]\n 65536      20          inf   -nan\n"
	for args, found := range map[string]bool{
		"-s 65536 -n 20": true, "-s 65536 -n 200": false, "-s 6553 -n 20": false,
		"-s 65536 -n 10 -q 2": true,
	} {
		wants := perftest("ib_send_bw", args).clientWants
		if regexp.MustCompile(wants).MatchString(report) != found {
			t.Errorf("%s: found is not %v by %s", args, found, wants)
		}
	}
}
