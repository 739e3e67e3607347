// Package telemetry shows the counters of a NIC under the names that people know from rxe
// (/sys/class/infiniband/…/hw_counters), mlx5, and the port counters of the InfiniBand
// specification, as a table of values, as JSON, and to Prometheus.
//
//	snapshot := telemetry.Of(&status)
//	for _, c := range snapshot.Devices[0].HW {
//		fmt.Println(c.Name, c.Value)
//	}
//
// Counters of the device count packets wherever they go, those of the port what is on the wire;
// packets between queue pairs of one NIC are on none.
package telemetry
