package nic

import (
	"slices"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/wire/mad"
)

// handleRequest makes an identifier of a REQ or SIDR_REQ and tells the program that listens, or
// says to the peer why not.
func (c *connections) handleRequest(e *cm.Event) {
	i, reason := c.admit(e)
	if reason != 0 {
		c.turnAway(e, reason)
		return
	}
	i.call, i.isUntaken, i.state = e.ID, true, idRequested
	c.calls[e.ID] = i
}

// admit returns the new identifier, or why there is none.
func (c *connections) admit(e *cm.Event) (*identifier, mad.Reason) {
	header, err := mad.ParseIPHeader(e.PrivateData[:e.PrivateLen])
	if err != nil {
		return nil, mad.ReasonInvalidServiceID
	}
	listener := c.listenerFor(e, &header)
	if listener == nil {
		return nil, mad.ReasonInvalidServiceID
	}
	_, port := splitService(e.ServiceID)
	src := sockaddr{addr: header.Destination, port: port}
	dst := sockaddr{addr: header.Source.Addr(), port: header.Source.Port()}
	bound, reason := c.bindingOf(e, &src, &dst)
	if reason != 0 {
		return nil, reason
	}
	i, r := listener.session.newIdentifier(listener.channel, listener.space, listener.qpType)
	if r != nil {
		return nil, mad.ReasonNoResources
	}
	i.src, i.dst, i.binding, i.options = src, dst, bound, listener.options
	i.options.reuse = false
	i.peer = peerOf(e)
	i.peer.mtu = bound.mtu
	c.raise(i, cmEvent{
		kind: eventConnectRequest, listener: listener.handle, param: c.requestParam(i, e),
	})
	return i, 0
}

// listenerFor finds the listener that an address belongs to; the most specific one wins.
func (c *connections) listenerFor(e *cm.Event, h *mad.IPHeader) *identifier {
	v := c.cookies[e.Cookie]
	if v == nil {
		return nil
	}
	device, _ := c.deviceOf(e.Path.SGID)
	var found *identifier
	for _, l := range v.listeners {
		switch {
		case device != nil && !l.admits(device):
		case (e.Kind == cm.EventServiceRequest) != l.isDatagram():
		case !l.isDatagram() && l.qpType != e.QPType:
		case !l.src.isWildcard() && l.src.addr == h.Destination:
			return l
		case l.src.isWildcard() && (!l.options.afOnly || l.src.addr.Is4() == h.Destination.Is4()):
			found = l
		}
	}
	return found
}

// bindingOf finds the port that a request came to and the way back.
func (c *connections) bindingOf(e *cm.Event, src, dst *sockaddr) (binding, mad.Reason) {
	device, gid := c.deviceOf(e.Path.SGID)
	if device == nil {
		return binding{}, mad.ReasonPrimaryGID
	}
	if src.addr.IsLinkLocalUnicast() {
		src.scope, dst.scope = gid.IfIndex, gid.IfIndex
	}
	d := binding{
		isBound: true, device: device, gid: gid, remote: e.Path.DGID, isLocal: c.nic.IsLocal(e.Path.DGID),
		label: e.Path.FlowLabel, class: e.Path.TrafficClass, hops: e.Path.HopLimit, sl: e.Path.SL,
	}
	if d.hops == 0 {
		d.hops = hopLimitDefault
	}
	d.mtu = device.port.MTU
	if d.isLocal {
		d.mtu = rdma.MTU4096
	}
	if e.Kind == cm.EventServiceRequest {
		return d, 0
	}
	if e.PathMTU > d.mtu || !e.PathMTU.IsValid() {
		// Larger packets than this port carries would never arrive.
		return d, mad.ReasonInvalidMTU
	}
	d.mtu = e.PathMTU
	return d, 0
}

// deviceOf finds the device that has a GID for packets.
func (c *connections) deviceOf(g rdma.GID) (*device, abi.GIDEntry) {
	for _, d := range c.nic.devices {
		if gid, ok := d.port.entry(g); ok && d.transport.hasDatagrams {
			return d, gid
		}
	}
	return nil, abi.GIDEntry{}
}

// entry finds the table entry of a GID.
func (p *port) entry(g rdma.GID) (abi.GIDEntry, bool) {
	at := slices.IndexFunc(p.GIDs, func(e abi.GIDEntry) bool {
		return e.GID == g && carries(&e)
	})
	if at < 0 {
		return abi.GIDEntry{}, false
	}
	return p.GIDs[at], true
}

// peerOf takes over what a REQ or REP says.
func peerOf(e *cm.Event) peer {
	return peer{
		isKnown: true, qpn: e.RemoteQPN, psn: e.StartPSN,
		responderResources: min(e.InitiatorDepth, limits.MaxRDAtomic),
		initiatorDepth:     min(e.ResponderResources, limits.MaxRDAtomic),
		retryCount:         min(e.RetryCount, retryMax), rnrRetry: min(e.RNRRetry, retryMax),
		ackTimeout: min(e.AckTimeout, timeoutMax), mtu: e.PathMTU,
	}
}

// requestParam is what CONNECT_REQUEST tells.
func (c *connections) requestParam(i *identifier, e *cm.Event) abi.CMParam {
	data := e.PrivateData[mad.IPHeaderLen:e.PrivateLen]
	if i.isDatagram() {
		p := abi.CMParam{QPType: uint8(rdma.QPTypeUD)}
		setPrivate(&p, data)
		return p
	}
	return connectionParam(i, e, data)
}

// connectionParam is what an event tells about the other side of a connection.
func connectionParam(i *identifier, e *cm.Event, data []byte) abi.CMParam {
	p := abi.CMParam{
		ResponderResources: i.peer.responderResources, InitiatorDepth: i.peer.initiatorDepth,
		FlowControl: flag(e.FlowControl), RetryCount: i.peer.retryCount,
		RNRRetryCount: i.peer.rnrRetry, SRQ: flag(e.SRQ), QPType: uint8(i.qpType),
		QPN: uint32(e.RemoteQPN), ECEVendor: e.ECE.VendorID, ECEOptions: e.ECE.Options,
	}
	setPrivate(&p, data)
	return p
}

// turnAway refuses a request that reaches no program.
func (c *connections) turnAway(e *cm.Event, reason mad.Reason) {
	if e.Kind == cm.EventServiceRequest {
		status := mad.SIDRStatusUnsupportedService
		if reason == mad.ReasonNoResources {
			status = mad.SIDRStatusNoQP
		}
		_ = c.engine.AnswerService(c.nic.now, e.ID, &cm.SIDRAnswer{Status: uint8(status)})
	} else {
		params := cm.RejectParams{Reason: uint16(reason)}
		if d, _ := c.deviceOf(e.Path.SGID); d != nil && reason == mad.ReasonInvalidMTU {
			// The largest MTU that would do (IBTA 12.6.7.2).
			params.AdditionalInfo = []byte{uint8(d.port.MTU) << 4}
		}
		_ = c.engine.Reject(c.nic.now, e.ID, &params)
	}
	c.noteTurnedAway(requestOf(e), reason)
	// What could not be refused is given up.
	c.engine.Release(c.nic.now, e.ID)
	c.nic.counters.TurnedAway++
}
