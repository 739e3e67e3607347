package telemetry

import (
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// collector tells Prometheus the present counters, each time that it asks.
type collector struct {
	read func() (Snapshot, error)
}

// Describe implements prometheus.Collector: that it describes nothing lets it have other metrics
// in another version of the NIC.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.read()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		collectFamily(out, d, family{"rnic_hw_", "of the device: ", d.HW})
		collectFamily(out, d, family{"rnic_", "of the port, on the wire: ", d.Port})
	}
	collectFamily(out, &s.Devices[0], family{
		"rnic_software_", "of the NIC's software: ", s.Software,
	})
	for i := range s.QPs {
		collectQP(out, &s.QPs[i])
	}
}

// family is counters of one kind; their names begin in the same way.
type family struct {
	prefix, what string
	counters     []Counter
}

func collectFamily(out chan<- prometheus.Metric, d *Device, f family) {
	for _, counter := range f.counters {
		desc := prometheus.NewDesc(f.prefix+counter.Name+"_total", help(f.what, counter),
			[]string{"device", "port"}, nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(counter.Value),
			d.Name, strconv.Itoa(d.Number))
	}
}

func collectQP(out chan<- prometheus.Metric, q *QP) {
	labels := []string{"device", "qpn", "type", "program", "pid"}
	for _, counter := range q.Counters {
		desc := prometheus.NewDesc("rnic_qp_"+counter.Name+"_total",
			help("of a queue pair: ", counter), labels, nil)
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(counter.Value),
			q.Device, fmt.Sprintf("%#06x", q.QPN), q.Type, q.Program, strconv.Itoa(int(q.PID)))
	}
}

func help(what string, c Counter) string {
	text := "Counter " + what + c.Name
	switch {
	case c.Alias != "":
		text += " (mlx5: " + c.Alias + ")"
	case c.Name == "port_xmit_data" || c.Name == "port_rcv_data":
		text += ", in words of four bytes"
	}
	return text
}

func registry(read func() (Snapshot, error)) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{read}) // it fails for what is registered twice
	return r
}

// Handler serves what read returns to Prometheus, each time it comes.
func Handler(read func() (Snapshot, error)) http.Handler {
	return promhttp.HandlerFor(registry(read), promhttp.HandlerOpts{})
}

// WritePrometheus writes a snapshot in the text format that Prometheus, the node exporter's
// textfile collector among it, reads.
func WritePrometheus(out io.Writer, s Snapshot) error {
	families, err := registry(func() (Snapshot, error) { return s, nil }).Gather()
	if err != nil {
		return fmt.Errorf("telemetry: gather counters: %w", err)
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(out, family); err != nil {
			return fmt.Errorf("telemetry: write counters: %w", err)
		}
	}
	return nil
}
