package pcap

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

func TestSealer_AnyPieces_EveryFPDUGetsItsCRC(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var plain, want []byte
		for range random.IntN(6) + 1 {
			begin := len(want)
			ulpdu := make([]byte, random.IntN(40)) // none at all is an FPDU, too
			for i := range ulpdu {
				ulpdu[i] = byte(random.Uint32())
			}
			want = append(iwarp.AppendULPDULen(want, len(ulpdu)), ulpdu...)
			want = iwarp.AppendPad(want, iwarp.PadLen(len(ulpdu)))
			plain = iwarp.AppendCRC(append(plain[:begin:begin], want[begin:]...), 0)
			want = iwarp.AppendCRC(want, iwarp.UpdateCRC(0, want[begin:]))
		}
		var s sealer
		for at := 0; at < len(plain); {
			n := min(1+random.IntN(20), len(plain)-at)
			s.seal(plain[at : at+n])
			at += n
		}
		if !bytes.Equal(plain, want) {
			t.Fatalf("%x, want %x", plain, want)
		}
		if s != (sealer{}) {
			t.Fatalf("behind an FPDU: %+v", s)
		}
	}
}

// dissected is all that tshark has to say of a file.
func dissected(t *testing.T, file []byte) string {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	name := filepath.Join(t.TempDir(), "capture.pcapng")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tshark, "-r", name, "--disable-protocol", "rpcordma", "-V").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// inPieces sends a message of one FPDU as an engine does that has its payload by reference, without
// a CRC.
func (c *conversation) inPieces(op iwarp.Opcode, size int) {
	h := iwarp.Header{Opcode: op, Last: true, STag: 0x1234, TO: 0x10000, MSN: c.clientSends + 1}
	c.clientSends++
	head := h.Append(nil)
	n := len(head) + size
	c.send(true, append(iwarp.AppendULPDULen(nil, n), head...))
	c.send(true, bytes.Repeat([]byte{0x41}, size))
	c.send(true, iwarp.AppendCRC(iwarp.AppendPad(nil, iwarp.PadLen(n)), 0))
}

func TestStreams_Joined_TsharkSeesGoodCRCs(t *testing.T) {
	for _, x := range []struct {
		name           string
		joined, late   bool
		request, reply iwarp.Frame
		good           int // FPDUs of five with a good CRC
	}{
		{name: "from the beginning", joined: true, request: iwarp.Frame{CRC: true}, good: 5},
		{name: "asked for by the reply", joined: true, reply: iwarp.Frame{CRC: true}, good: 5},
		{name: "late", joined: true, late: true, request: iwarp.Frame{CRC: true}, good: 5},
		{name: "through TCP, as it is", request: iwarp.Frame{CRC: true}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := converse(streamAddresses[0][0], streamAddresses[0][1], true)
			c.client.Joined, c.server.Joined = x.joined, x.joined
			out := newSink()
			capture := newTestCapture(out, nil)
			if !x.late {
				c.taps.Add(capture)
			}
			c.open()
			x.request.Revision, x.reply.Revision, x.reply.IsReply = 2, 2, true
			c.send(true, x.request.Append(nil))
			c.send(false, x.reply.Append(nil))
			if x.late {
				c.inPieces(iwarp.OpcodeWrite, 5000)
				c.taps.Add(capture)
			}
			for range 4 {
				c.inPieces(iwarp.OpcodeWrite, 5001)
			}
			c.inPieces(iwarp.OpcodeSend, 9)
			c.end()
			capture.End()
			<-out.closed
			text := dissected(t, out.Bytes())
			good, bad := strings.Count(text, "Good CRC"), strings.Count(text, "Bad CRC")
			if good != x.good || bad != 5-x.good {
				t.Errorf("tshark sees %d good CRCs and %d bad ones", good, bad)
			}
		})
	}
}
