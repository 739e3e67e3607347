package mad

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
)

func TestIPHeader_RoundTrip(t *testing.T) {
	for _, h := range []IPHeader{
		{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddr("10.0.0.2")},
		{netip.MustParseAddrPort("0.0.0.0:65535"), netip.MustParseAddr("255.255.255.255")},
		{netip.MustParseAddrPort("[fd00::1]:4791"), netip.MustParseAddr("fe80::2")},
		{netip.MustParseAddrPort("[::]:0"), netip.MustParseAddr("::1")},
	} {
		b := h.Append(nil)
		if len(b) != IPHeaderLen {
			t.Errorf("%v: %d bytes", h, len(b))
		}
		if got, err := ParseIPHeader(b); err != nil || got != h {
			t.Errorf("%v came back as %v, %v", h, got, err)
		}
	}
}

func TestIPHeader_UnusualAddresses_DoNotPanic(t *testing.T) {
	var zero IPHeader
	mixed := IPHeader{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddr("::1")}
	mapped := IPHeader{netip.MustParseAddrPort("[::ffff:10.0.0.1]:7"), netip.MustParseAddr("10.0.0.2")}
	for _, c := range []struct {
		h       IPHeader
		version byte
	}{{zero, 6}, {mixed, 6}, {mapped, 4}} {
		if b := c.h.Append(nil); b[1]>>4 != c.version {
			t.Errorf("%v has version %d", c.h, b[1]>>4)
		}
	}
}

func TestIPHeader_BadBytes_AreRefused(t *testing.T) {
	h := IPHeader{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddr("10.0.0.2")}
	good := h.Append(nil)
	if _, err := ParseIPHeader(good[:IPHeaderLen-1]); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	for _, c := range []struct {
		at int
		v  byte
		ok bool
	}{{0, 0x10, false}, {0, 0x01, true}, {1, 0x50, false}, {1, 0x00, false}, {1, 0x4f, true}} {
		b := append([]byte(nil), good...)
		b[c.at] = c.v
		if _, err := ParseIPHeader(b); (err == nil) != c.ok {
			t.Errorf("byte %d = 0x%02x: %v", c.at, c.v, err)
		}
	}
}

// TestIPHeader_KernelBytes compares with what a kernel's rdma_cm put into a REQ.
func TestIPHeader_KernelBytes(t *testing.T) {
	for text, want := range map[string]string{
		"0040d1000000000000000000000000000a4d00020000000000000000000000000a4d0003": "10.77.0.2:53504",
		"0060c7cdfd770000000000000000000000000002fd770000000000000000000000000003": "[fd77::2]:51149",
	} {
		b, _ := hex.DecodeString(text)
		h, err := ParseIPHeader(b)
		if err != nil || h.Source.String() != want {
			t.Errorf("%s: %v, %v", text, h, err)
		}
		if got := hex.EncodeToString(h.Append(nil)); got != text {
			t.Errorf("%s came back as %s", text, got)
		}
	}
}

func TestServiceID_IPPorts(t *testing.T) {
	if got := ServiceID(6, 7174); got != 0x0000000001061c06 {
		t.Errorf("%016x", got)
	}
	protocol, port, ok := SplitServiceID(0x0000000001111c06)
	if protocol != 17 || port != 7174 || !ok {
		t.Errorf("%d %d %t", protocol, port, ok)
	}
	if _, _, ok := SplitServiceID(0x1000000001061c06); ok {
		t.Error("a service outside the range of IP ports was taken for one")
	}
}
