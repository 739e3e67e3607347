package iwarp

import (
	"bytes"
	"maps"
	"strings"
	"testing"
)

// captured is how many DDP segments of each kind the captures of the kernel's siw hold, and
// capturedFrames how many MPA frames, as counted by another program.
var captured = map[Opcode]int{
	OpcodeWrite: 213, OpcodeReadRequest: 31, OpcodeReadResponse: 98, OpcodeSend: 561,
	OpcodeSendInvalidate: 27, OpcodeSendSolicited: 3, OpcodeTerminate: 8,
}

const capturedFrames = 90

// capturedTerminates are the Terminates of siw, which has them mirrored, tells the length of the
// payload where that of the segment belongs, and has no other code for a receive that is too short.
var capturedTerminates = map[string]string{
	"siw-vt-bad_rkey_read": "Terminate{RDMAP remote protection error: invalid STag (0x0100) len=0" +
		" of READ_REQUEST}",
	"siw-vt-bound_read": "Terminate{RDMAP remote protection error: base or bounds violation" +
		" (0x0101) len=0 of READ_REQUEST}",
	"siw-vt-bad_rkey_write": "Terminate{DDP tagged buffer error: invalid STag (0x1100) len=64" +
		" of WRITE}",
	"siw-vt-ro": "Terminate{DDP tagged buffer error: invalid STag (0x1100) len=64 of WRITE}",
	"siw-vt-bound_write": "Terminate{DDP tagged buffer error: base or bounds violation (0x1101)" +
		" len=1428 of WRITE}",
	"siw-vt-rnr":         noBuffer,
	"siw-vt-rnr_recover": noBuffer,
	"siw-vt-short_recv":  noBuffer,
}

const noBuffer = "Terminate{DDP untagged buffer error: invalid MSN: no buffer available (0x1202)" +
	" len=1424 of SEND}"

// fpdus calls f with every FPDU of a stream that stands behind an MPA frame.
func fpdus(t testing.TB, file string, stream []byte, f func(fpdu, ulpdu []byte)) {
	t.Helper()
	for len(stream) > 0 {
		n, ok := ParseULPDULen(stream)
		size := FPDULen(n)
		if !ok || size > len(stream) {
			t.Fatalf("%s: FPDU of %d bytes, and %d are there", file, size, len(stream))
		}
		f(stream[:size], stream[ULPDULenLen:][:n])
		stream = stream[size:]
	}
}

// eachFPDU calls f with every FPDU of all captures.
func eachFPDU(t testing.TB, f func(c *conversation, fpdu, ulpdu []byte)) {
	t.Helper()
	for _, c := range conversations(t, "siw*.pcap") {
		if len(c.request) == 0 {
			continue
		}
		_, n, err := ParseRequest(c.request)
		if err != nil || n == 0 {
			t.Fatalf("%s: %d, %v", c.file, n, err)
		}
		_, m, err := ParseReply(c.reply)
		if err != nil || m == 0 {
			t.Fatalf("%s: %d, %v", c.file, m, err)
		}
		fpdus(t, c.file, c.request[n:], func(fpdu, ulpdu []byte) { f(&c, fpdu, ulpdu) })
		fpdus(t, c.file, c.reply[m:], func(fpdu, ulpdu []byte) { f(&c, fpdu, ulpdu) })
	}
}

func TestCapture_EveryMPAFrame_DecodesAndReencodes(t *testing.T) {
	count, rejected := 0, 0
	for _, c := range conversations(t, "siw*.pcap") {
		request, n, err := ParseRequest(c.request)
		if err != nil || n == 0 {
			t.Fatalf("%s: %d, %v", c.file, n, err)
		}
		reply, m, err := ParseReply(c.reply)
		if err != nil || m == 0 {
			t.Fatalf("%s: %d, %v", c.file, m, err)
		}
		for _, f := range []struct {
			frame Frame
			wire  []byte
		}{{request, c.request[:n]}, {reply, c.reply[:m]}} {
			if got := f.frame.Append(nil); !bytes.Equal(got, f.wire) || f.frame.Len() != len(got) {
				t.Errorf("%s: %v built again\n%x, was\n%x", c.file, f.frame, got, f.wire)
			}
			wantCRC := strings.HasPrefix(c.file, "siwcrc-")
			if f.frame.Revision != Revision2 || !f.frame.Enhanced || f.frame.Markers ||
				f.frame.CRC != wantCRC || f.frame.Setup.PeerToPeer {
				t.Errorf("%s: %v", c.file, f.frame)
			}
			count++
		}
		if request.Reject || request.IsReply || !reply.IsReply {
			t.Errorf("%s: %v, %v", c.file, request, reply)
		}
		if reply.Reject {
			rejected++
			if !bytes.HasPrefix(reply.PrivateData, []byte("no thanks\x00")) {
				t.Errorf("%s: private data is %q", c.file, reply.PrivateData)
			}
		}
	}
	if count != capturedFrames || rejected != 1 {
		t.Errorf("%d frames with %d rejects, want %d with 1", count, rejected, capturedFrames)
	}
}

func TestCapture_EveryFPDU_DecodesAndReencodes(t *testing.T) {
	count := map[Opcode]int{}
	eachFPDU(t, func(c *conversation, fpdu, ulpdu []byte) {
		var h Header
		payload, err := h.Parse(ulpdu)
		if err != nil {
			t.Fatalf("%s: %v: %x", c.file, err, ulpdu[:HeaderMax])
		}
		count[h.Opcode]++
		b := AppendULPDULen(nil, h.Len()+len(payload))
		b = h.Append(b)
		b = append(b, recode(t, h.Opcode, payload)...)
		// siw fills the pad of a short message with what was there before.
		b = append(b, fpdu[len(b):len(fpdu)-CRCLen]...)
		if pad := len(b) - ULPDULenLen - len(ulpdu); pad != PadLen(len(ulpdu)) {
			t.Errorf("%s: pad of %v is %d", c.file, h, pad)
		}
		crc := UpdateCRC(0, b)
		if strings.HasPrefix(c.file, "siwcrc-") {
			if !IsCRCGood(fpdu) {
				t.Errorf("%s: CRC of %v is wrong", c.file, h)
			}
		} else {
			crc = 0 // siw has zero bytes there when there is no CRC
		}
		if b = AppendCRC(b, crc); !bytes.Equal(b, fpdu) {
			t.Errorf("%s: %v built again\n%x, was\n%x", c.file, h, b, fpdu)
		}
	})
	for o, want := range captured {
		if count[o] != want {
			t.Errorf("%d %v, want %d", count[o], o, want)
		}
		delete(count, o)
	}
	if len(count) != 0 {
		t.Errorf("others: %v", count)
	}
}

// recode takes the content of a message with a layout apart and builds it again.
func recode(t *testing.T, o Opcode, payload []byte) []byte {
	t.Helper()
	switch o {
	case OpcodeReadRequest:
		r, err := ParseReadRequest(payload)
		if err != nil {
			t.Fatal(err)
		}
		return r.Append(nil)
	case OpcodeTerminate:
		var m Terminate
		if err := m.Parse(payload); err != nil {
			t.Fatal(err)
		}
		if !m.IsMirrored || !m.HasLength || !m.Code.IsKnown() {
			t.Errorf("%+v", m)
		}
		return m.Append(nil)
	}
	return payload
}

func TestCapture_FPDUWithAWrongBit_HasABadCRC(t *testing.T) {
	count := 0
	eachFPDU(t, func(c *conversation, fpdu, _ []byte) {
		if !strings.HasPrefix(c.file, "siwcrc-") {
			return
		}
		count++
		for _, at := range []int{0, 1, len(fpdu) / 2, len(fpdu) - 5, len(fpdu) - 1} {
			bad := bytes.Clone(fpdu)
			bad[at] ^= 0x10
			if IsCRCGood(bad) {
				t.Errorf("%s: CRC is good with byte %d of %d wrong", c.file, at, len(fpdu))
			}
		}
	})
	if count == 0 {
		t.Error("no FPDU with a CRC")
	}
}

func TestCapture_Terminate_SaysWhatTheKernelSays(t *testing.T) {
	want := maps.Clone(capturedTerminates)
	eachFPDU(t, func(c *conversation, _, ulpdu []byte) {
		var h Header
		payload, err := h.Parse(ulpdu)
		if err != nil || h.Opcode != OpcodeTerminate {
			return
		}
		var m Terminate
		if err := m.Parse(payload); err != nil {
			t.Fatal(err)
		}
		file := strings.TrimSuffix(c.file, ".pcap")
		if got := m.String(); got != want[file] {
			t.Errorf("%s: %q, want %q", file, got, want[file])
		}
		delete(want, file)
	})
	if len(want) != 0 {
		t.Errorf("not seen: %v", want)
	}
}
