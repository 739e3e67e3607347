package nic

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/engine/ibt"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// causesKept bounds the log of recent errors.
const causesKept = 64

// causeLog keeps the most recent errors of all QPs, for `rnic ps` and for the shell's log.
type causeLog struct {
	items [causesKept]CauseRecord
	total uint64
}

// CauseRecord is one error with the QP that had it.
type CauseRecord struct {
	Number  uint64 // counts from 1
	At      clock.Time
	Program string
	PID     uint32
	QPN     rdma.QPN
	Cause   ibt.Cause
}

func (l *causeLog) add(q *qp, c ibt.Cause) {
	l.total++
	l.items[l.total%causesKept] = CauseRecord{
		Number: l.total, At: q.nic.now, Program: q.context.cfg.Name, PID: q.context.cfg.PID,
		QPN: q.engine.QPN(), Cause: c,
	}
}

// Causes returns the errors with numbers above since, oldest first, as far as they are kept.
func (n *NIC) Causes(since uint64) []CauseRecord {
	l := &n.causes
	if l.total > causesKept {
		since = max(since, l.total-causesKept)
	}
	var out []CauseRecord
	for i := since + 1; i <= l.total; i++ {
		out = append(out, l.items[i%causesKept])
	}
	return out
}

// vendorText says what the NIC saw, in words.
var vendorText = map[abi.Vendor]string{
	abi.VendorNak:           "the peer refused the request",
	abi.VendorAckTimeout:    "the peer did not answer within timeout and retry_cnt",
	abi.VendorSequence:      "packets were lost again and again until retry_cnt ran out",
	abi.VendorRNR:           "the peer had no receive posted until rnr_retry ran out",
	abi.VendorNoNIC:         "nothing listens on UDP 4791 at the peer's address",
	abi.VendorLocalKey:      "an lkey is unknown, of another PD, or lacks the right",
	abi.VendorLocalBounds:   "a scatter/gather entry lies outside its region",
	abi.VendorLocalFault:    "the program's memory could not be reached",
	abi.VendorLength:        "the message is longer than allowed or than the receive",
	abi.VendorOpcode:        "the operation is not allowed on this QP",
	abi.VendorAddressHandle: "the address handle is unknown or of another PD",
	abi.VendorBadWQE:        "the work request in the queue is malformed",
	abi.VendorBadResponse:   "the peer's response does not fit the request",
	abi.VendorNoRoute:       "the source GID is gone or there is no route",
	abi.VendorRemoteRights:  "the peer lacks the right to the memory it named",
	abi.VendorRDAtomic:      "more READs or atomics than max_rd_atomic allows",
	abi.VendorFlushed:       "flushed because the QP is in error",
	abi.VendorWindow:        "a memory window could not be bound or invalidated",
}

// Text tells an error in one line.
func (r *CauseRecord) Text() string {
	c := &r.Cause
	s := fmt.Sprintf("QP %v of %s[%d]: ", r.QPN, r.Program, r.PID)
	if c.IsResponder {
		s += "peer's request failed: "
	} else if c.Status != rdma.WCSuccess {
		s += fmt.Sprintf("wr_id %#x: %v: ", c.WRID, c.Status)
	}
	s += vendorText[c.Vendor&0xff]
	if c.Syndrome != 0 {
		s += fmt.Sprintf(", AETH syndrome %#02x", c.Syndrome)
	}
	if c.Fault != mem.FaultNone {
		s += fmt.Sprintf(": %v, key %v, address %#x, length %d", c.Fault, c.Key, c.Addr, c.Length)
	}
	if c.Retries != 0 {
		s += fmt.Sprintf(", %d retries", c.Retries)
	}
	return s + fmt.Sprintf(" (PSN %v)", c.PSN)
}
