package nic

import "github.com/softrnic/softrnic/internal/rdma"

// StreamStatus is the TCP connection of a queue pair of iWARP.
type StreamStatus struct {
	Local    string `json:"local_address"`
	Remote   string `json:"remote_address"`
	MSS      int    `json:"mss"`
	FPDUMax  int    `json:"fpdu_max"`
	Revision uint8  `json:"mpa_revision"`
	CRC      bool   `json:"crc"`
	// Markers in what is sent, and in what is received.
	MarkersSent     bool   `json:"markers_sent"`
	MarkersReceived bool   `json:"markers_received"`
	BytesSent       uint64 `json:"bytes_sent"`
	BytesReceived   uint64 `json:"bytes_received"`
	FPDUsSent       uint64 `json:"fpdus_sent"`
	FPDUsReceived   uint64 `json:"fpdus_received"`
	// IsInside says that both ends are of this NIC, and their bytes pass in memory.
	IsInside bool `json:"inside"`
	// Unsent bytes wait for TCP, whose buffer is full where IsFull.
	Unsent int  `json:"unsent"`
	IsFull bool `json:"socket_full"`
}

// status returns nil for no connection.
func (s *stream) status() *StreamStatus {
	if s == nil {
		return nil
	}
	out := &StreamStatus{
		Local: s.local.String(), Remote: s.remote.String(), MSS: s.mss, IsFull: s.isFull,
		IsInside: s.isJoined,
	}
	if s.conn != nil {
		c := s.conn.Stats()
		out.FPDUMax, out.Revision, out.CRC = c.FPDUMax, c.Revision, c.CRC
		out.MarkersSent, out.MarkersReceived = c.MarkersSent, c.MarkersRead
		out.BytesSent, out.BytesReceived = c.BytesSent, c.BytesReceived
		out.FPDUsSent, out.FPDUsReceived, out.Unsent = c.FPDUsSent, c.FPDUsReceived, c.Unsent
	}
	return out
}

// StreamOf returns the TCP connection of a queue pair of iWARP, for captures.
func (n *NIC) StreamOf(qpn rdma.QPN) (StreamID, bool) {
	q := n.qps[qpn]
	if q == nil || q.stream == nil {
		return 0, false
	}
	return q.stream.id, true
}
