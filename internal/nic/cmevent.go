package nic

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/rdma"
)

// eventKind is a connection event; values of enum rdma_cm_event_type.
type eventKind uint32

// Connection events.
const (
	eventAddrResolved eventKind = iota
	eventAddrError
	eventRouteResolved
	eventRouteError
	eventConnectRequest
	eventConnectResponse
	eventConnectError
	eventUnreachable
	eventRejected
	eventEstablished
	eventDisconnected
	eventDeviceRemoval
	eventMulticastJoin
	eventMulticastError
	eventAddrChange
	eventTimewaitExit
)

// ConnectionEvent is something that a program is to read from one of its event channels.
type ConnectionEvent struct {
	Session *CMSession
	Channel uint32
	Record  abi.CMEvent
}

// connectionEvents keeps events until the shell polls, which it does after each call. What one
// identifier can cause between two polls is bounded by the calls that name it.
type connectionEvents struct {
	items []ConnectionEvent
	head  int
}

func (q *connectionEvents) pop(e *ConnectionEvent) bool {
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		return false
	}
	*e = q.items[q.head]
	q.items[q.head].Session = nil
	q.head++
	return true
}

// forget drops the events of a session that is gone.
func (q *connectionEvents) forget(s *CMSession) {
	kept := q.items[:q.head]
	for i := range q.items[q.head:] {
		if e := &q.items[q.head+i]; e.Session != s {
			kept = append(kept, *e)
		}
	}
	clear(q.items[len(kept):])
	q.items = kept
}

// PollConnectionEvent fills e with the next connection event.
func (n *NIC) PollConnectionEvent(e *ConnectionEvent) bool { return n.cm.events.pop(e) }

// cmEvent is an event under construction.
type cmEvent struct {
	kind     eventKind
	status   int32
	listener uint32
	join     uint32
	param    abi.CMParam
}

// raise queues an event about an identifier.
func (c *connections) raise(i *identifier, e cmEvent) {
	i.noteFailure(&e)
	c.events.items = append(c.events.items, ConnectionEvent{
		Session: i.session, Channel: i.channel,
		Record: abi.CMEvent{
			ID: i.handle, ListenID: e.listener, Event: uint32(e.kind), Status: e.status,
			Join: e.join, Param: e.param,
		},
	})
}

// setPrivate copies private data of a message into an event.
func setPrivate(p *abi.CMParam, data []byte) {
	p.PrivateDataLen = uint8(copy(p.PrivateData[:privateDataMax], data))
}

// privateDataMax is what the length field of an event can say.
const privateDataMax = 255

// flag is 1 for true, as in structures of C.
func flag(on bool) uint8 {
	if on {
		return 1
	}
	return 0
}

// datagramParam is what an event tells about a datagram destination.
func datagramParam(ah abi.AHAttr, qpn rdma.QPN, qkey rdma.QKey) abi.CMParam {
	return abi.CMParam{
		AH: ah, QPN: uint32(qpn), QKey: uint32(qkey), QPType: uint8(rdma.QPTypeUD),
	}
}
