package verbs

import (
	"testing"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
)

// TestCheckTags_WhatDoesNotFit_IsRefused: a NIC of another make must not crash the program.
func TestCheckTags_WhatDoesNotFit_IsRefused(t *testing.T) {
	good := abi.CreateSRQRsp{
		TagOps: 8, TagStride: abi.TagStride(4), TagOffset: 8192, MaxTags: 8, MaxTagSGE: 4,
		Bytes: 8192 + 8*abi.TagStride(4), Doorbell: 3,
	}
	if err := checkTags(&good, true); err != nil {
		t.Fatal(err)
	}
	for name, bend := range map[string]func(*abi.CreateSRQRsp){
		"no ring":             func(r *abi.CreateSRQRsp) { r.TagOps = 0 },
		"not a power of two":  func(r *abi.CreateSRQRsp) { r.TagOps = 7 },
		"too many operations": func(r *abi.CreateSRQRsp) { r.TagOps = 2 * limits.MaxTagOps },
		"too many entries":    func(r *abi.CreateSRQRsp) { r.MaxTagSGE = limits.MaxTagSGE + 1 },
		"slots too short":     func(r *abi.CreateSRQRsp) { r.TagStride -= 16 },
		"outside":             func(r *abi.CreateSRQRsp) { r.TagOffset += 64 },
		"in the header":       func(r *abi.CreateSRQRsp) { r.TagOffset = 64 },
		"no such doorbell":    func(r *abi.CreateSRQRsp) { r.Doorbell = abi.DoorbellSlots },
	} {
		bad := good
		bend(&bad)
		if checkTags(&bad, true) == nil {
			t.Errorf("%s: taken", name)
		}
		if err := checkTags(&bad, false); err != nil {
			t.Errorf("%s: %v, where nobody asked for tags", name, err)
		}
	}
}
