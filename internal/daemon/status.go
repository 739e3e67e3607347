package daemon

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/netio"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
)

// Status is everything that the NIC knows of itself, as JSON the answer to abi.OpStatus.
type Status struct {
	nic.Status
	PID         int       `json:"pid"`
	UID         int       `json:"uid"`
	Socket      string    `json:"socket,omitempty"`
	Started     time.Time `json:"started"`
	Connections int       `json:"connections"`
	// LocalOnly says why the NIC serves programs of its own only; empty when it has a network.
	LocalOnly string `json:"local_only,omitempty"`
	Fault     string `json:"fault,omitempty"`
	// Network is nil for a NIC without one.
	Network *PortStatus `json:"network,omitempty"`
	// Mirror is the path between the NIC's own QPs when faults are on.
	Mirror *PortStatus `json:"mirror,omitempty"`
	// Streams is nil for a NIC without a device over TCP.
	Streams *StreamStatus     `json:"streams,omitempty"`
	Lane    map[string]uint64 `json:"lane"`
	// Limits is what one program may have, by the names that limits.ParseClient knows.
	Limits map[string]uint64 `json:"limits"`
}

// PortStatus describes a port.
type PortStatus struct {
	Name          string            `json:"name"`
	IPv4          bool              `json:"ipv4"`
	IPv6          bool              `json:"ipv6"`
	SegmentSend   bool              `json:"segmentation_offload"` // UDP_SEGMENT (GSO)
	CoalesceRecv  bool              `json:"receive_offload"`      // UDP_GRO
	ReceiveBuffer int               `json:"receive_buffer_bytes"`
	SendBuffer    int               `json:"send_buffer_bytes"`
	SourcePorts   int               `json:"source_ports"`
	Notices       []string          `json:"notices,omitempty"` // what is off, and why
	Counters      map[string]uint64 `json:"counters"`
}

// statusShare bounds the part of the lane's time that snapshots may take to one in so many: a
// program that asks all the time must not slow the others down.
const statusShare = 10

// census spaces snapshots.
type census struct {
	mu   sync.Mutex // guards next
	next time.Time
}

// Status takes a snapshot, after a pause if there were many. It reports false when the NIC has
// ended.
func (d *Daemon) Status() (Status, bool) {
	d.census.mu.Lock()
	defer d.census.mu.Unlock()
	time.Sleep(time.Until(d.census.next))
	s, took, ok := d.takeStatus()
	d.census.next = time.Now().Add(statusShare * took)
	return s, ok
}

// takeStatus also tells how long the lane was busy with it.
func (d *Daemon) takeStatus() (s Status, took time.Duration, ok bool) {
	s = Status{
		PID: d.pid, UID: os.Geteuid(), Socket: d.SocketPath(), Started: d.started,
		LocalOnly: d.localOnly, Limits: map[string]uint64{},
	}
	d.cfg.client().Each(func(name string, value uint64) { s.Limits[name] = value })
	if !d.profile.IsZero() || d.profile.Completions > 0 {
		s.Fault = d.profile.String()
	}
	d.mu.Lock()
	s.Connections = len(d.sessions)
	d.mu.Unlock()
	ok = d.lane.do(func(now clock.Time) {
		l := d.lane
		s.Status = l.nic.Status()
		s.Network, s.Mirror = l.portStatus(l.wire), l.portStatus(l.mirror)
		s.Streams = l.streamStatus()
		s.Lane = l.stats.named()
		took = l.now().Sub(now)
	})
	if ok {
		s.Lane["client_misbehaviour"] = d.misbehaviour.Load()
	}
	return s, took, ok
}

// portStatus describes a port. Lane.
func (l *lane) portStatus(p netio.Port) *PortStatus {
	if p == nil {
		return nil
	}
	for _, n := range p.Notices() {
		l.notices[p] = append(l.notices[p], n.Error())
	}
	f := p.Features()
	s := &PortStatus{
		Name: p.Name(), IPv4: f.IPv4, IPv6: f.IPv6, SegmentSend: f.SegmentSend,
		CoalesceRecv: f.CoalesceRecv, ReceiveBuffer: f.ReceiveBuffer, SendBuffer: f.SendBuffer,
		SourcePorts: f.SourcePorts, Notices: l.notices[p], Counters: map[string]uint64{},
	}
	p.Counters().Each(func(info netio.CounterInfo, value uint64) { s.Counters[info.Name] = value })
	return s
}

func (s *laneStats) named() map[string]uint64 {
	prioritised := uint64(0)
	if s.prioritised {
		prioritised = 1
	}
	return map[string]uint64{
		"turns": s.turns, "sleeps": s.sleeps, "moves": s.moves, "prioritised": prioritised,
		"looped_packets": s.looped, "malformed_packets": s.malformed,
		"unknown_opcode_packets": s.badOpcode, "packets_not_for_us": s.notForUs,
		"spoofed_packets": s.spoofed, "packets_without_network": s.withoutNetwork,
		"tx_dropped_socket_full": s.blocked, "lost_async_events": s.lostEvents,
		"evicted_sessions": s.evicted, "gids_left_out": s.gidsLeftOut,
		"groups_not_joined": s.groupsMissed,
	}
}

// status answers abi.OpStatus.
func (s *session) status(*ctl.Message) (reply, *rdma.Refusal) {
	status, ok := s.daemon.Status()
	if !ok {
		return reply{}, rdma.Refuse(unix.EIO, "the NIC is shutting down")
	}
	text, err := json.Marshal(&status)
	if err != nil {
		return reply{}, rdma.Refuse(unix.EIO, err.Error())
	}
	fd, err := shm.CreateFilled("rnic-status", text)
	if err != nil {
		return reply{}, rdma.Refuse(unix.ENOMEM, err.Error())
	}
	return reply{body: ctl.Bytes(&abi.StatusRsp{Bytes: uint32(len(text))}), fds: []int{fd}}, nil
}
