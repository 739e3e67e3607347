package iwarp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestFrame_Each_BytesAndText(t *testing.T) {
	key := hex.EncodeToString
	cases := []struct {
		frame      Frame
		wire, text string
	}{
		{
			Frame{Revision: 1, Markers: true, CRC: true, PrivateData: []byte("hi")},
			key([]byte("MPA ID Req Frame")) + "c0010002" + "6869",
			"MPA request rev=1 markers crc private=2",
		},
		{
			Frame{IsReply: true, Revision: 1, Reject: true},
			key([]byte("MPA ID Rep Frame")) + "20010000", "MPA reply rev=1 reject private=0",
		},
		{
			Frame{
				IsReply: true, Revision: 2, Enhanced: true, LargeFPDU: true,
				Setup: Setup{IRD: 1, ORD: 2, PeerToPeer: true, RTRSend: true}, PrivateData: []byte{9},
			},
			key([]byte("MPA ID Rep Frame")) + "18020005" + "c0010002" + "09",
			"MPA reply rev=2 large_fpdu ird=1 ord=2 peer_to_peer rtr_send private=1",
		},
		{
			Frame{Revision: 1, Enhanced: true, Setup: Setup{IRD: 1}}, // which revision 1 has not
			key([]byte("MPA ID Req Frame")) + "00010000", "MPA request rev=1 private=0",
		},
	}
	for _, c := range cases {
		if got := hex.EncodeToString(c.frame.Append(nil)); got != c.wire {
			t.Errorf("%v is %s, want %s", c.frame, got, c.wire)
		}
		if got := c.frame.String(); got != c.text {
			t.Errorf("prints %q, want %q", got, c.text)
		}
	}
}

// genFrame makes frames that have all and only what their revision sends.
func genFrame(t *rapid.T) Frame {
	f := Frame{
		IsReply:  rapid.Bool().Draw(t, "reply"),
		Markers:  rapid.Bool().Draw(t, "markers"),
		CRC:      rapid.Bool().Draw(t, "crc"),
		Reject:   rapid.Bool().Draw(t, "reject"),
		Revision: uint8(rapid.IntRange(1, 2).Draw(t, "revision")),

		LargeFPDU: rapid.Bool().Draw(t, "large"),
	}
	room := PrivateDataMax
	if f.Revision == 2 && rapid.Bool().Draw(t, "enhanced") {
		f.Enhanced = true
		room -= SetupLen
		f.Setup = Setup{
			IRD:        uint16(rapid.IntRange(0, DepthUnknown).Draw(t, "ird")),
			ORD:        uint16(rapid.IntRange(0, DepthUnknown).Draw(t, "ord")),
			PeerToPeer: rapid.Bool().Draw(t, "a"),
			RTRSend:    rapid.Bool().Draw(t, "b"),
			RTRWrite:   rapid.Bool().Draw(t, "c"),
			RTRRead:    rapid.Bool().Draw(t, "d"),
		}
	}
	f.PrivateData = rapid.SliceOfN(rapid.Byte(), 0, room).Draw(t, "private")
	return f
}

// parseFrame reads a frame of the kind that is wanted.
func parseFrame(isReply bool, b []byte) (Frame, int, error) {
	if isReply {
		return ParseReply(b)
	}
	return ParseRequest(b)
}

func TestFrame_Any_RoundTripsAndWaitsForItsLastByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := genFrame(t)
		b := f.Append(nil)
		if len(b) != f.Len() || len(b) > FrameMax {
			t.Fatalf("%d bytes, Len is %d", len(b), f.Len())
		}
		got, n, err := parseFrame(f.IsReply, append(b, "the first FPDU"...))
		if err != nil || n != len(b) || got.String() != f.String() ||
			!bytes.Equal(got.PrivateData, f.PrivateData) || got.Setup != f.Setup {
			t.Fatalf("%v, %d, %v; want %v", got, n, err, f)
		}
		if cap(got.PrivateData) != len(got.PrivateData) {
			t.Fatal("appending to the private data would write on the first FPDU")
		}
		for i := range b {
			if _, n, err := parseFrame(f.IsReply, b[:i]); err != nil || n != 0 {
				t.Fatalf("%d of %d bytes: %d, %v", i, len(b), n, err)
			}
		}
		if _, _, err := parseFrame(!f.IsReply, b); !errors.Is(err, ErrKey) {
			t.Fatalf("the other kind: %v", err)
		}
	})
}

func TestFrame_OtherProtocol_IsRefusedAtTheFirstWrongByte(t *testing.T) {
	streams := []struct {
		bytes string
		wrong int // the byte that gives it away
	}{
		{"GET / HTTP/1.1\r\n", 0},
		{"\x16\x03\x01\x02\x00\x01", 0},     // TLS
		{"M-SEARCH * HTTP/1.1", 1},          // SSDP
		{"MPA ID Rep Frame\x00\x02", 9},     // a reply, and a request is wanted
		{"MPA ID Req Framf", 15},            // almost
		{"mpa id req frame", 0},             // almost
		{"SSH-2.0-OpenSSH_9.2", 0},          //
		{"MPA ID Req\x00Frame\x00\x01", 10}, //
	}
	for _, s := range streams {
		for n := range len(s.bytes) + 1 {
			_, used, err := ParseRequest([]byte(s.bytes[:n]))
			if used != 0 || errors.Is(err, ErrKey) != (n > s.wrong) {
				t.Errorf("%q: %d, %v", s.bytes[:n], used, err)
			}
		}
	}
}

func TestFrame_Malformed_IsRefusedAsSoonAsItShows(t *testing.T) {
	head := "MPA ID Req Frame"
	cases := []struct {
		name, bytes string
		want        error
	}{
		{"revision 0", "\x00\x00", ErrRevision},
		{"revision 3", "\x00\x03", ErrRevision},
		{"513 bytes", "\x00\x01\x02\x01", ErrPrivateData},
		{"65535 bytes", "\x10\x02\xff\xff", ErrPrivateData},
		{"no room for IRD and ORD", "\x10\x02\x00\x03", ErrSetup},
		{"enhanced and empty", "\x10\x02\x00\x00", ErrSetup},
	}
	for _, c := range cases {
		b := []byte(head + c.bytes)
		if _, n, err := ParseRequest(b); n != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
		if _, n, err := ParseRequest(b[:len(b)-1]); n != 0 || err != nil {
			t.Errorf("%s, a byte less: %d, %v", c.name, n, err)
		}
	}
	// Revision 1 reserves the bit S, and what it reserves is not looked at.
	f, n, err := ParseRequest([]byte(head + "\x17\x01\x00\x01x"))
	if err != nil || n != FrameLen+1 || f.Enhanced || string(f.PrivateData) != "x" {
		t.Errorf("%v, %d, %v", f, n, err)
	}
}

func FuzzParseFrame_AppendParse(f *testing.F) {
	request := Frame{Revision: 2, Enhanced: true, Setup: Setup{IRD: 3}, PrivateData: []byte("x")}
	reply := Frame{IsReply: true, Revision: 1, CRC: true, Reject: true}
	f.Add(false, request.Append(nil))
	f.Add(true, append(reply.Append(nil), "more"...))
	f.Add(false, []byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, isReply bool, b []byte) {
		frame, n, err := parseFrame(isReply, b)
		if n < 0 || n > len(b) || n > FrameMax || err != nil && n != 0 {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		if n == 0 {
			if err == nil && len(b) >= FrameMax {
				t.Fatal("waits for ever")
			}
			return
		}
		again, m, err := parseFrame(isReply, frame.Append(nil))
		if err != nil || m != n || again.String() != frame.String() ||
			!bytes.Equal(again.PrivateData, frame.PrivateData) {
			t.Fatalf("%v, %d, %v; want %v, %d", again, m, err, frame, n)
		}
		// Fewer bytes are never refused, for more of them might be what is there now.
		for _, k := range []int{n / 2, n - 1} {
			if _, used, err := parseFrame(isReply, b[:k]); used != 0 || err != nil {
				t.Fatalf("%d bytes: %d, %v", k, used, err)
			}
		}
	})
}

// A refusal without room for the depths is a refusal all the same.
func TestFrame_RefusalWithoutDepths_IsOne(t *testing.T) {
	for _, private := range []string{"\x00\x00", "\x00\x02no"} {
		f, n, err := ParseReply([]byte(replyKey + "\x30\x02" + private))
		if err != nil || n == 0 || !f.Reject || f.Enhanced || string(f.PrivateData) != private[2:] {
			t.Errorf("%q: %v, %d, %v", private, f, n, err)
		}
	}
}
