package nic

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/softrnic/softrnic/internal/engine/work"
)

// Counters is what the NIC has counted since it began, beside what its devices have.
type Counters struct {
	NoQP           uint64 // packets for a QP that does not exist
	Unreachable    uint64 // ICMP port unreachable messages
	StrayDoorbells uint64
	CQOverruns     uint64
	RcvdMAD        uint64 // management datagrams for QP1
	SentMAD        uint64
	BadMAD         uint64 // packets for QP1 that are none
	TurnedAway     uint64 // connection requests that reached no program
	// TCP connections of iWARP: made, taken, refused, and given up for others before they had said
	// anything that makes sense.
	StreamsConnected, StreamsAccepted, StreamsRefused, StreamsDisplaced uint64
	// StreamsNoMPA are those whose peer did not ask for a connection of iWARP, or not in time.
	StreamsNoMPA uint64
}

// engineCounterNames are the names that users of rxe (hw_counters) and mlx5 know; our own names
// where neither has the counter.
//
//tidy:table
var engineCounterNames = [work.CounterCount]string{
	work.CountSentPackets:      "sent_pkts",
	work.CountRcvdPackets:      "rcvd_pkts",
	work.CountSentBytes:        "sent_bytes",
	work.CountRcvdBytes:        "rcvd_bytes",
	work.CountDuplicateRequest: "duplicate_request",
	work.CountOutOfSequence:    "out_of_seq_request",
	work.CountRcvdRNR:          "rcvd_rnr_err",
	work.CountSentRNR:          "send_rnr_err",
	work.CountRcvdSeqErr:       "rcvd_seq_err",
	work.CountSentNak:          "send_nak",
	work.CountAckTimeout:       "local_ack_timeout_err",
	work.CountRetryExceeded:    "retry_exceeded_err",
	work.CountRNRExceeded:      "retry_rnr_exceeded_err",
	work.CountAckDeferred:      "ack_deferred",
	work.CountCompleterSched:   "completer_retry_err",
	work.CountDroppedSilently:  "dropped_pkts",
	work.CountResourceMissing:  "out_of_buffer",
	work.CountECNMarked:        "np_ecn_marked_roce_packets",
	work.CountCNPSent:          "np_cnp_sent",
	work.CountCNPHandled:       "rp_cnp_handled",
	work.CountRDMASends:        "rdma_sends",
	work.CountRDMARecvs:        "rdma_recvs",
	work.CountFlushed:          "cqe_flush_error",
	work.CountBadPKey:          "bad_pkey",
	work.CountBadQKey:          "bad_qkey",
	work.CountSentTerminate:    "sent_terminate",
	work.CountRcvdTerminate:    "rcvd_terminate",
	work.CountBadFPDU:          "bad_fpdu",
	work.CountDirectOps:        "direct_ops",
	work.CountDirectBytes:      "direct_bytes",
}

// Named lists the counters, with those of devices, by name, in no order that matters: it is for
// JSON and tables.
func (c *Counters) Named(devices *EngineCounters) map[string]uint64 {
	out := map[string]uint64{
		"no_such_qp": c.NoQP, "port_unreachable": c.Unreachable,
		"stray_doorbells": c.StrayDoorbells, "cq_overruns": c.CQOverruns,
		"rcvd_mads": c.RcvdMAD, "sent_mads": c.SentMAD, "bad_mads": c.BadMAD,
		"cm_requests_turned_away": c.TurnedAway,
		"tcp_connected":           c.StreamsConnected, "tcp_accepted": c.StreamsAccepted,
		"tcp_refused": c.StreamsRefused, "tcp_displaced": c.StreamsDisplaced,
		"tcp_no_mpa": c.StreamsNoMPA,
	}
	for i, name := range engineCounterNames {
		out[name] = devices[i]
	}
	return out
}

// EngineCounters is what transports count, of a device or of one QP. Its JSON is an object
// with the names of those that are not 0: made outside of the lane, unlike a map.
type EngineCounters [work.CounterCount]uint64

// add adds another's counts.
func (c *EngineCounters) add(o *EngineCounters) {
	for i := range o {
		c[i] += o[i]
	}
}

// Each calls f for every counter in order.
func (c *EngineCounters) Each(f func(name string, value uint64)) {
	for i, name := range engineCounterNames {
		f(name, c[i])
	}
}

// MarshalJSON implements json.Marshaler.
func (c EngineCounters) MarshalJSON() ([]byte, error) {
	out := map[string]uint64{}
	for i, name := range engineCounterNames {
		if c[i] != 0 {
			out[name] = c[i]
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler. Names that it does not know are those of another
// version and left out.
func (c *EngineCounters) UnmarshalJSON(text []byte) error {
	var in map[string]uint64
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("nic: counters of a queue pair: %w", err)
	}
	*c = EngineCounters{}
	for name, value := range in {
		if i := slices.Index(engineCounterNames[:], name); i >= 0 {
			c[i] = value
		}
	}
	return nil
}
