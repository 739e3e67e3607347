package check

import (
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// speech is the bytes of one direction.
type speech struct {
	bytes []byte
	marks iwarp.Marks
	// markers: the other side wants them; crc: both use CRCs.
	markers, crc bool
}

func (s *speech) frame(f *iwarp.Frame) { s.bytes = f.Append(s.bytes) }

// say appends an FPDU.
func (s *speech) say(h iwarp.Header, payload ...byte) {
	ulpdu := append(h.Append(nil), payload...)
	b := iwarp.AppendULPDULen(nil, len(ulpdu))
	b = iwarp.AppendPad(append(b, ulpdu...), iwarp.PadLen(len(ulpdu)))
	s.marks.StartFPDU()
	if s.markers {
		b = s.marks.Append(nil, b)
		if s.marks.Run() == 0 {
			b = s.marks.Marker().Append(b)
			s.marks.PassMarker()
		}
		s.marks.Advance(iwarp.CRCLen)
	}
	crc := uint32(0)
	if s.crc {
		crc = iwarp.UpdateCRC(0, b)
	}
	s.bytes = append(s.bytes, iwarp.AppendCRC(b, crc)...)
}

func sendHeader(msn, mo uint32, last bool) iwarp.Header {
	return iwarp.Header{Opcode: iwarp.OpcodeSend, MSN: msn, MO: mo, Last: last}
}

func readRequest(msn uint32, stag uint32, n uint32) (iwarp.Header, []byte) {
	x := iwarp.ReadRequest{SinkSTag: 7, Length: n}
	x.SinkTO = uint64(stag)
	return iwarp.Header{Opcode: iwarp.OpcodeReadRequest, MSN: msn, Last: true}, x.Append(nil)
}

// dialogue is a connection whose ends say what a test wants.
type dialogue struct {
	court Court
	wire  *Wire
	says  [2]speech
	marks map[string]int
}

func newDialogue(markers, crc bool, depth uint16) *dialogue {
	d := &dialogue{marks: map[string]int{}}
	d.wire = NewWire(&d.court, "test", func(s string) { d.marks[s]++ }, [2]int{})
	for i := range d.says {
		f := iwarp.Frame{
			IsReply: i == 1, Revision: 2, Enhanced: true, Markers: markers, CRC: crc,
			PrivateData: []byte("hello"),
		}
		f.Setup.IRD, f.Setup.ORD = depth, depth
		d.says[i].markers, d.says[i].crc = markers, crc
		d.says[i].frame(&f)
	}
	return d
}

// flush lets both directions be heard, byte by byte.
func (d *dialogue) flush() {
	for i := range d.says {
		for _, b := range d.says[i].bytes {
			d.wire.Sent(i, []byte{b})
			d.wire.Arrived(i, 1)
		}
		d.says[i].bytes = nil
	}
}

func TestWire_WhatTheRulesAllow_IsAccepted(t *testing.T) {
	for _, markers := range []bool{false, true} {
		for _, crc := range []bool{false, true} {
			d := newDialogue(markers, crc, 2)
			d.flush()
			for i := range uint32(40) {
				a, z := &d.says[0], &d.says[1]
				a.say(sendHeader(2*i+1, 0, false), make([]byte, i)...)
				a.say(sendHeader(2*i+1, i, true), make([]byte, 300)...)
				a.say(iwarp.Header{Opcode: iwarp.OpcodeImmediate, MSN: 2*i + 2, Last: true},
					make([]byte, 8)...)
				h, b := readRequest(i+1, 100*i, 600)
				a.say(h, b...)
				r := iwarp.Header{Opcode: iwarp.OpcodeReadResponse, STag: 7, TO: uint64(100 * i)}
				z.say(r, make([]byte, 400)...)
				r.TO, r.Last = r.TO+400, true
				z.say(r, make([]byte, 200)...)
				d.flush()
			}
			d.wire.Ended(0, false)
			if d.court.HasFailed() {
				t.Errorf("markers %v, CRC %v: %q", markers, crc, d.court.Failures())
			}
			if string(d.wire.Private) != "hello" || markers != (d.marks["marker"] > 0) {
				t.Errorf("private data %q, marks %v", d.wire.Private, d.marks)
			}
		}
	}
}

func writeHeader(to uint64, last bool) iwarp.Header {
	return iwarp.Header{Opcode: iwarp.OpcodeWrite, STag: 9, TO: to, Last: last}
}

func terminate(code iwarp.Code) (iwarp.Header, []byte) {
	x := iwarp.Terminate{Code: code}
	return iwarp.Header{Opcode: iwarp.OpcodeTerminate, MSN: 1, Last: true}, x.Append(nil)
}

// brokenRules has each rule broken once.
//
//tidy:table
var brokenRules = []struct {
	name, want string
	do         func(d *dialogue)
}{
	{"MSN", "has to have MSN 1", func(d *dialogue) { d.says[0].say(sendHeader(2, 0, true)) }},
	{"MO of the first segment", "begins a message", func(d *dialogue) {
		d.says[0].say(sendHeader(1, 4, true))
	}},
	{"MO of the second segment", "has to go on at 3", func(d *dialogue) {
		d.says[0].say(sendHeader(1, 0, false), 1, 2, 3)
		d.says[0].say(sendHeader(1, 4, true))
	}},
	{"TO of the second segment", "has to go on at 0x12", func(d *dialogue) {
		d.says[0].say(writeHeader(0x10, false), 1, 2)
		d.says[0].say(writeHeader(0x10, true), 1, 2)
	}},
	{"messages mixed", "inside of", func(d *dialogue) {
		d.says[0].say(writeHeader(0x10, false), 1, 2)
		d.says[0].say(sendHeader(1, 0, true))
	}},
	{"too many READs", "are under way", func(d *dialogue) {
		for i := range uint32(3) {
			h, b := readRequest(i+1, 0, 0)
			d.says[0].say(h, b...)
		}
	}},
	{"an answer to nothing", "answers no READ", func(d *dialogue) {
		d.says[1].say(iwarp.Header{Opcode: iwarp.OpcodeReadResponse, Last: true})
	}},
	{"an answer elsewhere", "answers a READ to", func(d *dialogue) {
		h, b := readRequest(1, 5, 1)
		d.says[0].say(h, b...)
		d.says[1].say(iwarp.Header{
			Opcode: iwarp.OpcodeReadResponse, Last: true, STag: 7, TO: 6,
		}, 1)
	}},
	{"a short answer", "brings 1 bytes of 2", func(d *dialogue) {
		h, b := readRequest(1, 5, 2)
		d.says[0].say(h, b...)
		d.says[1].say(iwarp.Header{
			Opcode: iwarp.OpcodeReadResponse, Last: true, STag: 7, TO: 5,
		}, 1)
	}},
	{"the wrong atomic", "not the oldest request", func(d *dialogue) {
		q := iwarp.AtomicRequest{ID: 4, Op: iwarp.AtomicFetchAdd}
		d.says[0].say(iwarp.Header{Opcode: iwarp.OpcodeAtomicRequest, MSN: 1, Last: true},
			q.Append(nil)...)
		a := iwarp.AtomicResponse{ID: 5}
		d.says[1].say(iwarp.Header{Opcode: iwarp.OpcodeAtomicResponse, MSN: 1, Last: true},
			a.Append(nil)...)
	}},
	{"behind a Terminate", "behind a Terminate", func(d *dialogue) {
		h, b := terminate(iwarp.CodeUntaggedMSN)
		d.says[0].say(h, b...)
		d.says[0].say(sendHeader(1, 0, true))
	}},
	{"a Terminate about sound bytes", "as they were sent", func(d *dialogue) {
		h, b := terminate(iwarp.CodeMPACRC)
		d.says[0].say(h, b...)
	}},
	{"CRC", "wrong CRC", func(d *dialogue) {
		d.says[0].say(sendHeader(1, 0, true), 1, 2)
		d.says[0].bytes[len(d.says[0].bytes)-1]++
	}},
	{"pad", "pad bytes", func(d *dialogue) {
		s := &d.says[0]
		s.crc, s.markers, d.wire.lanes[0].frame.CRC, d.wire.lanes[1].frame.CRC = false, false, false, false
		d.wire.lanes[1].frame.Markers = false
		s.say(sendHeader(1, 0, true), 1)
		s.bytes[len(s.bytes)-5]++
	}},
	{"marker", "which has to be", func(d *dialogue) {
		d.says[0].bytes = append(d.says[0].bytes, 0, 0, 0, 4)
	}},
	{"FIN inside of an FPDU", "FIN inside", func(d *dialogue) {
		d.says[0].say(sendHeader(1, 0, true), 1, 2)
		d.says[0].bytes = d.says[0].bytes[:10]
		d.flush()
		d.wire.Ended(0, false)
	}},
}

func TestWire_WhatTheRulesForbid_IsFound(t *testing.T) {
	for _, x := range brokenRules {
		d := newDialogue(true, true, 2)
		d.flush()
		x.do(d)
		d.flush()
		if !strings.Contains(strings.Join(d.court.Failures(), "\n"), x.want) {
			t.Errorf("%s: found was %q", x.name, d.court.Failures())
		}
	}
}

func TestWire_ResponderSpeaksFirst_IsFound(t *testing.T) {
	d := &dialogue{}
	d.wire = NewWire(&d.court, "test", func(string) {}, [2]int{})
	for i := range d.says {
		f := iwarp.Frame{IsReply: i == 1, Revision: 2, Enhanced: true}
		f.Setup.PeerToPeer = true
		d.says[i].frame(&f)
	}
	d.flush()
	d.says[1].say(sendHeader(1, 0, true))
	d.flush()
	if !strings.Contains(strings.Join(d.court.Failures(), "\n"), "before the initiator") {
		t.Errorf("found was %q", d.court.Failures())
	}
}

func TestWire_FPDULongerThanAllowed_IsFound(t *testing.T) {
	d := &dialogue{}
	d.wire = NewWire(&d.court, "test", func(string) {}, [2]int{100, 0})
	for i := range d.says {
		d.says[i].frame(&iwarp.Frame{IsReply: i == 1, Revision: 1})
	}
	d.flush()
	d.says[0].say(sendHeader(1, 0, true), make([]byte, 90)...)
	d.flush()
	if !strings.Contains(strings.Join(d.court.Failures(), "\n"), "more than 100") {
		t.Errorf("found was %q", d.court.Failures())
	}
}
