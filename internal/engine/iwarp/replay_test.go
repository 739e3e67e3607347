package iwarp

import (
	"cmp"
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/iwarp"
)

// captured returns both directions of the TCP connection in a capture of IPv4 over Ethernet: what
// the side that connected has sent, and the other.
func captured(t *testing.T, name string) (initiator, responder []byte) {
	t.Helper()
	b, err := os.ReadFile("../../wire/iwarp/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	type segment struct {
		seq  uint32
		data []byte
	}
	segments, first := map[uint32][]segment{}, map[uint32]uint32{}
	var ways []uint32 // both port numbers: of the first that connects, and back
	for b = b[24:]; len(b) > 0; {
		n := binary.LittleEndian.Uint32(b[8:])
		ip := b[16:][:n][14:]
		b = b[16+n:]
		tcp := ip[:binary.BigEndian.Uint16(ip[2:])][ip[0]&0xf*4:]
		way, seq := binary.BigEndian.Uint32(tcp), binary.BigEndian.Uint32(tcp[4:])
		if tcp[13]&2 != 0 { // SYN
			first[way] = seq + 1
			ways = append(ways, way)
			continue
		}
		if data := tcp[tcp[12]>>4*4:]; len(data) > 0 {
			segments[way] = append(segments[way], segment{seq - first[way], data})
		}
	}
	streams := [2][]byte{}
	for i, way := range ways[:2] {
		slices.SortStableFunc(segments[way], func(x, y segment) int {
			return cmp.Compare(x.seq, y.seq)
		})
		for _, s := range segments[way] {
			if skip := len(streams[i]) - int(s.seq); skip < len(s.data) {
				streams[i] = append(streams[i], s.data[skip:]...)
			}
		}
	}
	return streams[0], streams[1]
}

// sends counts the Sends in a stream behind its MPA frame, and adds up their bytes.
func sends(t *testing.T, b []byte) (n, total int) {
	t.Helper()
	for len(b) > 0 {
		k, _ := iwarp.ParseULPDULen(b)
		var h iwarp.Header
		p, err := h.Parse(b[iwarp.ULPDULenLen:][:k])
		if err != nil {
			t.Fatal(err)
		}
		if h.Opcode.Info().Kind == iwarp.KindSend {
			total += len(p)
			if h.Last {
				n++
			}
		}
		b = b[iwarp.FPDULen(k):]
	}
	return n, total
}

// TestReplay_LinuxPeers_AreUnderstood gives the engine what both ends of connections between two
// siw of Linux have said.
func TestReplay_LinuxPeers_AreUnderstood(t *testing.T) {
	for _, name := range []string{
		"siw-ib_send_bw-R-64.pcap", "siw-ib_send_bw-R-5000.pcap",
		"siwcrc-ib_send_bw-R-64.pcap", "siwcrc-ib_send_bw-R-5000.pcap",
	} {
		there, back := captured(t, name)
		for i, b := range [][]byte{there, back} {
			hasCRC := name[3] == 'c'
			r := newRaw(t, i == 1, nodeConfig{
				bytes: 64 << 10, entries: 1024, conn: ConnConfig{CRC: hasCRC},
			})
			for id := range uint64(1000) {
				r.n.receive(id, r.n.at(0, 8192))
			}
			parse := iwarp.ParseRequest
			if i == 1 {
				parse = iwarp.ParseReply
			}
			f, skip, err := parse(b)
			if err != nil || f.Revision != 2 || f.CRC != hasCRC {
				t.Fatalf("%s: %v %v", name, f, err)
			}
			want, total := sends(t, b[skip:])
			// The frame on its own: an initiator has to wait for the reply.
			r.say(b[:skip])
			for x := range slices.Chunk(b[skip:], 1448) {
				r.say(x)
			}
			got, bytes := r.n.recvs.take(), 0
			for k := range got {
				bytes += int(got[k].ByteLen)
				if got[k].Status != 0 {
					t.Fatalf("%s: %+v", name, got[k])
				}
			}
			if want == 0 || len(got) != want || bytes != total || r.n.q.State() != rdma.QPStateRTS {
				t.Errorf("%s: %d Sends of %d bytes, want %d of %d; state %v, %v",
					name, len(got), bytes, want, total, r.n.q.State(), r.n.events)
			}
		}
	}
}

// TestReplay_LinuxTerminates_AreUnderstood gives an initiator the Terminates that siw sends.
func TestReplay_LinuxTerminates_AreUnderstood(t *testing.T) {
	for name, want := range map[string]iwarp.Code{
		"siw-vt-bad_rkey_read.pcap":  iwarp.CodeProtectionSTag,
		"siw-vt-bad_rkey_write.pcap": iwarp.CodeTaggedSTag,
		"siw-vt-bound_write.pcap":    iwarp.CodeTaggedBounds,
		"siw-vt-rnr.pcap":            iwarp.CodeUntaggedNoBuffer,
		"siw-vt-short_recv.pcap":     iwarp.CodeUntaggedNoBuffer,
	} {
		_, back := captured(t, name)
		r := newRaw(t, true, nodeConfig{bytes: 64 << 10})
		for id := range uint64(10) {
			r.n.receive(id, r.n.at(0, 8192))
		}
		r.say(back)
		if e := r.n.end(); e.How != HowTerminateReceived || e.Code != want {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestFPDU_Auto_IsLongWhereThePeerTakesIt follows what a peer has said, and what it does.
func TestFPDU_Auto_IsLongWhereThePeerTakesIt(t *testing.T) {
	for _, x := range []struct {
		name     string
		policy   FPDUPolicy
		told     bool // by the bit that siw uses
		received int  // bytes of a Send that came in one FPDU
		isLong   bool
	}{
		{"auto", FPDUAuto, false, 0, false},
		{"auto, told", FPDUAuto, true, 0, true},
		{"auto, shown", FPDUAuto, false, 9000, true},
		{"auto, short ones seen", FPDUAuto, false, 1000, false},
		{"mss, told and shown", FPDUMSS, true, 9000, false},
		{"large", FPDULarge, false, 0, true},
	} {
		r := newRaw(t, false, nodeConfig{conn: ConnConfig{FPDU: x.policy}})
		r.n.receive(1, r.n.at(0, 10_000))
		r.say(request(func(f *iwarp.Frame) { f.LargeFPDU = x.told }))
		if f := r.frame(); f.LargeFPDU != (x.policy != FPDUMSS) {
			t.Errorf("%s: the reply is %v", x.name, f)
		}
		r.say(fpdu(sendHeader(nil), make([]byte, x.received)))
		r.n.post(r.now, remote(wqeOf(rdma.WRWrite, 1), r.n, 0), r.n.at(0, 40_000))
		r.drain()
		if got := len(r.hear()); (got == 1) != x.isLong {
			t.Errorf("%s: a WRITE of 40,000 bytes took %d FPDUs", x.name, got)
		}
	}
}
