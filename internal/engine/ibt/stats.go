package ibt

import (
	"time"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Stats is what tools show of a QP.
type Stats struct {
	SendFetched   uint64 // send work requests taken from the queue
	SendCompleted uint64 // with success or not
	Pending       int    // fetched and not complete
	Unfetched     uint32 // known in the queue beside those
	RecvTaken     uint64 // receives taken from the queue
	RecvCompleted uint64
	InFlight      int           // request packets sent and not acknowledged
	Window        int           // packets allowed in flight
	RTT           time.Duration // smoothed round trip; 0 = unknown
	Retries       uint64        // times the requester went back or gave up
	Timeouts      uint64        // local ACK timeouts
	Probes        uint64        // probes for a lost tail
	Retransmitted uint64        // packets
	Questions     uint64        // whether READ data have left the path
	Naks          uint64        // received, RNR NAKs included
	LastNak       uint8         // AETH syndrome of the last one
	LastNakPSN    rdma.PSN
	CorruptRings  uint64 // ring indices that no library of ours writes
	ReadsActive   int    // READ and atomic replies in progress for the peer
	IsDrained     bool   // everything sent has completed
}

// SendDone returns the index in the send queue below which everything is complete.
//
// Preconditions: there is a send queue.
func (q *QP) SendDone() uint32 { return q.send.doneIndex() }

// Stats returns the present numbers.
func (q *QP) Stats() Stats {
	s := q.stats
	s.Pending = q.send.wrs.Len()
	s.Unfetched = q.send.unfetched
	s.InFlight = int(distance(q.send.una, q.send.high))
	s.Window = int(q.send.window.size)
	s.RTT = q.send.window.rtt
	s.ReadsActive = q.recv.active
	s.IsDrained = q.isDrained()
	return s
}
