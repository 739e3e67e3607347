package abi

import (
	"reflect"
	"testing"
)

func TestCause_Words_RoundTripWithoutPadding(t *testing.T) {
	var want Cause
	v := reflect.ValueOf(&want).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Array {
			for j := range f.Len() {
				f.Index(j).SetUint(uint64(16*i + j + 1))
			}
			continue
		}
		f.SetUint(uint64(i + 1))
	}
	words := PutCause(&want)
	if got := TakeCause(&words); got != want {
		t.Errorf("%+v reads as %+v", want, got)
	}
	refusal := PostRefusal{
		Count: 3, Error: 22, WRID: 1 << 40, Opcode: 128, Text: [104]uint8{'a', 103: 'z'},
	}
	var b [PostRefusalBytes]byte
	EncodePostRefusal(b[:], &refusal)
	var back PostRefusal
	if DecodePostRefusal(b[:], &back); back != refusal {
		t.Errorf("%+v reads as %+v", refusal, back)
	}
	if n := uint64(words[1])<<32 | uint64(words[0]); n != 1 {
		t.Errorf("the first %d words are %#x, want the number", CauseNumberWords, n)
	}
	if n := reflect.TypeFor[Cause]().Size(); n != CauseBytes {
		t.Errorf("a cause has %d bytes", n)
	}
	if n := reflect.TypeFor[PostRefusal]().Size(); n != PostRefusalBytes {
		t.Errorf("a refusal has %d bytes", n)
	}
	if OffQPRefusal < OffQPCause+CauseBytes || OffQPRefusal+PostRefusalBytes > QueueHeaderBytes ||
		OffQPCause < OffRQDoorbell+4 {
		t.Error("the areas overlap")
	}
}
