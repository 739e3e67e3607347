package mad

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
)

// message is what every message of communication management can do.
type message interface {
	Parse(b []byte) error
	Append(b []byte) []byte
	String() string
}

// messages lists them all.
//
//tidy:table
var messages = []struct {
	attribute Attribute
	make      func() message
	len       int
	reserved  []int // bytes without meaning; bits without meaning are in reservedBits
}{
	{AttributeREQ, func() message { return new(REQ) }, DataLen, []int{4, 24, 25, 26, 27}},
	{AttributeMRA, func() message { return new(MRA) }, DataLen, nil},
	{AttributeREJ, func() message { return new(REJ) }, DataLen, nil},
	{AttributeREP, func() message { return new(REP) }, DataLen, nil},
	{AttributeRTU, func() message { return new(RTU) }, DataLen, nil},
	{AttributeDREQ, func() message { return new(DREQ) }, DataLen, []int{11}},
	{AttributeDREP, func() message { return new(DREP) }, DataLen, nil},
	{AttributeSIDRREQ, func() message { return new(SIDRREQ) }, DataLen, []int{6, 7}},
	{AttributeSIDRREP, func() message { return new(SIDRREP) }, DataLen, []int{6, 7, 11}},
	{AttributeLAP, func() message { return new(LAP) }, DataLen, []int{8, 9, 10, 11, 16, 17, 18, 19}},
	{AttributeAPR, func() message { return new(APR) }, DataLen, []int{10, 11}},
	{
		AttributeClassPortInfo, func() message { return new(ClassPortInfo) }, ClassPortInfoLen,
		[]int{32}, // the redirection's hop limit: this byte is reserved, yet kept
	},
}

// reservedBits are the bits without meaning in bytes that have others.
var reservedBits = map[Attribute]map[int]byte{
	AttributeREQ: {
		90: 0x0f, 91: 0xc0, 94: 0x07, 95: 0x07, 134: 0x0f, 135: 0xc0, 138: 0x07, 139: 0x07,
	},
	AttributeMRA: {8: 0x3f, 9: 0x07},
	AttributeREJ: {8: 0x3f, 9: 0x01},
	AttributeREP: {27: 0x0f},
	AttributeLAP: {15: 0x07, 58: 0x0f, 61: 0xc0, 62: 0x07, 63: 0x07},
}

// TestMessages_EachBit_IsKeptOrReserved flips every bit of every message: the bits with a meaning
// come back as they were, the others come back as zero.
func TestMessages_EachBit_IsKeptOrReserved(t *testing.T) {
	for _, row := range messages {
		for at := range row.len {
			for shift := range 8 {
				b := make([]byte, row.len)
				b[at] = 1 << shift
				m := row.make()
				if err := m.Parse(b); err != nil {
					t.Fatal(err)
				}
				got := m.Append(nil)
				want := bytes.Clone(b)
				if isReserved(row.attribute, row.reserved, at, shift) {
					want[at] = 0
				}
				if lengthOf(row.attribute, at) {
					continue // cut to the field's length, see the test below
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%v: byte %d bit %d came back as\n%x", row.attribute, at, shift, got)
				}
			}
		}
	}
}

func isReserved(a Attribute, reserved []int, at, shift int) bool {
	for _, r := range reserved {
		if r == at && a != AttributeClassPortInfo {
			return true
		}
	}
	return reservedBits[a][at]&(1<<shift) != 0
}

// lengthOf reports that the byte is the length of additional information.
func lengthOf(a Attribute, at int) bool {
	switch a {
	case AttributeREJ:
		return at == 9
	case AttributeSIDRREP:
		return at == 5
	case AttributeAPR:
		return at == 8
	}
	return false
}

// The length is cut in both directions: what we send is legal, what we got does not overrun.
func TestMessages_InfoLengthBeyondTheField_IsCut(t *testing.T) {
	b := bytes.Repeat([]byte{0xff}, DataLen)
	var rej REJ
	var rep SIDRREP
	var apr APR
	for _, m := range []message{&rej, &rep, &apr} {
		if err := m.Parse(b); err != nil {
			t.Fatal(err)
		}
	}
	if rej.InfoLen != REJInfoLen || rep.InfoLen != SIDRREPInfoLen || apr.InfoLen != APRInfoLen {
		t.Errorf("lengths %d, %d, %d", rej.InfoLen, rep.InfoLen, apr.InfoLen)
	}
}

func TestMessages_Short_AreTruncated(t *testing.T) {
	for _, row := range messages {
		m := row.make()
		if err := m.Parse(make([]byte, row.len-1)); !errors.Is(err, ErrTruncated) {
			t.Errorf("%v: %v", row.attribute, err)
		}
		if err := m.Parse(nil); !errors.Is(err, ErrTruncated) {
			t.Errorf("%v: %v", row.attribute, err)
		}
	}
}

// TestMessages_OversizedFields_StayInPlace gives every field its type's largest value: what does
// not fit must not spill into neighbours, so parsing gives a value that appends the same.
func TestMessages_OversizedFields_StayInPlace(t *testing.T) {
	for _, row := range messages {
		m := row.make()
		fill(reflect.ValueOf(m).Elem())
		first := m.Append(nil)
		again := row.make()
		if err := again.Parse(first); err != nil {
			t.Fatal(err)
		}
		if got := again.Append(nil); !bytes.Equal(got, first) {
			t.Errorf("%v:\n%x\n%x", row.attribute, got, first)
		}
		if row.attribute == AttributeREQ {
			req := again.(*REQ)
			if req.RemoteEECN != 0xffffff || req.PathMTU != 15 || !req.RDCExists {
				t.Errorf("REQ is %+v", req)
			}
		}
	}
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetUint(1<<v.Type().Bits() - 1)
	}
}

func TestMessages_String_NamesTheMessage(t *testing.T) {
	for _, row := range messages {
		name := row.attribute.String()
		if got := row.make().String(); !strings.HasPrefix(got, name+"{") {
			t.Errorf("%q does not begin with %s", got, name)
		}
	}
}

func TestMessages_ParseAndAppend_DoNotAllocate(t *testing.T) {
	b := make([]byte, DataLen)
	out := make([]byte, 0, DataLen)
	for _, row := range messages {
		m := row.make()
		if n := testing.AllocsPerRun(20, func() {
			_ = m.Parse(b)
			out = m.Append(out[:0])
		}); n != 0 {
			t.Errorf("%v allocates %v times", row.attribute, n)
		}
	}
}

func TestHeader_RoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		h := Header{
			Class: Class(r.Uint32()), ClassVersion: uint8(r.Uint32()), Method: Method(r.Uint32()),
			Status: Status(r.Uint32()), ClassSpecific: uint16(r.Uint32()),
			TransactionID: r.Uint64(), Attribute: Attribute(r.Uint32()), Modifier: r.Uint32(),
		}
		b := h.Append(nil)
		if len(b) != HeaderLen {
			t.Fatalf("%d bytes", len(b))
		}
		got, err := ParseHeader(append(b, make([]byte, DataLen)...))
		if err != nil || got != h {
			t.Fatalf("%v, %v, want %v", got, err, h)
		}
	}
}

func TestHeader_BadBytes_AreRefused(t *testing.T) {
	good := make([]byte, Len)
	good[0] = BaseVersion
	if _, err := ParseHeader(good); err != nil {
		t.Error(err)
	}
	if _, err := ParseHeader(good[:Len-1]); !errors.Is(err, ErrTruncated) {
		t.Errorf("255 bytes: %v", err)
	}
	good[0] = 0x80
	if _, err := ParseHeader(good); !errors.Is(err, ErrVersion) {
		t.Errorf("base version 0x80: %v", err)
	}
}

func TestTransport_XRC_IsTypeThreeExtendedOne(t *testing.T) {
	m := REQ{Transport: TransportXRC}
	b := m.Append(nil)
	if b[43] != 3<<1 || b[51] != 1 {
		t.Errorf("bytes %#x, %#x", b[43], b[51])
	}
}

// TestReason_EveryCode_HasAName: the codes are 1 to 33 and 35; nothing else has a name.
func TestReason_EveryCode_HasAName(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reason(100) {
		known := r >= 1 && r <= 33 || r == 35
		if unknown := strings.HasPrefix(r.String(), "unknown"); unknown == known || seen[r.String()] {
			t.Errorf("reason %d is %q", uint16(r), r)
		}
		seen[r.String()] = true
	}
}

func TestClassPortInfo_Fields_StandWhereTheStandardSays(t *testing.T) {
	m := ClassPortInfo{
		BaseVersion: 1, ClassVersion: 2, Capabilities: CapabilityRC, ResponseTime: 20,
		Redirect: ManagerAddress{FlowLabel: 0xabcde, SL: 5, TrafficClass: 7, QPN: 1},
		Trap:     ManagerAddress{HopLimit: 64, QPN: 0xfffffe, QKey: rdma.QKeyGSI},
	}
	b := m.Append(nil)
	be := binary.BigEndian
	if b[0] != 1 || b[1] != 2 || be.Uint16(b[2:]) != 1<<9 || be.Uint32(b[4:]) != 20 ||
		be.Uint32(b[24:]) != 0x075abcde || be.Uint32(b[32:]) != 1 ||
		be.Uint32(b[64:]) != 0x40fffffe || be.Uint32(b[68:]) != 0x80010000 {
		t.Errorf("%x", b)
	}
}

func FuzzMessages(f *testing.F) {
	for i := range messages {
		b := make([]byte, DataLen)
		for at := range b {
			b[at] = byte(at * 7)
		}
		f.Add(i, b)
	}
	f.Fuzz(func(t *testing.T, which int, b []byte) {
		row := messages[uint(which)%uint(len(messages))]
		m := row.make()
		if m.Parse(b) != nil {
			return
		}
		first := m.Append(nil)
		again := row.make()
		if err := again.Parse(first); err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%v: %v then %v (%v)", row.attribute, m, again, err)
		}
		if len(first) != row.len || m.String() != again.String() {
			t.Fatalf("%d bytes", len(first))
		}
	})
}
