package netio

import "sync/atomic"

// Counter names one count that a port keeps.
type Counter uint8

// Counters of ports and decorators.
const (
	RxPackets Counter = iota
	RxBytes
	RxBatches
	RxICRCBad
	RxICRCPartial
	RxShort
	RxSocketDropped
	RxErrors
	TxPackets
	TxBytes
	TxBatches
	TxSegmentedSends
	TxFull
	TxTooLong
	TxUnreachable
	TxForbidden
	TxOtherErrors
	Unreachables
	FaultLost
	FaultDuplicated
	FaultReordered
	FaultCorrupted
	FaultDelayed
	FaultOverrun
	CaptureErrors
	counterCount
)

// CounterInfo describes a counter to exporters and people.
type CounterInfo struct {
	Name string // stable: [a-z_]
	Help string
}

//tidy:table
var counterTable = [counterCount]CounterInfo{
	RxPackets:        {"rx_packets", "packets received with a right ICRC"},
	RxBytes:          {"rx_bytes", "bytes of those from BTH to ICRC"},
	RxBatches:        {"rx_batches", "socket messages that carried them"},
	RxICRCBad:        {"rx_icrc_bad", "packets dropped for a wrong ICRC"},
	RxICRCPartial:    {"rx_icrc_partial", "packets right but for an IPv4 identification unseen here"},
	RxShort:          {"rx_short", "packets dropped for being shorter than BTH and ICRC"},
	RxSocketDropped:  {"rx_socket_dropped", "packets that the kernel dropped: socket buffer full"},
	RxErrors:         {"rx_errors", "receive calls that failed"},
	TxPackets:        {"tx_packets", "packets handed to the wire"},
	TxBytes:          {"tx_bytes", "bytes of those from BTH to ICRC"},
	TxBatches:        {"tx_batches", "socket messages that carried them"},
	TxSegmentedSends: {"tx_segmented_sends", "socket messages with more than one packet"},
	TxFull:           {"tx_full", "sends put off because the socket was full"},
	TxTooLong:        {"tx_too_long", "packets dropped for exceeding the path MTU (EMSGSIZE)"},
	TxUnreachable:    {"tx_unreachable", "packets dropped for want of a route or address"},
	TxForbidden:      {"tx_forbidden", "packets dropped by a local firewall (EPERM)"},
	TxOtherErrors:    {"tx_other_errors", "packets dropped for another error"},
	Unreachables:     {"unreachable_reports", "ICMP reports that a peer has no NIC or no route"},
	FaultLost:        {"fault_lost", "packets lost on purpose"},
	FaultDuplicated:  {"fault_duplicated", "packets doubled on purpose"},
	FaultReordered:   {"fault_reordered", "packets held back for others to overtake, on purpose"},
	FaultCorrupted:   {"fault_corrupted", "packets damaged on purpose"},
	FaultDelayed:     {"fault_delayed", "packets delayed on purpose"},
	FaultOverrun:     {"fault_overrun", "packets lost because too many were held back"},
	CaptureErrors:    {"capture_errors", "packets that could not be written to the capture file"},
}

// Info describes the counter.
func (c Counter) Info() CounterInfo { return counterTable[c] }

func (c Counter) String() string { return counterTable[c].Name }

// Counters is one set of counts. The zero value is ready. One thread adds; any may read: each
// value is exact, but values read one after the other are not of one moment.
type Counters struct {
	values [counterCount]atomic.Uint64
}

// Add adds n.
func (c *Counters) Add(which Counter, n uint64) {
	// With a single writer a load and a store suffice, and cost no locked instruction.
	v := &c.values[which]
	v.Store(v.Load() + n)
}

// Get returns the value.
func (c *Counters) Get(which Counter) uint64 { return c.values[which].Load() }

// Each calls f for every counter in order.
func (c *Counters) Each(f func(info CounterInfo, value uint64)) {
	for i := range c.values {
		f(counterTable[i], c.values[i].Load())
	}
}
