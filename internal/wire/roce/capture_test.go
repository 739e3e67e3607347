package roce

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/softrnic/softrnic/internal/wire/ib"
)

// capturedPackets is how many RoCE v2 packets the captures of the kernel's rxe hold, as counted
// by another program.
const capturedPackets = 2216

// A link that flips bits was between the peers of this capture: the frames, counted from 1, that
// suffered, and the byte of the UDP payload that has a wrong bit.
const corruptCapture = "testdata/rxe-vt-corrupt.pcap"

var corruptFrames = map[int]struct {
	at  int
	bit byte
}{
	14: {381, 1 << 2},
	76: {86, 1 << 0},
}

func TestCapture_EveryPacket_DecodesReencodesVerifies_T07_T09(t *testing.T) {
	files, err := filepath.Glob("testdata/rxe-*.pcap")
	if err != nil {
		t.Fatal(err)
	}
	packets, over6 := 0, 0
	for _, name := range files {
		for i, b := range readPcap(t, name) {
			f, err := ParseFrame(b)
			if errors.Is(err, ErrNotRoCE) {
				continue
			}
			if err != nil {
				t.Errorf("%s frame %d: %v", name, i+1, err)
				continue
			}
			packets++
			if !f.Path.Is4() {
				over6++
			}
			if _, corrupt := corruptFrames[i+1]; corrupt && name == corruptCapture {
				continue
			}
			checkCapturedEncoding(t, &f, b)
			checkCapturedICRC(t, &f)
			if t.Failed() {
				t.Fatalf("%s frame %d: %s", name, i+1, &f)
			}
		}
	}
	if packets != capturedPackets {
		t.Errorf("%d RoCE v2 packets, want %d", packets, capturedPackets)
	}
	if over6 == 0 {
		t.Error("no packet over IPv6")
	}
}

func TestCapture_PacketsCorruptedOnTheLink_AreBad(t *testing.T) {
	frames := readPcap(t, corruptCapture)
	for number, fault := range corruptFrames {
		f, err := ParseFrame(frames[number-1])
		if err != nil {
			t.Fatal(err)
		}
		hidden := f.Path
		hidden.IPID = 0
		for _, p := range []*Path{&f.Path, &hidden} {
			if v := CheckICRC(p, f.Payload); v != Bad {
				t.Errorf("frame %d: ICRC is %v", number, v)
			}
		}
		f.Payload[fault.at] ^= fault.bit
		checkCapturedICRC(t, &f)
	}
}

// checkCapturedEncoding takes the frame apart to the last header and builds it again.
func checkCapturedEncoding(t *testing.T, f *Frame, wire []byte) {
	t.Helper()
	var h ib.Headers
	payload, err := h.Parse(f.Packet())
	if err != nil {
		t.Errorf("transport packet: %v", err)
		return
	}
	info := h.BTH.Opcode.Info()
	if !info.Payload.Allows(len(payload), 4096) && info.Payload != ib.PayloadFull {
		t.Errorf("%d bytes of payload are illegal", len(payload))
	}
	built := *f
	built.Payload = append(h.Append(nil), payload...)
	built.Payload = ib.AppendPad(built.Payload, h.BTH.PadCount)
	built.Payload = AppendICRC(&built.Path, built.Payload)
	if got := built.Append(nil); !bytes.Equal(got, wire) || built.Len() != len(wire) {
		t.Errorf("built again\n%x, was\n%x", got, wire)
	}
}

// checkCapturedICRC checks the ICRC with the IP ID known and hidden, of the packet as it is and
// with one bit wrong.
func checkCapturedICRC(t *testing.T, f *Frame) {
	t.Helper()
	hidden := f.Path
	hidden.IPID = 0
	wantHidden := GoodUpToIPID
	if hidden == f.Path {
		wantHidden = Good
	}
	if v := CheckICRC(&f.Path, f.Payload); v != Good {
		t.Errorf("ICRC is %v", v)
	}
	if v := CheckICRC(&hidden, f.Payload); v != wantHidden {
		t.Errorf("ICRC with the ID hidden is %v, want %v", v, wantHidden)
	}
	for _, at := range []int{0, 5, 11, len(f.Payload) / 2, len(f.Payload) - 1} {
		bad := bytes.Clone(f.Payload)
		bad[at] ^= 0x10
		if v := CheckICRC(&f.Path, bad); v == Good {
			t.Errorf("ICRC is good with byte %d wrong", at)
		}
		if v := CheckICRC(&hidden, bad); v != Bad {
			t.Errorf("ICRC with the ID hidden is %v with byte %d wrong", v, at)
		}
	}
}
