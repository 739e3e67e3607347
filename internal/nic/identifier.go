package nic

import (
	"net/netip"
	"strings"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/cm"
	"github.com/softrnic/softrnic/internal/rdma"
)

// idState is where an identifier is on its way.
type idState uint8

// States. The first line is what addresses do, the second the active side of a connection, the
// third the passive one, the last both.
const (
	idIdle idState = iota
	idBound
	idQuerying // an address lookup is under way
	idResolved
	idRouted
	idConnecting // REQ or SIDR_REQ sent
	idReplied    // REP received, RTU not sent
	idListening
	idRequested // REQ or SIDR_REQ received
	idAccepted  // REP sent
	idEstablished
	idDisconnected
	idFailed
)

var idStateNames = [...]string{
	"idle", "bound", "address query", "address resolved", "route resolved", "connecting", "replied",
	"listening", "requested", "accepted", "established", "disconnected", "failed",
}

func (s idState) String() string { return idStateNames[s] }

// identifier is a communication identifier (struct rdma_cm_id).
type identifier struct {
	session *CMSession
	handle  uint32
	channel uint32
	space   portSpace
	qpType  rdma.QPType
	state   idState
	isGone  bool

	src, dst sockaddr
	ownsPort bool // in the port table
	// isPortChosen says that the program left the port to the NIC.
	isPortChosen bool
	options      idOptions
	choice       *device // that the program insists on; nil leaves it to the address
	isFar        bool    // the destination is where packets do not get
	binding      binding
	service      *service // of a listener
	backlog      int
	deaf         string // why a listener goes on without TCP
	// stream is the connection of TCP, or the listener; nil when there is none. listener is whose
	// request it was, untaken how many of those the program has not looked at.
	stream   *stream
	listener *identifier
	untaken  int

	// call names the connection in the engine; 0 when there is none.
	call      cm.ID
	asked     *cm.ConnectParams // by the REQ that is out
	isUntaken bool              // a request that the program has not looked at yet
	startPSN  rdma.PSN
	qpn       rdma.QPN // ours, once the program has named it
	peer      peer
	qkey      rdma.QKey // of datagrams; 0 is not set

	joins map[uint32]*join
}

// idOptions are set by rdma_set_option(3).
type idOptions struct {
	tos             uint8
	reuse           bool
	afOnly          bool
	afOnlySet       bool
	ackTimeout      uint8
	isAckTimeoutSet bool
}

// binding is the port and path that an identifier uses. It is valid from the moment that the
// source address names a GID.
type binding struct {
	isBound bool
	device  *device
	gid     abi.GIDEntry // ours
	remote  rdma.GID     // zero until resolved
	isLocal bool         // the peer is on this NIC
	mtu     rdma.MTU
	label   uint32 // flow label
	class   uint8
	hops    uint8
	sl      uint8
}

// peer is what REQ or REP told of the other side, from our side: what it wants to initiate is what
// we have to respond to.
type peer struct {
	isKnown            bool
	qpn                rdma.QPN
	psn                rdma.PSN // that it wants us to begin with
	responderResources uint8    // that we need
	initiatorDepth     uint8    // that we have
	retryCount         uint8
	rnrRetry           uint8
	ackTimeout         uint8
	mtu                rdma.MTU
}

func (i *identifier) program() string  { return i.session.cfg.Name }
func (i *identifier) pid() uint32      { return i.session.cfg.PID }
func (i *identifier) isDatagram() bool { return i.qpType == rdma.QPTypeUD }

// choose finds the device that a program insists on for identifiers of a type; nil where it leaves
// that to addresses.
func (n *NIC) choose(name string, t rdma.QPType) (*device, *rdma.Refusal) {
	var names []string
	able := false
	for _, d := range n.devices {
		if name == d.name {
			return d, d.checkQPType(t)
		}
		names = append(names, d.name)
		able = able || d.transport.makes(t)
	}
	switch {
	case name != "":
		return nil, refusef(syscall.ENODEV, "there is no device %q (RNIC_DEVICE); the NIC has: %s",
			name, strings.Join(names, ", "))
	case !able:
		return nil, refusef(syscall.EOPNOTSUPP, "no device of this NIC has %v queue pairs: %s", t,
			strings.Join(names, ", "))
	}
	return nil, nil
}

// admits reports whether an identifier may be bound to a device: one that it has, or the one that
// it insists on, or any that makes its kind of queue pair.
func (i *identifier) admits(d *device) bool {
	switch {
	case i.binding.isBound:
		return i.binding.device == d
	case i.choice != nil && i.choice != d:
		return false
	case i.isFar && d.transport.hasDatagrams:
		return false
	}
	return d.transport.makes(i.qpType)
}

// own finds the first device that carries one of the host's own addresses for the identifier.
func (i *identifier) own(a sockaddr) (*device, abi.GIDEntry, bool) {
	for _, d := range i.session.nic.devices {
		if !i.admits(d) {
			continue
		}
		if gid, ok := d.port.gidOf(a); ok {
			return d, gid, true
		}
	}
	return nil, abi.GIDEntry{}, false
}

// firstAddress is the first address of the family of a that the identifier may have, or none.
func (i *identifier) firstAddress(a netip.Addr) netip.Addr {
	for _, d := range i.session.nic.devices {
		if first := d.port.firstAddress(a); i.admits(d) && first.IsValid() {
			return first
		}
	}
	return netip.Addr{}
}

// path is the way to the peer, for the engine.
func (i *identifier) path() cm.Path {
	d := &i.binding
	return cm.Path{
		SGID: d.gid.GID, DGID: d.remote, FlowLabel: d.label, Flow: flow(d.label, i.handle),
		TrafficClass: d.class, HopLimit: d.hops, SL: d.sl, Port: thePort,
	}
}

// ah is the way to the peer, or to a group, for verbs.
func (i *identifier) ah(dgid rdma.GID) abi.AHAttr {
	d := &i.binding
	return abi.AHAttr{
		DGID: dgid, FlowLabel: d.label, SGIDIndex: uint8(d.gid.Index), HopLimit: d.hops,
		TrafficClass: d.class, IsGlobal: 1, SL: d.sl, Port: thePort,
	}
}

// packetLife is the lifetime that a path record of RoCE has, 4.096 µs × 2^n: a quarter of a
// second, as the Linux kernel has it.
const packetLife = 16

// lifetime follows from the ACK timeout where an application has set one: that is about twice the
// packet lifetime (IBTA 12.7.34).
func (i *identifier) lifetime() uint8 {
	if t := i.options.ackTimeout; i.options.isAckTimeoutSet {
		return max(t, 1) - 1
	}
	return packetLife
}

// describe answers queries.
func (i *identifier) describe() abi.CMRoute {
	out := abi.CMRoute{Src: i.src.abi(), Dst: i.dst.abi()}
	d := &i.binding
	if !d.isBound {
		return out
	}
	copy(out.Device[:len(out.Device)-1], d.device.name)
	out.SGID, out.SGIDIndex, out.Port = d.gid.GID, d.gid.Index, thePort
	out.DGID, out.PathMTU, out.PKey = d.remote, uint32(d.mtu), uint32(rdma.PKeyDefault)
	out.FlowLabel, out.TrafficClass, out.HopLimit = d.label, uint32(d.class), uint32(d.hops)
	out.SL, out.PacketLife = uint32(d.sl), uint32(i.lifetime())
	switch i.state {
	case idIdle, idBound, idQuerying, idResolved, idListening:
	default:
		out.HasRoute = 1
	}
	return out
}
