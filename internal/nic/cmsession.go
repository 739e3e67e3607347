package nic

import (
	"maps"
	"slices"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// CMConfig describes an application that manages connections.
type CMConfig struct {
	Name     string // program, for people
	PID, UID uint32
	// PortMin is the lowest port that the application may bind; lower ones are privileged.
	PortMin uint16
	Owner   any
}

// CMSession is one application's part of connection management: event channels and communication
// identifiers (rdma_cm(7)). Handles that it passes are looked up among its own objects only.
type CMSession struct {
	nic      *NIC
	cfg      CMConfig
	channels map[uint32]bool
	ids      map[uint32]*identifier
	errors   history
}

// OpenCM lets an application manage connections.
func (n *NIC) OpenCM(now clock.Time, cfg CMConfig) (*CMSession, *rdma.Refusal) {
	n.now = now
	if len(n.cm.sessions) >= limits.MaxContexts {
		return nil, refusef(syscall.ENOMEM, "limit of %d programs with connections",
			limits.MaxContexts)
	}
	s := &CMSession{
		nic: n, cfg: cfg, channels: make(map[uint32]bool), ids: make(map[uint32]*identifier),
	}
	n.cm.sessions = append(n.cm.sessions, s)
	return s, nil
}

// CloseCM destroys all identifiers of a session: peers see their connections end.
func (n *NIC) CloseCM(now clock.Time, s *CMSession) {
	n.now = now
	at := slices.Index(n.cm.sessions, s)
	if at < 0 {
		return
	}
	n.cm.sessions = slices.Delete(n.cm.sessions, at, at+1)
	n.causes.retire(&s.errors, now)
	for _, i := range s.sorted() {
		n.cm.destroy(i)
	}
	n.cm.channels -= len(s.channels)
	n.cm.events.forget(s)
	n.cm.collect()
}

// Owner returns what the shell attached.
func (s *CMSession) Owner() any { return s.cfg.Owner }

// sorted lists the identifiers by handle, so that whatever a loop does repeats.
func (s *CMSession) sorted() []*identifier {
	out := make([]*identifier, 0, len(s.ids))
	for _, h := range slices.Sorted(maps.Keys(s.ids)) {
		out = append(out, s.ids[h])
	}
	return out
}

// CreateEventChannel makes a channel for connection events; the shell gives it a pipe.
func (s *CMSession) CreateEventChannel() (uint32, *rdma.Refusal) {
	if s.nic.cm.channels >= limits.MaxEventChannels {
		return 0, refusef(syscall.ENOMEM, "limit of %d event channels", limits.MaxEventChannels)
	}
	most := s.nic.cfg.Client.EventChannels
	if r := mayHave("event channels", len(s.channels), most); r != nil {
		return 0, r
	}
	h := s.nic.id()
	s.channels[h] = true
	s.nic.cm.channels++
	return h, nil
}

// DestroyEventChannel removes a channel with every identifier on it, as the end of the descriptor
// does in the Linux kernel: identifiers that shall live on have to be migrated before.
func (s *CMSession) DestroyEventChannel(now clock.Time, handle uint32) *rdma.Refusal {
	s.nic.now = now
	if !s.channels[handle] {
		return refusef(syscall.EINVAL, "event channel %d is unknown", handle)
	}
	for _, i := range s.sorted() {
		if i.channel == handle {
			s.nic.cm.destroy(i)
		}
	}
	delete(s.channels, handle)
	s.nic.cm.channels--
	s.nic.cm.collect()
	return nil
}

// CreateID makes a communication identifier.
func (s *CMSession) CreateID(req *abi.CreateIDReq) (uint32, *rdma.Refusal) {
	if !s.channels[req.Channel] {
		return 0, refusef(syscall.EINVAL, "event channel %d is unknown", req.Channel)
	}
	space, qpType := portSpace(req.PortSpace), rdma.QPType(req.QPType)
	switch space {
	case spaceTCP:
		// An XRC target listens in the port space TCP too; every other type is RC's stand-in.
		if qpType != rdma.QPTypeXRCSend && qpType != rdma.QPTypeXRCRecv {
			qpType = rdma.QPTypeRC
		}
	case spaceUDP, spaceIPoIB:
		qpType = rdma.QPTypeUD
	case spaceIB:
		switch qpType {
		case rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD, rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv:
		default:
			return 0, refusef(syscall.EINVAL, "qp_type %d is not supported", req.QPType)
		}
	default:
		return 0, refusef(syscall.EINVAL, "port space %#x is unknown", req.PortSpace)
	}
	choice, r := s.nic.choose(text(req.Device[:]), qpType)
	if r != nil {
		return 0, r
	}
	i, r := s.newIdentifier(req.Channel, space, qpType)
	if r != nil {
		return 0, r
	}
	i.choice = choice
	return i.handle, nil
}

func (s *CMSession) newIdentifier(channel uint32, space portSpace, t rdma.QPType) (
	*identifier, *rdma.Refusal,
) {
	n := s.nic
	if len(n.cm.ids) >= limits.MaxCMIDs {
		return nil, refusef(syscall.ENOMEM, "limit of %d communication identifiers", limits.MaxCMIDs)
	}
	if r := mayHave("communication identifiers", len(s.ids), n.cfg.Client.CMIDs); r != nil {
		return nil, r
	}
	i := &identifier{
		session: s, handle: n.id(), channel: channel, space: space, qpType: t,
		startPSN: rdma.PSN(n.random() & rdma.PSNMask), joins: make(map[uint32]*join),
	}
	s.ids[i.handle], n.cm.ids[i.handle] = i, i
	return i, nil
}

// find looks an identifier up. A program that names one has taken the request that made it, so
// the request counts against its listener's backlog no more.
func (s *CMSession) find(handle uint32) (*identifier, *rdma.Refusal) {
	i := s.ids[handle]
	if i == nil {
		return nil, refusef(syscall.EINVAL, "communication identifier %d is unknown", handle)
	}
	if i.isUntaken {
		s.nic.cm.taken(i)
		if l := i.listener; l != nil {
			s.nic.streams.admit(l)
		}
	}
	return i, nil
}

// DestroyID ends an identifier and whatever it has: its port, groups and connection.
func (s *CMSession) DestroyID(now clock.Time, handle uint32) *rdma.Refusal {
	s.nic.now = now
	i, r := s.find(handle)
	if r != nil {
		return r
	}
	s.nic.cm.destroy(i)
	s.nic.cm.collect()
	return nil
}

// MigrateID moves the events of an identifier to another channel; those that are in the old one's
// pipe stay there.
func (s *CMSession) MigrateID(req *abi.CMMigrateReq) *rdma.Refusal {
	i, r := s.find(req.ID)
	if r != nil {
		return r
	}
	if !s.channels[req.Channel] {
		return refusef(syscall.EINVAL, "event channel %d is unknown", req.Channel)
	}
	i.channel = req.Channel
	return nil
}

// QueryID tells what an identifier knows about its path.
func (s *CMSession) QueryID(handle uint32) (abi.CMRoute, *rdma.Refusal) {
	i, r := s.find(handle)
	if r != nil {
		return abi.CMRoute{}, r
	}
	return i.describe(), nil
}
