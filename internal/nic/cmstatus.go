package nic

import (
	"maps"
	"slices"

	"github.com/softrnic/softrnic/internal/rdma"
)

// CMIDStatus is one communication identifier: a listener or one end of a connection.
type CMIDStatus struct {
	ID        uint32 `json:"id"`
	Program   string `json:"program"`
	PID       uint32 `json:"pid"`
	UID       uint32 `json:"uid"`
	Device    string `json:"device,omitempty"` // none while that is open
	State     string `json:"state"`
	PortSpace string `json:"port_space"`
	Type      string `json:"type"`
	Local     string `json:"local_address,omitempty"`
	Remote    string `json:"remote_address,omitempty"`
	LocalGID  string `json:"local_gid,omitempty"`
	RemoteGID string `json:"remote_gid,omitempty"`
	QPN       uint32 `json:"qpn,omitempty"`
	DestQPN   uint32 `json:"dest_qpn,omitempty"`
	Channel   uint32 `json:"channel"`
	Backlog   int    `json:"backlog,omitempty"`
	// WithoutTCP is why a listener goes on without iWARP.
	WithoutTCP string `json:"without_tcp,omitempty"`
}

// GroupStatus is one multicast group.
type GroupStatus struct {
	GID        string   `json:"gid"`
	QPNs       []uint32 `json:"qpns"`
	Interfaces []uint32 `json:"interfaces"` // on which the host is a member
}

// status lists the identifiers of all programs.
func (c *connections) status() []CMIDStatus {
	out := []CMIDStatus{}
	for _, h := range slices.Sorted(maps.Keys(c.ids)) {
		out = append(out, c.ids[h].status())
	}
	return out
}

func (i *identifier) status() CMIDStatus {
	s := CMIDStatus{
		ID: i.handle, Program: i.program(), PID: i.pid(), UID: i.session.cfg.UID,
		State: i.state.String(), PortSpace: i.space.String(), Type: i.qpType.String(),
		Local: i.src.String(), Remote: i.dst.String(), QPN: uint32(i.qpn),
		DestQPN: uint32(i.peer.qpn), Channel: i.channel, Backlog: i.backlog,
		WithoutTCP: i.deaf,
	}
	if d := &i.binding; d.isBound {
		s.Device = d.device.name
		s.LocalGID = rdma.GID(d.gid.GID).String()
		if !d.remote.IsZero() {
			s.RemoteGID = d.remote.String()
		}
	}
	return s
}

func (m *multicast) status() []GroupStatus {
	out := []GroupStatus{}
	for _, gid := range slices.SortedFunc(maps.Keys(m.groups), compareGIDs) {
		g := m.groups[gid]
		s := GroupStatus{
			GID: gid.String(), QPNs: []uint32{}, Interfaces: slices.Sorted(maps.Keys(g.joined)),
		}
		for _, q := range g.qps {
			s.QPNs = append(s.QPNs, uint32(q.qpn))
		}
		if s.Interfaces == nil {
			s.Interfaces = []uint32{}
		}
		out = append(out, s)
	}
	return out
}
