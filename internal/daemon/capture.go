package daemon

import (
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/clock"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/netio/pcap"
	"github.com/softrnic/softrnic/internal/rdma"
	"github.com/softrnic/softrnic/internal/shm"
	"github.com/softrnic/softrnic/internal/wire/ib"
	"github.com/softrnic/softrnic/internal/wire/roce"
)

// startCapture answers abi.OpCapture: packets go into a pipe as a pcapng file. A capture shows the
// data of all programs, so it is for the NIC's owner and root, like shutdown.
func (s *session) startCapture(m *ctl.Message) (reply, *rdma.Refusal) {
	var req abi.CaptureReq
	switch {
	case !ctl.Decode(m.Body, &req):
		return reply{}, badBody(m)
	case s.peer.UID != 0 && s.peer.UID != uint32(os.Geteuid()):
		return reply{}, rdma.Refuse(unix.EPERM, fmt.Sprintf("packets are shown to the owner of the"+
			" NIC only, uid %d", os.Geteuid()))
	case s.capture != nil:
		return reply{}, rdma.Refuse(unix.EBUSY, "this connection captures already")
	case req.BufferBytes > limits.MaxCaptureBytes:
		return reply{}, rdma.Refuse(unix.EINVAL, fmt.Sprintf("a buffer of %d bytes; at most %d",
			req.BufferBytes, limits.MaxCaptureBytes))
	}
	read, write, err := shm.Pipe()
	if err != nil {
		return reply{}, rdma.Refuse(unix.EMFILE, err.Error())
	}
	l := s.daemon.lane
	c := pcap.NewCapture(pcap.CaptureConfig{
		Writer: os.NewFile(uintptr(write), "capture"), Device: s.daemon.devices[0].Name,
		Filter: l.captureFilter(&req), Stream: l.streamFilter(&req), Count: req.Count,
		Bytes: int(req.BufferBytes),
	})
	refusal := rdma.Refuse(unix.EIO, "the NIC is shutting down")
	l.doRevoking(func(clock.Time) {
		if l.taps.Len() >= limits.MaxCaptures {
			refusal = rdma.Refuse(unix.EBUSY, fmt.Sprintf("%d captures run already", l.taps.Len()))
			return
		}
		refusal = nil
		l.taps.Add(c)
		l.holdDirect(true)
	})
	if refusal != nil {
		c.Close()
		_ = unix.Close(read)
		return reply{}, refusal
	}
	s.capture = c
	return reply{fds: []int{read}}, nil
}

// endCapture answers abi.OpEndCapture. The end of the file is in the pipe or on its way there.
func (s *session) endCapture(m *ctl.Message) (reply, *rdma.Refusal) {
	switch {
	case len(m.Body) != 0:
		return reply{}, badBody(m)
	case s.capture == nil:
		return reply{}, rdma.Refuse(unix.EINVAL, "this connection does not capture")
	}
	s.untap()
	var rsp abi.CaptureRsp
	rsp.Captured, rsp.Dropped = s.capture.End()
	return reply{body: ctl.Bytes(&rsp)}, nil
}

// untap lets the lane forget the capture.
func (s *session) untap() {
	l := s.daemon.lane
	l.do(func(clock.Time) { l.taps.Remove(s.capture) })
}

// closeCapture ends the capture of a session that ends, whoever reads it or does not.
func (s *session) closeCapture() {
	if s.capture != nil {
		s.untap()
		s.capture.Close()
	}
}

// captureFilter is what the request wants; nil for everything. The filter runs on the lane.
func (l *lane) captureFilter(req *abi.CaptureReq) func(*roce.Path, ib.Packet) bool {
	var byQP, byAddress func(*roce.Path, ib.Packet) bool
	if req.QPN != 0 {
		byQP = l.qpFilter(rdma.QPN(req.QPN))
	}
	if gid := rdma.GID(req.Address); !gid.IsZero() {
		byAddress = pcap.FilterAddress(gid.Addr())
	}
	switch {
	case byQP == nil:
		return byAddress
	case byAddress == nil:
		return byQP
	}
	return func(path *roce.Path, head ib.Packet) bool {
		return byAddress(path, head) && byQP(path, head)
	}
}

// qpFilter wants packets to and from a QP of this NIC. Packets of connections do not say where
// they are from, so those from it are recognised by where they go. What it last knew of the peer
// serves for packets that come after the QP's end.
func (l *lane) qpFilter(qpn rdma.QPN) func(*roce.Path, ib.Packet) bool {
	var peer rdma.QPN
	var host netip.Addr
	return func(path *roce.Path, head ib.Packet) bool {
		bth, err := ib.ParseBTH(head)
		if err != nil {
			return false
		}
		dest := bth.DestQPN
		if dest == qpn && l.isOwn(path.Dst) {
			return true
		}
		if !l.isOwn(path.Src) {
			return false
		}
		if bth.Opcode.Class() == ib.ClassUD {
			deth, err := ib.ParseDETH(head[ib.BTHLen:])
			return err == nil && deth.SrcQPN == qpn
		}
		if gid, to, ok := l.nic.PeerOf(qpn); ok {
			peer, host = to, gid.Addr()
		}
		return host.IsValid() && dest == peer && path.Dst.Unmap() == host.Unmap()
	}
}

func (l *lane) isOwn(addr netip.Addr) bool {
	return l.nic.IsLocal(rdma.GIDFromAddr(addr)) || l.nic.HasGroup(rdma.GIDFromAddr(addr))
}

// tap shows l.tx, which no port carries, to captures.
func (l *lane) tap() {
	path := pathOf(&l.tx)
	l.taps.Local(&path, &l.tx.Headers, l.tx.Payload)
}
