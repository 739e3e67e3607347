package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/telemetry"
)

func counters(sent uint64) telemetry.Snapshot {
	return telemetry.Snapshot{
		Devices: []telemetry.Device{{
			Name: "rnic0", Number: 1,
			HW: []telemetry.Counter{
				{Name: "sent_pkts", Value: sent},
				{Name: "rcvd_seq_err", Alias: "packet_seq_err", Value: 4},
				{Name: "bad_qkey"},
			},
			Port: []telemetry.Counter{{Name: "port_xmit_data", Value: 10 * sent}},
		}, {
			Name: "iwarp0", Number: 1, HW: []telemetry.Counter{{Name: "sent_pkts", Value: 2 * sent}},
		}},
		QPs: []telemetry.QP{{
			QPN: 0x2a, Device: "rnic0", Type: "RC", State: "RTS", Program: "prog", PID: 5,
			Counters: []telemetry.Counter{
				{Name: "sent_pkts", Value: sent},
				{Name: "send_nak", Value: 2},
				{Name: "send_rnr_err", Value: 3},
				{Name: "rcvd_naks"},
			},
		}},
	}
}

func words(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestPrintStat_ValuesWithBothNames(t *testing.T) {
	var out bytes.Buffer
	printStat(&out, counters(100), false)
	text := words(out.String())
	for _, want := range []string{
		"sent_pkts 100", "rcvd_seq_err 4 packet_seq_err", "rnic0 PORT 1 VALUE MLX5 port_xmit_data 1000",
		"0x00002a prog[5] rnic0 RC RTS 100 0 0 0 0 0 5 0",
		"iwarp0 HW_COUNTERS VALUE MLX5 sent_pkts 200",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "bad_qkey") || strings.Contains(text, "QP 0x00002a RC prog[5] VALUE") {
		t.Errorf("more than was asked for:\n%s", out.String())
	}
	out.Reset()
	printStat(&out, counters(100), true)
	text = words(out.String())
	if !strings.Contains(text, "bad_qkey 0") || !strings.Contains(text, "send_rnr_err 3") {
		t.Errorf("not everything:\n%s", out.String())
	}
}

func TestPrintChanges_RatesPerSecond(t *testing.T) {
	var out bytes.Buffer
	before := counters(100)
	printChanges(&out, counters(400).Since(&before), 2*time.Second)
	want := "rnic0 HW_COUNTERS CHANGE PER SECOND sent_pkts 300 150 " +
		"rnic0 PORT 1 CHANGE PER SECOND port_xmit_data 3000 1500 " +
		"iwarp0 HW_COUNTERS CHANGE PER SECOND sent_pkts 600 300 " +
		"QP 0x00002a RC prog[5] CHANGE PER SECOND sent_pkts 300 150"
	if got := words(out.String()); got != want {
		t.Errorf("%s, not\n%s", got, want)
	}
}

func TestMetricsDoor_ServesCountersUntilClosed(t *testing.T) {
	door, err := listenMetrics(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := door.listener.Addr().String()
	if _, err := listenMetrics(t.Context(), address); err == nil ||
		!strings.Contains(err.Error(), "--metrics") {
		t.Errorf("a port that is taken: %v", err)
	}
	alive := true
	door.serve(func() (daemon.Status, bool) {
		s := daemon.Status{Lane: map[string]uint64{"turns": 77}}
		s.Devices = []nic.DeviceStatus{{Name: "rnic0"}}
		return s, alive
	})
	get := func() (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if code, text := get(); code != http.StatusOK ||
		!strings.Contains(text, `rnic_software_turns_total{device="rnic0",port="1"} 77`) {
		t.Errorf("%d %s", code, text)
	}
	alive = false
	if code, _ := get(); code != http.StatusInternalServerError {
		t.Errorf("without a NIC: %d", code)
	}
	door.close()
	http.DefaultClient.CloseIdleConnections()
	if code, text := get(); code != 0 {
		t.Errorf("after close: %d %s", code, text)
	}
	var none *metricsDoor
	none.serve(nil)
	none.close()
}

func TestPause_Interrupted_EndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if !pause(ctx, time.Millisecond) {
		t.Error("a pause that nobody disturbs is said to be disturbed")
	}
	cancel()
	if pause(ctx, time.Hour) {
		t.Error("an interrupted pause is said to be undisturbed")
	}
}
