package nic

import (
	"maps"
	"slices"
	"strings"

	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Status is a snapshot of the NIC for people and tools; its JSON is part of the control protocol.
type Status struct {
	// Of the first device, for whoever knows of one only.
	DeviceStatus
	Devices  []DeviceStatus    `json:"devices"`
	Version  string            `json:"version"`
	Contexts []ContextStatus   `json:"contexts"`
	CMIDs    []CMIDStatus      `json:"cm_ids"`
	Groups   []GroupStatus     `json:"multicast_groups"`
	Counters map[string]uint64 `json:"counters"`
	Causes   []string          `json:"recent_errors"`
	Errors   []ErrorStatus     `json:"errors"`
}

// DeviceStatus is one device with its port.
type DeviceStatus struct {
	Name      string      `json:"device"`
	Transport string      `json:"transport"`
	Options   string      `json:"options,omitempty"` // of iWARP, as rnic up takes them
	NodeGUID  string      `json:"node_guid"`
	MTU       int         `json:"active_mtu"`
	Active    bool        `json:"port_active"`
	Link      string      `json:"link_layer"`
	LID       rdma.LID    `json:"lid"`
	GIDs      []GIDStatus `json:"gids"`
	// Addresses are those of a port whose GIDs are none.
	Addresses []string       `json:"addresses,omitempty"`
	Engine    EngineCounters `json:"hw_counters"`
}

// GIDStatus is one entry of the GID table.
type GIDStatus struct {
	Index     uint32 `json:"index"`
	GID       string `json:"gid"`
	Type      string `json:"type"`
	Interface string `json:"interface"`
}

// ContextStatus is one application.
type ContextStatus struct {
	ID      uint32      `json:"id"`
	Device  string      `json:"device"`
	Program string      `json:"program"`
	PID     uint32      `json:"pid"`
	UID     uint32      `json:"uid"`
	PDs     int         `json:"pds"`
	AHs     int         `json:"ahs"`
	MRs     []MRStatus  `json:"mrs"`
	MWs     int         `json:"mws"`
	DMBytes uint64      `json:"device_memory_bytes"`
	CQs     []CQStatus  `json:"cqs"`
	SRQs    []SRQStatus `json:"srqs"`
	QPs     []QPStatus  `json:"qps"`
}

// MRStatus is one memory region.
type MRStatus struct {
	Handle  uint32 `json:"handle"`
	PD      uint32 `json:"pd"`
	Kind    string `json:"kind"` // memory, device; implicit and null have no length that counts
	Addr    uint64 `json:"addr"`
	Length  uint64 `json:"length"`
	Access  string `json:"access"`
	Mapped  uint64 `json:"mapped_bytes"`
	Windows int    `json:"windows"` // bound to it
}

// CQStatus is one completion queue.
type CQStatus struct {
	Handle  uint32 `json:"handle"`
	Entries uint32 `json:"entries"`
	Pushed  uint64 `json:"completions"`
	Overrun bool   `json:"overrun"`
}

// SRQStatus is one shared receive queue.
type SRQStatus struct {
	Handle  uint32 `json:"handle"`
	Entries uint32 `json:"entries"`
	Posted  uint32 `json:"posted"`
	Limit   uint32 `json:"limit"`
	// Tags is nil where the queue does not match tags.
	Tags *TagStatus `json:"tags,omitempty"`
}

// QPStatus is one queue pair.
type QPStatus struct {
	Handle   uint32 `json:"handle"`
	QPN      uint32 `json:"qpn"`
	Type     string `json:"type"`
	State    string `json:"state"`
	PD       uint32 `json:"pd"`
	SendCQ   uint32 `json:"send_cq"`
	RecvCQ   uint32 `json:"recv_cq"`
	SRQ      uint32 `json:"srq,omitempty"`
	Local    string `json:"local_gid,omitempty"`
	Remote   string `json:"remote_gid,omitempty"`
	DestQPN  uint32 `json:"dest_qpn,omitempty"`
	PathMTU  int    `json:"path_mtu,omitempty"`
	Pending  int    `json:"send_pending"`
	InFlight int    `json:"packets_in_flight"`
	Window   int    `json:"window"`
	Retries  uint64 `json:"retries"`
	// Retransmitted packets, and negative acknowledges received, RNR included.
	Retransmitted uint64         `json:"retransmitted"`
	Naks          uint64         `json:"rcvd_naks"`
	Counters      EngineCounters `json:"counters"`
	// Stream is the connection of iWARP.
	Stream *StreamStatus `json:"stream,omitempty"`

	// IsDirect says that the program's library carries one-sided operations out itself.
	IsDirect bool `json:"direct,omitempty"`

	Errors uint64 `json:"errors"`
	Error  string `json:"last_error,omitempty"`
}

// Status takes a snapshot.
func (n *NIC) Status() Status {
	s := Status{
		Version:  n.cfg.Version,
		Contexts: []ContextStatus{}, CMIDs: n.cm.status(),
		Groups: n.multicast.status(), Causes: []string{},
	}
	n.countDirect()
	var sum EngineCounters
	for _, d := range n.devices {
		s.Devices = append(s.Devices, d.status())
		sum.add(&d.counters)
	}
	s.DeviceStatus, s.Counters = s.Devices[0], n.counters.Named(&sum)
	for _, c := range n.contexts {
		s.Contexts = append(s.Contexts, c.status())
	}
	s.Errors = n.errorStatus()
	for _, r := range n.Causes(0) {
		s.Causes = append(s.Causes, r.Text())
	}
	return s
}

func (d *device) status() DeviceStatus {
	p := &d.port
	s := DeviceStatus{
		Name: d.name, Transport: d.transport.name, NodeGUID: d.guid.String(), MTU: p.MTU.Bytes(),
		Active: p.Active, Link: "Ethernet", LID: p.lids.own(), GIDs: []GIDStatus{},
		Engine: d.counters,
	}
	if d.transport == TransportIWARP.row() {
		s.Options = d.stream.String()
	}
	if p.InfiniBand {
		s.Link = "InfiniBand"
	}
	for i := range p.GIDs {
		g := &p.GIDs[i]
		s.GIDs = append(s.GIDs, GIDStatus{
			Index: g.Index, GID: rdma.GID(g.GID).String(), Type: rdma.GIDType(g.Type).String(),
			Interface: text(g.IfName[:]),
		})
	}
	for _, a := range p.Addresses {
		s.Addresses = append(s.Addresses, a.Addr.String())
	}
	return s
}

// text cuts a NUL-padded name.
func text(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func (c *Context) status() ContextStatus {
	s := ContextStatus{
		ID: c.id, Device: c.device.name, Program: c.cfg.Name, PID: c.cfg.PID, UID: c.cfg.UID,
		PDs: len(c.pds), AHs: len(c.ahs), MWs: len(c.memory.windows),
		DMBytes: c.memory.dmBytes, MRs: []MRStatus{}, CQs: []CQStatus{},
		SRQs: []SRQStatus{}, QPs: []QPStatus{},
	}
	for _, h := range slices.Sorted(maps.Keys(c.mrs)) {
		r := c.mrs[h]
		m := MRStatus{
			Handle: h, PD: uint32(r.PD), Kind: r.Kind().String(), Addr: r.Base, Length: r.Length,
			Access: r.Access.String(), Windows: r.Windows(),
		}
		if c.memory.dmOf[h] != nil {
			m.Kind = "device"
		}
		for _, seg := range r.Segments() {
			m.Mapped += uint64(len(seg.Mapped))
		}
		s.MRs = append(s.MRs, m)
	}
	for _, h := range slices.Sorted(maps.Keys(c.cqs)) {
		q := c.cqs[h]
		s.CQs = append(s.CQs, CQStatus{
			Handle: h, Entries: q.ring.Entries(), Pushed: q.pushed + q.listCount.Load(),
			Overrun: q.failed,
		})
	}
	for _, h := range slices.Sorted(maps.Keys(c.srqs)) {
		q := c.srqs[h]
		posted, _ := q.ring.Pending()
		s.SRQs = append(s.SRQs, SRQStatus{
			Handle: h, Entries: q.ring.Entries(), Posted: posted, Limit: q.limit,
			Tags: q.tags.status(),
		})
	}
	for _, q := range c.sortedQPs() {
		s.QPs = append(s.QPs, q.status())
	}
	return s
}

func (q *qp) status() QPStatus {
	s := QPStatus{
		Handle: q.handle, QPN: uint32(q.qpn), Type: q.qpType.String(), State: q.state().String(),
		PD: q.init.PD, SendCQ: q.init.SendCQ, RecvCQ: q.init.RecvCQ, SRQ: q.init.SRQ,
		Errors: q.errors, Counters: q.counters, IsDirect: q.direct.rights != 0,
	}
	if q.ibt != nil {
		q.addPackets(&s)
	} else {
		s.Pending, s.Stream = q.iwarp.Stats().Pending, q.stream.status()
	}
	if q.errors > 0 {
		s.Error = strings.Join(brief(explain.Chain(&q.lastCause)), ": ")
	}
	return s
}

// addPackets adds what a queue pair of packets knows.
func (q *qp) addPackets(s *QPStatus) {
	t, stats := q.ibt.Attr(), q.ibt.Stats()
	s.PathMTU, s.Pending, s.InFlight = t.PathMTU.Bytes(), stats.Pending, stats.InFlight
	s.Window, s.Retries, s.Retransmitted = stats.Window, stats.Retries, stats.Retransmitted
	s.Naks = stats.Naks
	if !t.AV.DGID.IsZero() {
		s.Local, s.Remote, s.DestQPN = t.AV.SGID.String(), t.AV.DGID.String(), uint32(t.DestQPN)
	}
}

// PeerOf returns the other end of a connected QP, as far as the QP knows it.
func (n *NIC) PeerOf(qpn rdma.QPN) (gid rdma.GID, peer rdma.QPN, ok bool) {
	q := n.qps[qpn]
	if q == nil || q.ibt == nil {
		return gid, 0, false
	}
	t := q.ibt.Attr()
	return t.AV.DGID, t.DestQPN, !t.AV.DGID.IsZero()
}
