package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/nic"
)

func TestPrintPs_Objects_AreListedWithTheirOwner(t *testing.T) {
	var out bytes.Buffer
	err := printPs(&out, psReport{Contexts: []nic.ContextStatus{
		{
			Device: "rnic0", Program: "server", PID: 17, UID: 4294967294, PDs: 1,
			MRs: []nic.MRStatus{
				{Handle: 5, PD: 2, Addr: 0x7f0000001000, Length: 131072, Mapped: 65536, Windows: 3},
				{Handle: 6, PD: 2, Kind: "implicit", Length: ^uint64(0), Access: "on_demand"},
			},
			CQs: []nic.CQStatus{{Handle: 3, Entries: 256, Pushed: 99, Overrun: true}},
			QPs: []nic.QPStatus{{
				QPN: 0x1234, Type: "RC", State: "RTS", Remote: "::ffff:10.0.0.2", DestQPN: 0x99,
				PathMTU: 4096, Error: "it hurts",
			}},
		},
		{Device: "iwarp0", Program: "streams", PID: 20, QPs: []nic.QPStatus{{
			QPN: 0x77, Type: "RC", State: "RTS", Stream: &nic.StreamStatus{
				Local: "10.0.0.1:7471", Remote: "10.0.0.9:40000", MSS: 1448, FPDUMax: 1444, Revision: 2,
				CRC: true, MarkersReceived: true, BytesSent: 2048, Unsent: 1024, IsFull: true,
			},
		}, {
			QPN: 0x78, Type: "RC", State: "RTS", Stream: &nic.StreamStatus{
				Local: "10.0.0.1:7471", Remote: "10.0.0.1:40001", MSS: 32741, FPDUMax: 64512,
				Revision: 2, BytesReceived: 5, Unsent: 9, IsFull: true, IsInside: true,
			},
		}}},
		{Program: "idle", PID: 18},
	}, CMIDs: []nic.CMIDStatus{{
		ID: 9, Program: "server", PID: 17, State: "LISTEN", PortSpace: "TCP", Type: "RC",
		Local: "10.0.0.1:7471", WithoutTCP: "port 7471 is taken",
	}, {
		ID: 10, Device: "iwarp0", Program: "client", PID: 19, State: "established",
		PortSpace: "TCP", Type: "RC", Local: "10.0.0.2:40000", Remote: "10.0.0.1:7471",
		QPN: 0x21, DestQPN: 0x22,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"server 17 4294967294 1 2 128 KiB 1 0 1 0 0 0 B",
		"0x001234 server[17] rnic0 RC RTS 10.0.0.2 QP 0x000099 4096 0 0 0 0 it hurts",
		"3 server[17] 256 99 overrun",
		"5 server[17] 2 0x7f0000001000 128 KiB 64 KiB - - 3",
		"6 server[17] 2 0x0 all 0 B on_demand implicit 0",
		"idle 18",
		"9 server[17] any LISTEN TCP RC 10.0.0.1:7471 - - - without iWARP: port 7471 is taken",
		"0x000077 streams[20] iwarp0 RC RTS 10.0.0.9:40000 - 0",
		"0x000077 streams[20] 10.0.0.1:7471->10.0.0.9:40000 2 on received 1448 1444 2 KiB 0 B" +
			" 1 KiB, socket full",
		"0x000078 streams[20] 10.0.0.1:7471->10.0.0.1:40001 2 off off inside 64512 0 B 5 B" +
			" 9 B, receiver waits",
		"client[19] iwarp0 established TCP RC 10.0.0.2:40000 10.0.0.1:7471 0x000021 0x000022",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "SRQ OWNER") {
		t.Errorf("an empty section is printed:\n%s", out.String())
	}
}

// TestPrintPs_ManyContexts_OneRowPerProgram: a program of rdma_cm has a context of librdmacm's and
// often one of its own.
func TestPrintPs_ManyContexts_OneRowPerProgram(t *testing.T) {
	mrs := func(n uint64) []nic.MRStatus { return []nic.MRStatus{{Length: n}} }
	var out bytes.Buffer
	err := printPs(&out, psReport{Contexts: []nic.ContextStatus{
		{
			Program: "rping", PID: 17, PDs: 1, AHs: 2, MWs: 3, DMBytes: 1, MRs: mrs(1024),
			CQs: make([]nic.CQStatus, 1), SRQs: make([]nic.SRQStatus, 1), QPs: make([]nic.QPStatus, 1),
		},
		{Program: "other", PID: 18},
		{
			Program: "rping", PID: 17, PDs: 10, AHs: 20, MWs: 30, DMBytes: 1023, MRs: mrs(1024),
			CQs: make([]nic.CQStatus, 2), SRQs: make([]nic.SRQStatus, 3), QPs: make([]nic.QPStatus, 4),
		},
		{Program: "elsewhere"},
		{Program: "elsewhere"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(out.String(), "\n\n")
	var rows []string
	for _, line := range strings.Split(table, "\n")[1:] {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"rping 17 root 11 2 2 KiB 3 4 5 22 33 1 KiB", "other 18 root 0 0 0 B 0 0 0 0 0 0 B",
		"elsewhere 0 root 0 0 0 B 0 0 0 0 0 0 B", "elsewhere 0 root 0 0 0 B 0 0 0 0 0 0 B",
	}
	if !slices.Equal(rows, want) {
		t.Errorf("the programs are\n%s", table)
	}
}

func TestPrintPs_Nobody_SaysSo(t *testing.T) {
	var out bytes.Buffer
	if err := printPs(&out, psReport{}); err != nil || out.String() != "no program uses the NIC\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestByteCount_Units(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 65536: "64 KiB",
		1 << 20: "1 MiB", 3 << 30: "3 GiB", 1 << 47: "128 TiB",
	} {
		if got := byteCount(n); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
}

func TestPrintErrors_Chain_IsTold(t *testing.T) {
	var out bytes.Buffer
	printErrors(&out, []nic.ErrorStatus{{
		Number: 7, AgeSeconds: 3.2, Kind: nic.ErrorRequest, Program: "client", PID: 17, QPN: 0x1234,
		Chain: []string{"wr_id 5, SEND: it failed", "the peer said no"}, Ended: true,
	}, {Number: 8, Kind: nic.ErrorTurnedAway, Chain: []string{"somebody asked"}}, {
		Number: 9, Kind: nic.ErrorVerb, Program: "probe", PID: 18, Count: 40, AgeSeconds: 2,
		FirstAgeSeconds: 61, Chain: []string{"ibv_create_qp failed"},
	}})
	for _, want := range []string{
		"#7 client[17] (ended), QP 0x001234, work request, 3s ago\n",
		"\n  wr_id 5, SEND: it failed\n    the peer said no\n", "#8 request refused, just now\n",
		"#9 probe[18], verb, 40 times, first 1m1s ago, last 2s ago\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if printErrors(&out, nil); out.String() != "nothing has failed\n" {
		t.Errorf("%q", out.String())
	}
}
