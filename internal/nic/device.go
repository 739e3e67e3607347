package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/engine/work"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Device capability bits (enum ibv_device_cap_flags) that devices have.
const (
	capBadPKeyCounter  = 1 << 1
	capBadQKeyCounter  = 1 << 2
	capCurrQPState     = 1 << 7
	capPortActiveEvent = 1 << 10
	capSysImageGUID    = 1 << 11
	capRCRNRNakGen     = 1 << 12
	capSRQResize       = 1 << 13
	capXRC             = 1 << 20
	capFlushGlobal     = 1 << 38
	capAtomicWrite     = 1 << 40
	// commonCaps are those that do not depend on the wire.
	commonCaps = capCurrQPState | capPortActiveEvent | capSysImageGUID | memoryCaps | capSRQResize
)

// Other values that ibv_query_device and ibv_query_port report.
const (
	atomicHCA      = 1 // IBV_ATOMIC_HCA: atomic among RDMA operations of this NIC
	pageSizeCap    = 0xfffff000
	coreClockKHz   = 1000000 // completion timestamps are nanoseconds
	ackDelay       = 15      // 4.096 µs × 2^15: what a loaded host needs to answer
	nodeTypeCA     = 1
	nodeTypeRNIC   = 4
	transportIB    = 0
	transportIWARP = 1
	linkInfiniBand = 1
	linkEthernet   = 2
	physLinkUp     = 5
	physDisabled   = 3
	widthX4        = 2
	speedEDR       = 32 // 25 Gbit/s a lane
	virtualLanes   = 1
	portCapCM      = 1 << 16
	portCapIPBased = 1 << 26 // IP based GIDs
	softVendorID   = 0xffffff
	// perftest asks a list of part numbers, whoever the vendor, whether an adapter has inline
	// data, and does without, complaining, when the number is not there. This one is in the list
	// and means nothing else to it.
	softVendorPartID = 1824
)

// DeviceConfig is one of the devices that a NIC shows.
type DeviceConfig struct {
	Name      string // such as rnic0
	Transport Transport
	Stream    StreamOptions // of iWARP
}

// device is one of the NIC's faces: a wire with its port. Objects of programs, keys, queue pair
// numbers and limits are the NIC's and common to its devices.
type device struct {
	name      string
	index     int
	guid      rdma.GUID
	transport *transport
	stream    StreamOptions
	port      port
	counters  EngineCounters
}

func newDevices(cfg *Config) []*device {
	var out []*device
	for i := range cfg.Devices {
		c := &cfg.Devices[i]
		out = append(out, &device{
			name: c.Name, index: i, guid: deviceGUID(cfg.NodeGUID, i), transport: c.Transport.row(),
			stream: c.Stream,
		})
	}
	return out
}

// guidIndexShift is where a device's place is in its GUID: the octet of an EUI-64 that is fe where
// it was made of a MAC (RFC 4291 appendix A), so that no other adapter's is met.
const guidIndexShift = 24

// deviceGUID is the node GUID of a device: the NIC's own for the first one.
func deviceGUID(g rdma.GUID, index int) rdma.GUID {
	return g ^ rdma.GUID(index)<<guidIndexShift
}

// countPacket counts a packet that is for no queue pair of a program, for the device whose wire has
// packets.
func (n *NIC) countPacket(c work.Counter) {
	for _, d := range n.devices {
		if d.transport.hasDatagrams {
			d.counters[c]++
			return
		}
	}
}

// DeviceInfo describes the devices to those who list them.
func (n *NIC) DeviceInfo() []abi.DeviceInfo {
	out := make([]abi.DeviceInfo, len(n.devices))
	for i, d := range n.devices {
		out[i] = abi.DeviceInfo{
			NodeGUID: uint64(d.guid), NodeType: d.transport.nodeType, Transport: d.transport.kind,
			Ports: 1, Index: uint32(d.index),
		}
		copy(out[i].Name[:len(out[i].Name)-1], d.name)
	}
	return out
}

// DeviceAttr answers ibv_query_device.
func (c *Context) DeviceAttr() abi.DeviceAttr {
	cfg, d, most := &c.nic.cfg, c.device, c.most()
	a := abi.DeviceAttr{
		NodeGUID: uint64(d.guid), SysImageGUID: uint64(cfg.NodeGUID),
		PageSizeCap: pageSizeCap, CapFlags: d.transport.caps,
		HCACoreClockKHz: coreClockKHz, CompletionTSMask: ^uint64(0),
		VendorID: softVendorID, VendorPartID: softVendorPartID,
		MaxQP: uint32(most.QPs), MaxQPWR: limits.MaxQPWR, MaxSGE: limits.MaxSGE,
		MaxSGERead: limits.MaxSGE, MaxCQ: uint32(most.CQs), MaxCQE: limits.MaxCQE,
		MaxPD: uint32(most.PDs), MaxQPReadAtomic: limits.MaxRDAtomic,
		MaxResReadAtomic:    limits.MaxRDAtomic * limits.MaxQP,
		MaxQPInitReadAtomic: limits.MaxRDAtomic, AtomicCap: atomicHCA,
		MaxSRQ: uint32(most.SRQs), MaxSRQWR: limits.MaxQPWR, MaxSRQSGE: limits.MaxSGE,
		MaxPKeys: d.transport.pkeys, LocalCAAckDelay: uint32(d.transport.ackDelay), Ports: 1,
		MaxInline:       limits.MaxInline,
		MaxCQModeration: cqModerationMax,
	}
	if d.transport.hasDatagrams {
		a.MaxAH = uint32(most.AHs)
		a.MaxMcastGrp, a.MaxMcastQPAttach = limits.MaxMulticastGroups, limits.MaxMulticastAttach
		a.MaxTotalMcastAttach = limits.MaxMulticastGroups * limits.MaxMulticastAttach
	}
	setMemoryAttr(&a, most, d.transport)
	if d.transport.hasTags {
		setTagAttr(&a)
	}
	copy(a.FWVersion[:len(a.FWVersion)-1], cfg.Version)
	return a
}

// PortAttr answers ibv_query_port.
func (c *Context) PortAttr(portNum uint32) (abi.PortAttr, *rdma.Refusal) {
	if portNum != thePort {
		return abi.PortAttr{}, refusef(syscall.EINVAL, "port %d: the device has port 1 only", portNum)
	}
	t, p := c.device.transport, &c.device.port
	a := abi.PortAttr{
		State: uint32(rdma.PortDown), MaxMTU: uint32(rdma.MTU4096), ActiveMTU: uint32(p.MTU),
		GIDTableLen: 1, CapFlags: t.portCaps,
		MaxMsgSize: limits.MaxMessageBytes, PKeyTableLen: t.pkeys,
		MaxVL: virtualLanes, ActiveWidth: widthX4, ActiveSpeed: speedEDR, PhysState: physDisabled,
		LinkLayer: t.linkLayer,
	}
	if t.hasIPGIDs {
		a.GIDTableLen = limits.MaxGIDs
	}
	if t.hasDatagrams {
		a.BadPKeys = uint32(c.device.counters[work.CountBadPKey])
		a.QKeyViolation = uint32(c.device.counters[work.CountBadQKey])
	}
	if p.Active {
		a.State, a.PhysState = uint32(rdma.PortActive), physLinkUp
	}
	if p.InfiniBand {
		a.LinkLayer, a.CapFlags = linkInfiniBand, a.CapFlags&^portCapIPBased
		// Whoever assigned the LIDs, it was nobody on this network: the port names itself.
		a.LID, a.SMLID = uint32(p.lids.own()), uint32(p.lids.own())
	}
	return a, nil
}
