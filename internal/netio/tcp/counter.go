package tcp

import "github.com/softrnic/softrnic/internal/netio"

// Counter names one count that a Port keeps.
type Counter uint8

// Counters of a Port.
const (
	Accepted Counter = iota
	AcceptRefused
	AcceptPaused
	AcceptErrors
	Connected
	ConnectFailed
	RxBytes
	RxCalls
	RxInPlaceBytes
	RxPaused
	TxBytes
	TxCalls
	TxPartial
	TxFull
	EndedByPeer
	ResetByPeer
	TimedOut
	Broken
	ClosedHere
	ResetHere
	LingerExpired
	LongPaths
	Joined
	JoinedBytes
	counterCount
)

//tidy:table
var counterTable = [counterCount]netio.CounterInfo{
	Accepted:       {Name: "accepted", Help: "connections that came in"},
	AcceptRefused:  {Name: "accept_refused", Help: "connections that came in and were reset at once"},
	AcceptPaused:   {Name: "accept_paused", Help: "pauses of listeners for want of descriptors or memory"},
	AcceptErrors:   {Name: "accept_errors", Help: "connections that broke before they were accepted"},
	Connected:      {Name: "connected", Help: "connections made"},
	ConnectFailed:  {Name: "connect_failed", Help: "connections that could not be made"},
	RxBytes:        {Name: "rx_bytes", Help: "bytes received"},
	RxCalls:        {Name: "rx_calls", Help: "receive calls that brought some"},
	RxInPlaceBytes: {Name: "rx_in_place_bytes", Help: "bytes received into memory of applications"},
	RxPaused:       {Name: "rx_paused", Help: "times that a message had to wait for a receive to be posted"},
	TxBytes:        {Name: "tx_bytes", Help: "bytes handed to TCP"},
	TxCalls:        {Name: "tx_calls", Help: "send calls that took some"},
	TxPartial:      {Name: "tx_partial", Help: "send calls that took a part"},
	TxFull:         {Name: "tx_full", Help: "sends put off because the socket was full"},
	EndedByPeer:    {Name: "ended_by_peer", Help: "connections whose peer sent FIN"},
	ResetByPeer:    {Name: "reset_by_peer", Help: "connections that the peer reset"},
	TimedOut:       {Name: "timed_out", Help: "connections whose peer fell silent"},
	Broken:         {Name: "broken", Help: "connections that ended for another error"},
	ClosedHere:     {Name: "closed_here", Help: "connections ended in order by this side"},
	ResetHere:      {Name: "reset_here", Help: "connections reset by this side"},
	LingerExpired:  {Name: "linger_expired", Help: "closed connections whose peer did not follow in time"},
	LongPaths:      {Name: "long_paths", Help: "connections left to the host's BBR, whose path is long"},
	Joined:         {Name: "joined", Help: "connections whose both ends are queue pairs of this NIC"},
	JoinedBytes:    {Name: "joined_bytes", Help: "bytes that passed between such, without TCP"},
}

func (c Counter) String() string { return counterTable[c].Name }

// Counters is one set of counts, for the thread that owns the port. The zero value is ready.
type Counters struct {
	values [counterCount]uint64
}

// Get returns the value.
func (c *Counters) Get(which Counter) uint64 { return c.values[which] }

// Each calls f for every counter in order.
func (c *Counters) Each(f func(info netio.CounterInfo, value uint64)) {
	for i, v := range c.values {
		f(counterTable[i], v)
	}
}

func (c *Counters) add(which Counter, n int) { c.values[which] += uint64(n) }
