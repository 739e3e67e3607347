package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/nic"
)

func sample() daemon.Status {
	var counters nic.EngineCounters
	counters[work.CountSentPackets], counters[work.CountSentBytes] = 7, 700
	counters[work.CountRcvdSeqErr] = 2
	var all nic.Counters
	s := daemon.Status{
		Lane: map[string]uint64{
			"looped_packets": 5, "prioritised": 1, "tx_dropped_socket_full": 4,
			"malformed_packets": 1,
		},
		Network: &daemon.PortStatus{Counters: map[string]uint64{
			"tx_bytes": 4000, "rx_bytes": 402, "tx_packets": 4, "rx_packets": 3, "rx_icrc_bad": 2,
			"tx_too_long": 1, "tx_full": 9,
		}},
	}
	s.Devices = []nic.DeviceStatus{{Name: "rnic0", Transport: "roce", Engine: counters}}
	s.Counters = all.Named(&counters)
	qps := []nic.QPStatus{{
		QPN: 0x12, Type: "RC", State: "RTS", Retries: 3, Naks: 2, Counters: counters,
	}}
	s.Contexts = []nic.ContextStatus{{
		Device: "rnic0", Program: "prog \"x\"", PID: 9, QPs: qps,
	}}
	return s
}

func value(t *testing.T, counters []Counter, name string) uint64 {
	t.Helper()
	for _, c := range counters {
		if c.Name == name {
			return c.Value
		}
	}
	t.Errorf("no counter %s", name)
	return 0
}

func TestOf_PortCounters_AreThoseOfTheWire(t *testing.T) {
	status := sample()
	s := Of(&status)
	for name, want := range map[string]uint64{
		"port_xmit_data": 1000, "port_rcv_data": 100, "port_xmit_packets": 4,
		"port_rcv_packets": 3, "port_xmit_discards": 5, "port_xmit_wait": 9,
		"port_rcv_errors": 3, "rx_icrc_encapsulated": 2,
	} {
		if got := value(t, s.Devices[0].Port, name); got != want {
			t.Errorf("%s is %d, not %d", name, got, want)
		}
	}
	if value(t, s.Devices[0].HW, "sent_pkts") != 7 || value(t, s.Software, "looped_packets") != 5 {
		t.Error("counters of the device or the software differ")
	}
	status.Network = nil
	s = Of(&status)
	if value(t, s.Devices[0].Port, "port_xmit_data") != 0 {
		t.Error("a NIC without a network has sent")
	}
}

// withStreams adds a device of iWARP that has sent 5 packets and 800 bytes of TCP.
func withStreams(s daemon.Status) daemon.Status {
	second := nic.DeviceStatus{Name: "iwarp0", Transport: "iwarp"}
	second.Engine[work.CountSentPackets] = 5
	s.Devices = append(s.Devices, second)
	s.Counters["tcp_accepted"] = 4
	s.Streams = &daemon.StreamStatus{Counters: map[string]uint64{"tx_bytes": 800, "accepted": 3}}
	s.Contexts = append(s.Contexts, nic.ContextStatus{
		Device: "iwarp0", Program: "p", PID: 8, QPs: []nic.QPStatus{{QPN: 0x14, Type: "RC"}},
	})
	return s
}

func TestOf_SeveralDevices_EachHasItsOwn(t *testing.T) {
	status := withStreams(sample())
	s := Of(&status)
	if len(s.Devices) != 2 || s.Devices[1].Name != "iwarp0" || s.Devices[1].Number != 1 {
		t.Fatalf("devices: %+v", s.Devices)
	}
	first, second := &s.Devices[0], &s.Devices[1]
	if value(t, first.HW, "sent_pkts") != 7 || value(t, second.HW, "sent_pkts") != 5 {
		t.Errorf("packets: %+v", s.Devices)
	}
	if value(t, first.HW, "no_such_qp") != 0 || value(t, second.HW, "tcp_accepted") != 4 ||
		slices.ContainsFunc(first.HW, func(c Counter) bool { return c.Name == "tcp_accepted" }) {
		t.Errorf("what is counted for no device: %+v", s.Devices)
	}
	if value(t, first.Port, "port_xmit_data") != 1000 ||
		value(t, second.Port, "port_xmit_data") != 200 {
		t.Error("bytes of one wire are counted for another")
	}
	if value(t, s.Software, "socket_accepted") != 3 || s.QPs[0].Device != "rnic0" ||
		s.QPs[1].Device != "iwarp0" {
		t.Errorf("the rest: %+v", s)
	}
	before := s
	status.Devices[1].Engine[work.CountSentPackets] += 2
	d := Of(&status).Since(&before)
	if value(t, d.Devices[0].HW, "sent_pkts") != 0 || value(t, d.Devices[1].HW, "sent_pkts") != 2 {
		t.Errorf("differences: %+v", d.Devices)
	}
	var out bytes.Buffer
	if err := WritePrometheus(&out, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`rnic_hw_sent_pkts_total{device="rnic0",port="1"} 7`,
		`rnic_hw_sent_pkts_total{device="iwarp0",port="1"} 5`,
		`rnic_port_xmit_data_total{device="iwarp0",port="1"} 200`,
		`rnic_qp_retries_total{device="iwarp0",pid="8",program="p",qpn="0x000014",type="RC"} 0`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}

func TestSnapshot_JSON_FirstDeviceIsAlsoOnTop(t *testing.T) {
	status := withStreams(sample())
	text, err := json.Marshal(Of(&status))
	if err != nil {
		t.Fatal(err)
	}
	type device struct {
		Device string            `json:"device"`
		HW     map[string]uint64 `json:"hw_counters"`
	}
	var got struct {
		device
		Devices []device `json:"devices"`
		QPs     []struct {
			Device string `json:"device"`
		} `json:"qps"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Device != "rnic0" || got.HW["sent_pkts"] != 7 || len(got.Devices) != 2 ||
		got.Devices[0].Device != "rnic0" || got.Devices[1].HW["sent_pkts"] != 5 ||
		len(got.QPs) != 2 || got.QPs[1].Device != "iwarp0" {
		t.Errorf("%s", text)
	}
}

func TestSnapshot_JSON_HasBothNames(t *testing.T) {
	status := sample()
	text, err := json.Marshal(Of(&status))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		HW  map[string]uint64 `json:"hw_counters"`
		QPs []struct {
			QPN      uint32            `json:"qpn"`
			Counters map[string]uint64 `json:"counters"`
		} `json:"qps"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.HW["rcvd_seq_err"] != 2 || got.HW["packet_seq_err"] != 2 {
		t.Errorf("device: %v", got.HW)
	}
	if len(got.QPs) != 1 || got.QPs[0].QPN != 0x12 || got.QPs[0].Counters["sent_bytes"] != 700 ||
		got.QPs[0].Counters["retries"] != 3 {
		t.Errorf("queue pairs: %+v", got.QPs)
	}
}

func TestEngineCounters_JSONRoundTrip(t *testing.T) {
	status := sample()
	want := status.Contexts[0].QPs[0].Counters
	text, err := json.Marshal(&status)
	if err != nil {
		t.Fatal(err)
	}
	var back daemon.Status
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Contexts[0].QPs[0].Counters; got != want {
		t.Errorf("%v, not %v", got, want)
	}
	var c nic.EngineCounters
	if err := json.Unmarshal([]byte(`{"sent_pkts":1,"of_tomorrow":2}`), &c); err != nil ||
		c[work.CountSentPackets] != 1 {
		t.Errorf("%v, %v", c, err)
	}
	if json.Unmarshal([]byte(`{"sent_pkts":-1}`), &c) == nil {
		t.Error("a negative counter is taken")
	}
}

func TestSince_Counters_AreDifferences(t *testing.T) {
	status := sample()
	before := Of(&status)
	status.Devices[0].Engine[work.CountSentPackets] += 10
	status.Network.Counters["tx_packets"]++
	status.Contexts[0].QPs[0].Counters[work.CountSentPackets] += 10
	status.Contexts[0].QPs = append(status.Contexts[0].QPs, nic.QPStatus{QPN: 0x13, Retries: 1})
	d := Of(&status).Since(&before)
	if value(t, d.Devices[0].HW, "sent_pkts") != 10 || value(t, d.Devices[0].HW, "sent_bytes") != 0 ||
		value(t, d.Devices[0].Port, "port_xmit_packets") != 1 {
		t.Errorf("differences: %+v", d)
	}
	if d.QPs[0].Get("sent_pkts") != 10 || d.QPs[0].Get("retries") != 0 ||
		d.QPs[1].Get("retries") != 1 || d.QPs[0].Get("nothing") != 0 {
		t.Errorf("queue pairs: %+v", d.QPs)
	}
	if before.QPs[0].Get("sent_pkts") != 7 {
		t.Error("the snapshot before has changed")
	}
}

func TestWritePrometheus_TextHasLabelsAndTypes(t *testing.T) {
	status := sample()
	var out bytes.Buffer
	if err := WritePrometheus(&out, Of(&status)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE rnic_hw_sent_pkts_total counter",
		`rnic_hw_sent_pkts_total{device="rnic0",port="1"} 7`,
		`rnic_port_xmit_data_total{device="rnic0",port="1"} 1000`,
		`rnic_software_looped_packets_total{device="rnic0",port="1"} 5`,
		`rnic_qp_sent_bytes_total{device="rnic0",pid="9",program="prog \"x\"",` +
			`qpn="0x000012",type="RC"} 700`,
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
}

func TestHandler_EachRequest_ReadsAnew(t *testing.T) {
	status := sample()
	var failure error
	h := Handler(func() (Snapshot, error) { return Of(&status), failure })
	get := func() (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Code, w.Body.String()
	}
	if code, text := get(); code != 200 || !strings.Contains(text, `port="1"} 7`+"\n") {
		t.Errorf("%d %s", code, text)
	}
	status.Devices[0].Engine[work.CountSentPackets] = 8
	if _, text := get(); !strings.Contains(text, `port="1"} 8`+"\n") {
		t.Error("an old value is served")
	}
	failure = errors.New("no NIC")
	if code, text := get(); code != 500 || !strings.Contains(text, "no NIC") {
		t.Errorf("a failure is served as %d %s", code, text)
	}
}
