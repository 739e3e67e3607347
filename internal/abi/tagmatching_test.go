package abi

import (
	"testing"
	"unsafe"
)

func TestCodec_TagWQE_EqualsMemoryLayout(t *testing.T) {
	w := TagWQE{
		WRID: 0x0102030405060708, RecvWRID: 0x1112131415161718, Tag: 0x2122232425262728,
		Mask: 0x3132333435363738, Opcode: 0x41, Flags: 0x42, NumSGE: 0x4344, Unexpected: 0x45464748,
		Handle: 0x51525354, Reserved: 0x55565758,
	}
	var mem struct {
		_ [0]uint64
		b [TagWQEBytes]byte
	}
	EncodeTagWQE(mem.b[:], &w)
	if got := *(*TagWQE)(unsafe.Pointer(&mem.b)); got != w {
		t.Errorf("layout: %+v", got)
	}
	var back TagWQE
	DecodeTagWQE(mem.b[:], &back)
	if back != w {
		t.Errorf("round trip: %+v", back)
	}
}

func TestCQE_Tag_RoundTrips(t *testing.T) {
	var c CQE
	c.SetTag(0x0102030405060708, 0x090a0b0c)
	if tag, context := c.Tag(); tag != 0x0102030405060708 || context != 0x090a0b0c {
		t.Errorf("%#x %#x", tag, context)
	}
}
