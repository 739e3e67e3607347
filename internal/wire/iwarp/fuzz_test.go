package iwarp

import (
	"bytes"
	"testing"
)

// seedULPDUs gives a fuzz target the ULPDUs of a capture of every kind of message.
func seedULPDUs(f *testing.F) {
	seen := map[Opcode]bool{}
	eachFPDU(f, func(_ *conversation, _, ulpdu []byte) {
		var h Header
		if _, err := h.Parse(ulpdu); err == nil && !seen[h.Opcode] {
			seen[h.Opcode] = true
			f.Add(ulpdu)
		}
	})
	for _, o := range []Opcode{OpcodeImmediateSolicited, OpcodeAtomicRequest, OpcodeAtomicResponse} {
		h := Header{Opcode: o, Last: true, MSN: 1}
		f.Add(append(h.Append(nil), make([]byte, o.Info().ContentLen)...))
	}
}

func FuzzHeader_ParseAppendParse(f *testing.F) {
	seedULPDUs(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Header
		payload, err := h.Parse(b)
		if err != nil {
			code, ok := CodeOf(err)
			if !ok || !code.IsKnown() {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		if len(payload) != len(b)-h.Len() || !h.Opcode.IsKnown() {
			t.Fatalf("%v: %d of %d bytes", h, len(payload), len(b))
		}
		built := append(h.Append(nil), payload...)
		if rest, err := again.Parse(built); err != nil || again != h || !bytes.Equal(rest, payload) {
			t.Fatalf("%v, %v; want %v", again, err, h)
		}
		parseContent(t, h.Opcode, payload)
	})
}

// parseContent parses what has a layout of its own, twice.
func parseContent(t *testing.T, o Opcode, payload []byte) {
	t.Helper()
	var err error
	var built []byte
	switch o.Info().Kind {
	case KindReadRequest:
		r, e := ParseReadRequest(payload)
		err, built = e, r.Append(nil)
	case KindAtomicRequest:
		r, e := ParseAtomicRequest(payload)
		err, built = e, r.Append(nil)
		if again, _ := ParseAtomicRequest(built); again != r {
			t.Fatalf("%v, want %v", again, r)
		}
		built = payload[:min(len(payload), AtomicRequestLen)] // it has reserved bits
	case KindAtomicResponse:
		r, e := ParseAtomicResponse(payload)
		err, built = e, r.Append(nil)
	case KindImmediate:
		r, e := ParseImmediate(payload)
		err, built = e, r.Append(nil)
	default:
		return
	}
	n := o.Info().ContentLen
	if (err == nil) != (len(payload) >= n) {
		t.Fatalf("%v of %d bytes: %v", o, len(payload), err)
	}
	if err == nil && !bytes.Equal(built, payload[:n]) {
		t.Fatalf("%v: %x, want %x", o, built, payload[:n])
	}
}

func FuzzTerminate_ParseAppendParse(f *testing.F) {
	eachFPDU(f, func(_ *conversation, _, ulpdu []byte) {
		var h Header
		if payload, err := h.Parse(ulpdu); err == nil && h.Opcode == OpcodeTerminate {
			f.Add(payload)
		}
	})
	regular := Terminate{Code: CodeMPACRC}
	f.Add(regular.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Terminate
		if m.Parse(b) != nil {
			return
		}
		if n := len(m.DDP); n != 0 && n != TaggedLen && n != UntaggedLen {
			t.Fatalf("DDP header of %d bytes", n)
		}
		built := m.Append(nil)
		if len(built) > len(b) {
			t.Fatalf("%d bytes of %d", len(built), len(b))
		}
		if err := again.Parse(built); err != nil || again.String() != m.String() {
			t.Fatalf("%v, %v; want %v", again, err, m)
		}
	})
}

// FuzzStream_Walk walks any bytes as a receiver does, with and without markers: nothing may panic,
// stand still or read beyond what is there.
func FuzzStream_Walk(f *testing.F) {
	for _, c := range conversations(f, "siwcrc-rping.pcap") {
		f.Add(false, c.request[FrameLen+SetupLen:])
		f.Add(true, c.reply[FrameLen+SetupLen:])
	}
	f.Fuzz(func(t *testing.T, hasMarkers bool, b []byte) {
		var m Marks
		for len(b) > 0 {
			m.StartFPDU()
			if hasMarkers && m.Run() == 0 {
				if _, err := ParseMarker(b); err != nil {
					return
				}
				m.PassMarker()
				b = b[MarkerLen:]
			}
			n, ok := ParseULPDULen(b)
			if !ok {
				return
			}
			size := FPDULen(n)
			if hasMarkers {
				size = m.MarkedLen(size)
			}
			if size < FPDUMin || size > len(b) {
				return
			}
			var h Header
			_ = IsCRCGood(b[:size])
			if _, err := h.Parse(b[ULPDULenLen:][:n]); err != nil {
				if _, ok := CodeOf(err); !ok {
					t.Fatal(err)
				}
			}
			for left := size; left > 0 && hasMarkers; {
				if m.Run() == 0 {
					m.PassMarker()
					left -= MarkerLen
					continue
				}
				step := min(left, m.Run())
				m.Advance(step)
				left -= step
			}
			b = b[size:]
		}
	})
}

func TestParseAndAppend_OfDataPath_AllocateNothing(t *testing.T) {
	buffer := make([]byte, 0, 4096)
	payload := make([]byte, 1000)
	frame := Frame{Revision: 2, Enhanced: true}
	terminate := Terminate{Code: CodeTaggedSTag, HasLength: true}
	terminate.DDP, terminate.RDMAP = refused(OpcodeReadRequest)
	request := ReadRequest{Length: 1}
	atomic := AtomicRequest{ID: 1}
	n := testing.AllocsPerRun(100, func() {
		var m Marks
		h := Header{Opcode: OpcodeWrite, Last: true}
		b := h.Append(AppendULPDULen(buffer[:0], TaggedLen+len(payload)))
		b = AppendPad(append(b, payload...), PadLen(TaggedLen+len(payload)))
		b = AppendCRC(b, UpdateCRC(0, b))
		if _, err := h.Parse(b[ULPDULenLen:]); err != nil || !IsCRCGood(b) {
			t.Fatal(err)
		}
		if _, err := h.Parse(b[ULPDULenLen+1:]); err == nil {
			t.Fatal("payload is a header")
		} else if _, ok := CodeOf(err); !ok {
			t.Fatal(err)
		}
		m.StartFPDU()
		b = m.Append(buffer[:0], payload)
		b = terminate.Append(request.Append(atomic.Append(b[:0])))
		if err := terminate.Parse(b[AtomicRequestLen+ReadRequestLen:]); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ParseRequest(frame.Append(buffer[:0])); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
