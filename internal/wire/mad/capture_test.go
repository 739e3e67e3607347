package mad

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// captured is how many messages the captures hold, as counted by another program.
var captured = map[Attribute]int{
	AttributeREQ: 35, AttributeREP: 32, AttributeRTU: 32, AttributeREJ: 3,
	AttributeDREQ: 38, AttributeDREP: 37, AttributeSIDRREQ: 1, AttributeSIDRREP: 1,
}

// capturedMAD is a MAD of a capture, with the headers around it.
type capturedMAD struct {
	file    string
	headers ib.Headers
	bytes   []byte
}

// captures returns the MADs of all captures of RoCE v2 traffic.
func captures(t *testing.T) []capturedMAD {
	t.Helper()
	files, err := filepath.Glob("../roce/testdata/rxe-*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	var out []capturedMAD
	for _, name := range append(files, "testdata/host-reject.pcap") {
		for _, frame := range framesOf(t, name) {
			f, err := roce.ParseFrame(frame)
			if errors.Is(err, roce.ErrNotRoCE) {
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m := capturedMAD{file: strings.TrimSuffix(filepath.Base(name), ".pcap")}
			payload, err := m.headers.Parse(f.Packet())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m.headers.BTH.DestQPN == rdma.QPNGSI {
				m.bytes = payload
				out = append(out, m)
			}
		}
	}
	return out
}

// framesOf returns the frames of a classic little-endian capture.
func framesOf(t *testing.T, name string) [][]byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const fileHeader, recordHeader = 24, 16
	var out [][]byte
	for b = b[fileHeader:]; len(b) >= recordHeader; {
		n := binary.LittleEndian.Uint32(b[8:])
		out = append(out, b[recordHeader:recordHeader+n])
		b = b[recordHeader+n:]
	}
	return out
}

// find returns the nth message of a kind in a capture.
func find(t *testing.T, file string, attribute Attribute, m message) Header {
	t.Helper()
	for _, c := range captures(t) {
		h, err := ParseHeader(c.bytes)
		if err != nil || c.file != file || h.Attribute != attribute {
			continue
		}
		if err := m.Parse(c.bytes[HeaderLen:]); err != nil {
			t.Fatal(err)
		}
		return h
	}
	t.Fatalf("no %v in %s", attribute, file)
	return Header{}
}

func TestCapture_EveryMAD_DecodesAndReencodes(t *testing.T) {
	count := map[Attribute]int{}
	for _, c := range captures(t) {
		if len(c.bytes) != Len || c.headers.DETH.QKey != rdma.QKeyGSI {
			t.Errorf("%s: %d bytes, %v", c.file, len(c.bytes), c.headers.DETH)
		}
		h, err := ParseHeader(c.bytes)
		if err != nil {
			t.Fatalf("%s: %v", c.file, err)
		}
		if h.Class != ClassCM || h.ClassVersion != ClassVersionCM || h.Method != MethodSend {
			t.Errorf("%s: %v", c.file, h)
		}
		count[h.Attribute]++
		var m message
		for _, row := range messages {
			if row.attribute == h.Attribute {
				m = row.make()
			}
		}
		if err := m.Parse(c.bytes[HeaderLen:]); err != nil {
			t.Fatalf("%s: %v", c.file, err)
		}
		if got := m.Append(h.Append(nil)); !bytes.Equal(got, c.bytes) {
			t.Errorf("%s: %v built again\n%x, was\n%x", c.file, m, got, c.bytes)
		}
	}
	for a, want := range captured {
		if count[a] != want {
			t.Errorf("%d %v, want %d", count[a], a, want)
		}
		delete(count, a)
	}
	if len(count) != 0 {
		t.Errorf("others: %v", count)
	}
}

func TestCapture_REQ_SaysWhatTheKernelSays(t *testing.T) {
	var m REQ
	h := find(t, "rxe-rping", AttributeREQ, &m)
	if h.TransactionID != 0x000000026f7b94c7 {
		t.Errorf("%v", h)
	}
	gid := func(host byte) rdma.GID {
		return rdma.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: host}
	}
	want := REQ{
		LocalID: 0xc7947b6f, ServiceID: ServiceID(6, 7174), LocalGUID: 0x505400fffe770002,
		LocalQPN: 0x2d, ResponderResources: 1, InitiatorDepth: 1, RemoteResponseTimeout: 20,
		StartPSN: 0x8cf881, LocalResponseTimeout: 20, RetryCount: 7, PKey: 0xffff,
		PathMTU: rdma.MTU1024, RNRRetry: 7, MaxCMRetries: 15,
		Primary: PathRecord{
			LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: gid(2), RemoteGID: gid(3),
			FlowLabel: 0x96b06, HopLimit: 64, AckTimeout: 19,
		},
		PrivateData: m.PrivateData,
	}
	if m != want {
		t.Errorf("%+v,\nwant %+v", m, want)
	}
}

func TestCapture_REP_SaysWhatTheKernelSays(t *testing.T) {
	var m REP
	find(t, "rxe-nvmeof", AttributeREP, &m)
	want := REP{
		LocalID: 0xd5c34f8b, RemoteID: 0x7b481ac0, LocalQPN: 0x12, StartPSN: 0xfbde7c,
		InitiatorDepth: 128, AckDelay: 15, FlowControl: true, RNRRetry: 7,
		LocalGUID: 0x505400fffe770003, PrivateData: m.PrivateData,
	}
	if m != want || m.PrivateData[2] != 0x20 {
		t.Errorf("%+v,\nwant %+v", m, want)
	}
}

func TestCapture_REJ_ReasonsAndPrivateData(t *testing.T) {
	var m REJ
	find(t, "rxe-rping-reject", AttributeREJ, &m)
	if m.Reason != ReasonInvalidServiceID || m.LocalID != 0 || m.Answered != AnsweredREQ {
		t.Errorf("%v", &m)
	}
	find(t, "rxe-vt-reject", AttributeREJ, &m)
	if m.Reason != ReasonConsumer || !bytes.HasPrefix(m.PrivateData[:], []byte("no thanks\x00")) {
		t.Errorf("%v %q", &m, m.PrivateData[:16])
	}
	find(t, "host-reject", AttributeREJ, &m)
	if m.Reason != ReasonConsumer || !bytes.HasPrefix(m.PrivateData[:], []byte("hello\x00")) {
		t.Errorf("%v %q", &m, m.PrivateData[:16])
	}
}

func TestCapture_ServiceQuery_SaysWhatTheKernelSays(t *testing.T) {
	var q SIDRREQ
	find(t, "rxe-udaddy", AttributeSIDRREQ, &q)
	if q.ServiceID != ServiceID(17, 7174) || q.PKey != rdma.PKeyDefault {
		t.Errorf("%v", &q)
	}
	var a SIDRREP
	find(t, "rxe-udaddy", AttributeSIDRREP, &a)
	if a.RequestID != q.RequestID || a.Status != SIDRStatusOK || a.QPN != 0x31 ||
		a.ServiceID != q.ServiceID || a.QKey != 0x01234567 {
		t.Errorf("%v", &a)
	}
}
