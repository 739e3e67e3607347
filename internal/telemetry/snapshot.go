package telemetry

import (
	"maps"
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/daemon"
	"github.com/softrnic/softrnic/internal/nic"
)

// Counter is one value that only grows while the NIC runs.
type Counter struct {
	Name  string
	Alias string // what mlx5 calls it; empty where that is the same or nothing
	Value uint64
}

// QP is the counters of one queue pair, with what identifies it.
type QP struct {
	QPN      uint32
	Device   string
	Type     string
	State    string
	Program  string
	PID      uint32
	Counters []Counter
}

// Device is the counters of one device.
type Device struct {
	Name   string
	Number int // of the port
	// HW has the counters of the device, Port those of the wire.
	HW, Port []Counter
}

// Snapshot is the counters of a NIC at one moment, each list in the order in which to show it.
type Snapshot struct {
	// Devices are at least one. What the NIC counts for none of them is counted for the first, or
	// for that of iWARP where it is about TCP.
	Devices []Device
	// Software has what only a NIC made of software has to count.
	Software []Counter
	QPs      []QP
}

// aliases are mlx5's names of counters that rxe names otherwise.
//
//tidy:table
var aliases = map[string]string{
	"out_of_seq_request":     "out_of_sequence",
	"rcvd_seq_err":           "packet_seq_err",
	"rcvd_rnr_err":           "rnr_nak_retry_err",
	"retry_exceeded_err":     "req_transport_retries_exceeded",
	"retry_rnr_exceeded_err": "req_rnr_retries_exceeded",
}

// Of takes the counters out of a status.
func Of(s *daemon.Status) Snapshot {
	var out Snapshot
	for i := range s.Devices {
		out.Devices = append(out.Devices, deviceOf(s, i))
	}
	software := maps.Clone(s.Lane)
	delete(software, "prioritised") // a state
	for _, p := range []*daemon.PortStatus{s.Network, s.Mirror} {
		if p == nil {
			continue
		}
		for name, value := range p.Counters {
			software["udp_"+name] += value
		}
	}
	if s.Streams != nil {
		for name, value := range s.Streams.Counters {
			software["socket_"+name] = value
		}
	}
	out.Software = list(software)
	for i := range s.Contexts {
		c := &s.Contexts[i]
		for j := range c.QPs {
			out.QPs = append(out.QPs, queuePair(c, &c.QPs[j]))
		}
	}
	return out
}

// engineCounters are the names of those that each device has.
var engineCounters = func() map[string]struct{} {
	names := map[string]struct{}{}
	new(nic.EngineCounters).Each(func(name string, _ uint64) { names[name] = struct{}{} })
	return names
}()

// deviceOf takes the counters of a device out of a status.
func deviceOf(s *daemon.Status, at int) Device {
	d := &s.Devices[at]
	isStream := d.Transport == nic.TransportIWARP.String()
	counters := map[string]uint64{}
	d.Engine.Each(func(name string, value uint64) { counters[name] = value })
	for name, value := range s.Counters {
		_, isEngine := engineCounters[name]
		isAboutTCP := strings.HasPrefix(name, "tcp_")
		if !isEngine && (isAboutTCP && isStream || !isAboutTCP && at == 0) {
			counters[name] = value
		}
	}
	out := Device{Name: d.Name, Number: 1, HW: list(counters)}
	if isStream {
		out.Port = streamPort(s)
	} else {
		out.Port = port(s)
	}
	return out
}

func queuePair(c *nic.ContextStatus, q *nic.QPStatus) QP {
	out := QP{
		QPN: q.QPN, Device: c.Device, Type: q.Type, State: q.State, Program: c.Program, PID: c.PID,
	}
	add := func(name string, value uint64) {
		out.Counters = append(out.Counters, Counter{name, aliases[name], value})
	}
	q.Counters.Each(add)
	add("retries", q.Retries)
	add("retransmitted_pkts", q.Retransmitted)
	add("rcvd_naks", q.Naks)
	add("errors", q.Errors)
	return out
}

// list sorts counters by name.
func list(counters map[string]uint64) []Counter {
	var out []Counter
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		out = append(out, Counter{name, aliases[name], counters[name]})
	}
	return out
}

// dataUnit is what port_xmit_data and port_rcv_data count in: words of four bytes (IBTA 16.1.3.5).
const dataUnit = 4

// port is the port counters that `perfquery` and /sys/class/infiniband/…/counters have. A NIC
// without a network has sent and received nothing.
func port(s *daemon.Status) []Counter {
	c := map[string]uint64{}
	if s.Network != nil {
		c = s.Network.Counters
	}
	return []Counter{
		{"port_xmit_data", "", c["tx_bytes"] / dataUnit},
		{"port_rcv_data", "", c["rx_bytes"] / dataUnit},
		{"port_xmit_packets", "", c["tx_packets"]},
		{"port_rcv_packets", "", c["rx_packets"]},
		{"port_xmit_discards", "", c["tx_too_long"] + c["tx_unreachable"] + c["tx_forbidden"] +
			c["tx_other_errors"] + s.Lane["tx_dropped_socket_full"]},
		{"port_xmit_wait", "", c["tx_full"]},
		{"port_rcv_errors", "", c["rx_icrc_bad"] + c["rx_short"] + s.Lane["malformed_packets"]},
		{"rx_icrc_encapsulated", "", c["rx_icrc_bad"]},
		{"port_rcv_constraint_errors", "", s.Counters["bad_pkey"]},
	}
}

// streamPort is port for a device over TCP, which has no packets that anybody could count.
func streamPort(s *daemon.Status) []Counter {
	c := map[string]uint64{}
	if s.Streams != nil {
		c = s.Streams.Counters
	}
	return []Counter{
		{"port_xmit_data", "", c["tx_bytes"] / dataUnit},
		{"port_rcv_data", "", c["rx_bytes"] / dataUnit},
		{"port_xmit_wait", "", c["tx_full"]},
	}
}

// Get returns a counter by its name; 0 when there is none.
func (q *QP) Get(name string) uint64 {
	for _, c := range q.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

// Since returns what was counted after another snapshot of the same NIC. A queue pair that is new
// has counted all that it has.
func (s Snapshot) Since(before *Snapshot) Snapshot {
	devices := make([]Device, 0, len(s.Devices))
	for i, d := range s.Devices {
		if i < len(before.Devices) { // else a NIC with other devices took its place
			old := &before.Devices[i]
			d.HW, d.Port = beyond(d.HW, old.HW), beyond(d.Port, old.Port)
		}
		devices = append(devices, d)
	}
	s.Devices = devices
	s.Software = beyond(s.Software, before.Software)
	qps := make([]QP, 0, len(s.QPs))
	for _, q := range s.QPs {
		i := slices.IndexFunc(before.QPs, func(old QP) bool {
			return old.QPN == q.QPN && old.PID == q.PID
		})
		if i >= 0 {
			q.Counters = beyond(q.Counters, before.QPs[i].Counters)
		}
		qps = append(qps, q)
	}
	s.QPs = qps
	return s
}

// beyond subtracts by name. A value that fell is that of another object, counted from 0.
func beyond(now, before []Counter) []Counter {
	old := make(map[string]uint64, len(before))
	for _, c := range before {
		old[c.Name] = c.Value
	}
	out := slices.Clone(now)
	for i := range out {
		if then := old[out[i].Name]; then <= out[i].Value {
			out[i].Value -= then
		}
	}
	return out
}
