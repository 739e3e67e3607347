package telemetry

import "encoding/json"

// qpJSON and snapshotJSON are the JSON of `rnic stat --json`.
type qpJSON struct {
	QPN      uint32            `json:"qpn"`
	Device   string            `json:"device"`
	Type     string            `json:"type"`
	State    string            `json:"state"`
	Program  string            `json:"program"`
	PID      uint32            `json:"pid"`
	Counters map[string]uint64 `json:"counters"`
}

type deviceJSON struct {
	Device   string            `json:"device"`
	Port     int               `json:"port"`
	HW       map[string]uint64 `json:"hw_counters"`
	Counters map[string]uint64 `json:"counters"` // of the port, as in sysfs
}

type snapshotJSON struct {
	deviceJSON                   // the first, for whoever knows of one only
	Devices    []deviceJSON      `json:"devices"`
	Software   map[string]uint64 `json:"software_counters"`
	QPs        []qpJSON          `json:"qps"`
}

// MarshalJSON implements json.Marshaler. A counter with two names is there under both.
func (s Snapshot) MarshalJSON() ([]byte, error) {
	out := snapshotJSON{Software: named(s.Software), QPs: []qpJSON{}}
	for i := range s.Devices {
		d := &s.Devices[i]
		out.Devices = append(out.Devices, deviceJSON{
			Device: d.Name, Port: d.Number, HW: named(d.HW), Counters: named(d.Port),
		})
	}
	out.deviceJSON = out.Devices[0]
	for i := range s.QPs {
		q := &s.QPs[i]
		out.QPs = append(out.QPs, qpJSON{
			q.QPN, q.Device, q.Type, q.State, q.Program, q.PID, named(q.Counters),
		})
	}
	return json.Marshal(out)
}

func named(counters []Counter) map[string]uint64 {
	out := map[string]uint64{}
	for _, c := range counters {
		out[c.Name] = c.Value
		if c.Alias != "" {
			out[c.Alias] = c.Value
		}
	}
	return out
}
