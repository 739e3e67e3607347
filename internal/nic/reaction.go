package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/cm"
)

// collect turns what the engine has to say into events of programs.
func (c *connections) collect() {
	if !c.isStirred {
		return
	}
	c.isStirred = false
	for c.engine.PollEvent(&c.event) {
		e := &c.event
		if e.Kind == cm.EventRequestReceived || e.Kind == cm.EventServiceRequest {
			c.handleRequest(e)
		} else if i := c.calls[e.ID]; i != nil {
			c.react(i, e)
		}
	}
}

// react moves an identifier by one event. Which events programs see in which state is as in the
// Linux kernel: after the first that ends a connection there is only TIMEWAIT_EXIT.
func (c *connections) react(i *identifier, e *cm.Event) {
	switch e.Kind {
	case cm.EventReplyReceived:
		i.state, i.asked = idReplied, nil
		retries := i.peer.retryCount
		i.peer = peerOf(e)
		i.peer.retryCount, i.peer.mtu = retries, i.binding.mtu
		p := connectionParam(i, e, e.PrivateData[:e.PrivateLen])
		c.raise(i, cmEvent{kind: eventConnectResponse, param: p})
	case cm.EventEstablished:
		// Without the RTU's private data: no program can send any, and the event must not depend
		// on whether the RTU or a packet for the queue pair came first.
		i.state = idEstablished
		c.raise(i, cmEvent{kind: eventEstablished})
	case cm.EventRejected:
		if i.state == idConnecting && c.askForLess(i, e) {
			return
		}
		i.state = idFailed
		var p abi.CMParam
		setPrivate(&p, e.PrivateData[:e.PrivateLen])
		c.raise(i, cmEvent{kind: eventRejected, status: int32(e.Reason), param: p})
	case cm.EventUnreachable:
		i.state = idFailed
		c.raise(i, cmEvent{kind: eventUnreachable, status: -int32(syscall.ETIMEDOUT)})
	case cm.EventDisconnected:
		i.state = idDisconnected
		c.raise(i, cmEvent{kind: eventDisconnected, status: disconnectStatus(e.How)})
	case cm.EventTimewaitExit:
		c.raise(i, cmEvent{kind: eventTimewaitExit})
	case cm.EventServiceReply:
		c.handleServiceReply(i, e)
	default: // requests have no identifier yet
	}
}

// disconnectStatus tells programs apart what ended a connection.
func disconnectStatus(how cm.Disconnection) int32 {
	switch how {
	case cm.DisconnectedByTimeout:
		return -int32(syscall.ETIMEDOUT)
	case cm.DisconnectedByReject, cm.DisconnectedStale:
		return -int32(syscall.ECONNRESET)
	default:
		return 0
	}
}

// handleServiceReply learns the queue pair behind a datagram service.
func (c *connections) handleServiceReply(i *identifier, e *cm.Event) {
	private := e.PrivateData[:e.PrivateLen]
	if e.Status != 0 {
		i.state = idFailed
		var p abi.CMParam
		setPrivate(&p, private)
		c.raise(i, cmEvent{kind: eventUnreachable, status: int32(e.Status), param: p})
		return
	}
	if r := i.setQKey(e.QKey); r != nil {
		i.state = idFailed
		c.raise(i, cmEvent{kind: eventAddrError, status: -int32(r.Errno)})
		return
	}
	i.state = idEstablished
	i.peer.isKnown, i.peer.qpn = true, e.RemoteQPN
	p := datagramParam(i.ah(i.binding.remote), e.RemoteQPN, e.QKey)
	setPrivate(&p, private)
	c.raise(i, cmEvent{kind: eventEstablished, param: p})
}
