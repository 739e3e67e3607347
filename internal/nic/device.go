package nic

import (
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Device capability bits (enum ibv_device_cap_flags) that this NIC has.
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
	deviceCaps         = capBadPKeyCounter | capBadQKeyCounter | capCurrQPState |
		capPortActiveEvent | capSysImageGUID | capRCRNRNakGen | memoryCaps | capXRC | capSRQResize |
		capFlushGlobal | capAtomicWrite
)

// Other values that ibv_query_device and ibv_query_port report.
const (
	atomicHCA      = 1 // IBV_ATOMIC_HCA: atomic among RDMA operations of this NIC
	pageSizeCap    = 0xfffff000
	coreClockKHz   = 1000000 // completion timestamps are nanoseconds
	ackDelay       = 15      // 4.096 µs × 2^15: what a loaded host needs to answer
	nodeTypeCA     = 1
	transportIB    = 0
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

// DeviceInfo describes the device to those who list devices.
func (n *NIC) DeviceInfo() abi.DeviceInfo {
	d := abi.DeviceInfo{
		NodeGUID: uint64(n.cfg.NodeGUID), NodeType: nodeTypeCA, Transport: transportIB, Ports: 1,
	}
	copy(d.Name[:len(d.Name)-1], n.cfg.Name)
	return d
}

// DeviceAttr answers ibv_query_device.
func (c *Context) DeviceAttr() abi.DeviceAttr {
	cfg, most := &c.nic.cfg, c.most()
	a := abi.DeviceAttr{
		NodeGUID: uint64(cfg.NodeGUID), SysImageGUID: uint64(cfg.NodeGUID),
		PageSizeCap: pageSizeCap, CapFlags: deviceCaps,
		HCACoreClockKHz: coreClockKHz, CompletionTSMask: ^uint64(0),
		VendorID: softVendorID, VendorPartID: softVendorPartID,
		MaxQP: uint32(most.QPs), MaxQPWR: limits.MaxQPWR, MaxSGE: limits.MaxSGE,
		MaxSGERead: limits.MaxSGE, MaxCQ: uint32(most.CQs), MaxCQE: limits.MaxCQE,
		MaxPD: uint32(most.PDs), MaxQPReadAtomic: limits.MaxRDAtomic,
		MaxResReadAtomic:    limits.MaxRDAtomic * limits.MaxQP,
		MaxQPInitReadAtomic: limits.MaxRDAtomic, AtomicCap: atomicHCA, MaxAH: uint32(most.AHs),
		MaxMcastGrp: limits.MaxMulticastGroups, MaxMcastQPAttach: limits.MaxMulticastAttach,
		MaxTotalMcastAttach: limits.MaxMulticastGroups * limits.MaxMulticastAttach,
		MaxSRQ:              uint32(most.SRQs), MaxSRQWR: limits.MaxQPWR, MaxSRQSGE: limits.MaxSGE,
		MaxPKeys: limits.MaxPKeys, LocalCAAckDelay: ackDelay, Ports: 1, MaxInline: limits.MaxInline,
		MaxCQModeration: cqModerationMax,
	}
	setMemoryAttr(&a, most)
	copy(a.FWVersion[:len(a.FWVersion)-1], cfg.Version)
	return a
}

// PortAttr answers ibv_query_port.
func (c *Context) PortAttr(portNum uint32) (abi.PortAttr, *rdma.Refusal) {
	if portNum != thePort {
		return abi.PortAttr{}, refusef(syscall.EINVAL, "port %d: the device has port 1 only", portNum)
	}
	p := &c.nic.port
	a := abi.PortAttr{
		State: uint32(rdma.PortDown), MaxMTU: uint32(rdma.MTU4096), ActiveMTU: uint32(p.MTU),
		GIDTableLen: limits.MaxGIDs, CapFlags: portCapCM | portCapIPBased,
		MaxMsgSize: limits.MaxMessageBytes, BadPKeys: uint32(c.nic.counters.BadPKey()),
		QKeyViolation: uint32(c.nic.counters.BadQKey()), PKeyTableLen: limits.MaxPKeys,
		MaxVL: virtualLanes, ActiveWidth: widthX4, ActiveSpeed: speedEDR, PhysState: physDisabled,
		LinkLayer: linkEthernet,
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
