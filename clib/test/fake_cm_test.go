package clibtest

import (
	"cmp"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Events and port spaces of <rdma/rdma_cma.h>, as far as the fake has them.
const (
	cmAddrResolved    = 0
	cmAddrError       = 1
	cmRouteResolved   = 2
	cmConnectRequest  = 4
	cmConnectResponse = 5
	cmRejected        = 8
	cmEstablished     = 9
	cmDisconnected    = 10
	cmMulticastJoin   = 12
	cmTimewaitExit    = 15
	cmPortSpaceUDP    = 0x0111
)

// fakeCM connects ids to each other, whichever programs have them, without a packet: what it is
// told it tells the other side at once.
type fakeCM struct {
	next     uint32
	channels map[uint32]int // the NIC's end of the pipe
	ids      map[uint32]*fakeID
	joins    map[uint32]*fakeID
	options  []abi.CMOptionReq
	insists  []string // the devices that programs insisted on, "" for none
	ops      []abi.Op
}

type fakeID struct {
	conn            *fakeConn
	handle, channel uint32
	ps, qpType      uint32
	device          string
	route           abi.CMRoute
	listening       bool
	peer            *fakeID
	connected       bool
}

func newFakeCM() *fakeCM {
	return &fakeCM{
		channels: map[uint32]int{}, ids: map[uint32]*fakeID{}, joins: map[uint32]*fakeID{},
	}
}

func (m *fakeCM) handle() uint32 {
	m.next++
	return m.next
}

func (m *fakeCM) tell(id *fakeID, e abi.CMEvent) {
	if id == nil || m.ids[id.handle] != id {
		return
	}
	if e.ID == 0 {
		e.ID = id.handle
	}
	_, _ = unix.Write(m.channels[id.channel], ctl.Bytes(&e))
}

// closeOf forgets what a program had, as when it ends.
func (m *fakeCM) closeOf(c *fakeConn) {
	for handle, id := range m.ids {
		if id.conn == c {
			delete(m.ids, handle)
		}
	}
}

func (c *fakeConn) executeCM(m *ctl.Message) ctl.Message {
	cm := c.nic.cm
	cm.ops = append(cm.ops, m.Op)
	switch m.Op {
	case abi.OpOpenCM:
		return body(abi.HandleMsg{Handle: 1})
	case abi.OpCreateEventChannel:
		read, write := c.pipe()
		h := cm.handle()
		cm.channels[h] = write
		rsp := body(abi.HandleMsg{Handle: h})
		rsp.FDs = []int{read}
		return rsp
	case abi.OpDestroyEventChannel:
		delete(cm.channels, decode[abi.HandleMsg](c, m).Handle)
		return ctl.Message{}
	case abi.OpCreateID:
		req := decode[abi.CreateIDReq](c, m)
		device, _, _ := strings.Cut(string(req.Device[:]), "\x00")
		if device != "" && device != "rnic0" && device != "iwarp0" {
			return refuse(syscall.ENODEV, "there is no device "+device)
		}
		cm.insists = append(cm.insists, device)
		id := &fakeID{
			conn: c, handle: cm.handle(), channel: req.Channel, ps: req.PortSpace,
			qpType: req.QPType, device: cmp.Or(device, "rnic0"),
		}
		cm.ids[id.handle] = id
		return body(abi.HandleMsg{Handle: id.handle})
	case abi.OpLeaveMulticast:
		join := decode[abi.HandleMsg](c, m).Handle
		if cm.joins[join] == nil {
			return refuse(syscall.ENOENT, "no such join")
		}
		delete(cm.joins, join)
		return ctl.Message{}
	}
	var head uint32
	if _, ok := ctl.DecodeHead(m.Body, &head); !ok || cm.ids[head] == nil {
		return refuse(syscall.EINVAL, "no such id")
	}
	return c.executeID(cm.ids[head], m)
}

func (c *fakeConn) executeID(id *fakeID, m *ctl.Message) ctl.Message {
	cm := c.nic.cm
	switch m.Op {
	case abi.OpDestroyID:
		if id.connected && id.peer != nil {
			cm.disconnect(id)
		} else if id.peer != nil {
			cm.tell(id.peer, abi.CMEvent{Event: cmRejected, Status: 28})
		}
		delete(cm.ids, id.handle)
	case abi.OpBindAddr:
		return id.bind(cm, decode[abi.CMAddrReq](c, m).Src)
	case abi.OpResolveAddr:
		return id.resolve(cm, decode[abi.CMAddrReq](c, m))
	case abi.OpResolveRoute:
		id.route.HasRoute, id.route.PathMTU, id.route.HopLimit = 1, 3, 64
		cm.tell(id, abi.CMEvent{Event: cmRouteResolved})
	case abi.OpQueryID:
		return body(id.route)
	case abi.OpListen:
		id.listening = true
		return body(id.route)
	case abi.OpConnect, abi.OpAccept, abi.OpReject:
		return id.converse(cm, m.Op, decode[abi.CMConnReq](c, m))
	case abi.OpDisconnect:
		if id.peer != nil { // else it is disconnected already
			cm.disconnect(id)
		}
	case abi.OpEstablish:
		id.connected = true
		cm.tell(id.peer, abi.CMEvent{Event: cmEstablished})
	case abi.OpNotify:
		if decode[abi.CMNotifyReq](c, m).Event != uint32(rdma.EventCommEst) {
			return refuse(syscall.EINVAL, "not an event of connections")
		}
		return refuse(syscall.EISCONN, "connected already")
	case abi.OpInitQPAttr:
		return id.initQPAttr(rdma.QPState(decode[abi.CMInitQPAttrReq](c, m).State))
	case abi.OpSetOption:
		cm.options = append(cm.options, decode[abi.CMOptionReq](c, m))
	case abi.OpMigrateID:
		id.channel = decode[abi.CMMigrateReq](c, m).Channel
	case abi.OpJoinMulticast:
		return id.join(cm, decode[abi.CMMulticastReq](c, m))
	default:
		return refuse(syscall.EOPNOTSUPP, "the fake cannot")
	}
	return ctl.Message{}
}

func (id *fakeID) bindDevice() {
	copy(id.route.Device[:], id.device)
	id.route.Port, id.route.PKey = 1, 0xffff
	id.route.SGID = [16]byte{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}
}

func (id *fakeID) bind(cm *fakeCM, addr abi.CMAddr) ctl.Message {
	if id.route.Src = addr; addr.Port == 0 {
		id.route.Src.Port = uint16(40000 + cm.next%1000)
	}
	if addr.Addr != [16]byte{} {
		id.bindDevice()
	}
	return body(id.route)
}

func (id *fakeID) resolve(cm *fakeCM, req abi.CMAddrReq) ctl.Message {
	id.route.Dst = req.Dst
	if req.Dst.Addr[3] == 99 { // nobody lives there
		cm.tell(id, abi.CMEvent{Event: cmAddrError, Status: -int32(syscall.EHOSTUNREACH)})
		return ctl.Message{}
	}
	id.bindDevice()
	id.route.DGID = [16]byte{10: 0xff, 11: 0xff}
	copy(id.route.DGID[12:], req.Dst.Addr[:4])
	if id.route.Src = req.Src; req.Src.Family == 0 {
		id.route.Src = abi.CMAddr{Family: req.Dst.Family, Port: 50000, Addr: [16]byte{192, 0, 2, 1}}
	}
	cm.tell(id, abi.CMEvent{Event: cmAddrResolved})
	return ctl.Message{}
}

func (id *fakeID) converse(cm *fakeCM, op abi.Op, req abi.CMConnReq) ctl.Message {
	p := req.Param
	p.ResponderResources, p.InitiatorDepth = p.InitiatorDepth, p.ResponderResources
	switch {
	case op == abi.OpConnect:
		return id.connect(cm, p)
	case id.peer == nil:
		return refuse(syscall.EINVAL, "nothing to answer")
	case op == abi.OpReject:
		reason := int32(28)
		if req.Reason != 0 {
			reason = int32(req.Reason)
		}
		cm.tell(id.peer, abi.CMEvent{Event: cmRejected, Status: reason, Param: p})
		id.peer.peer, id.peer = nil, nil
	case id.ps == cmPortSpaceUDP:
		p.QKey, p.AH = 0x01234567, abi.AHAttr{IsGlobal: 1, Port: 1, DGID: id.route.DGID}
		cm.tell(id.peer, abi.CMEvent{Event: cmEstablished, Param: p})
	default:
		id.connected = true
		cm.tell(id.peer, abi.CMEvent{Event: cmConnectResponse, Param: p})
	}
	return ctl.Message{}
}

func (id *fakeID) connect(cm *fakeCM, p abi.CMParam) ctl.Message {
	for _, l := range cm.ids {
		if !l.listening || l.ps != id.ps || l.route.Src.Port != id.route.Dst.Port {
			continue
		}
		child := &fakeID{
			conn: l.conn, handle: cm.handle(), channel: l.channel, ps: l.ps, qpType: l.qpType,
			device: id.device, peer: id,
		}
		child.route.Src, child.route.Dst = id.route.Dst, id.route.Src
		child.bindDevice()
		child.route.HasRoute = 1
		cm.ids[child.handle] = child
		id.peer = child
		cm.tell(l, abi.CMEvent{
			ID: child.handle, ListenID: l.handle, Event: cmConnectRequest, Param: p,
		})
		return ctl.Message{}
	}
	cm.tell(id, abi.CMEvent{Event: cmRejected, Status: 8})
	return ctl.Message{}
}

func (m *fakeCM) disconnect(id *fakeID) {
	for _, side := range []*fakeID{id, id.peer} {
		m.tell(side, abi.CMEvent{Event: cmDisconnected})
		m.tell(side, abi.CMEvent{Event: cmTimewaitExit})
	}
	id.peer.peer, id.peer = nil, nil
}

func (id *fakeID) initQPAttr(state rdma.QPState) ctl.Message {
	const (
		toINIT = rdma.QPAttrState | rdma.QPAttrPKeyIndex | rdma.QPAttrPort
		toRTR  = rdma.QPAttrState | rdma.QPAttrDestQPN | rdma.QPAttrMaxDestRdAtomic
		toRTS  = rdma.QPAttrState | rdma.QPAttrMaxQPRdAtomic | rdma.QPAttrTimeout
	)
	rsp := abi.CMInitQPAttrRsp{Attr: abi.QPAttr{
		State: uint32(state), Port: 1, MaxRdAtomic: 5, MaxDestRdAtomic: 6, QKey: 0x01234567,
		DestQPN: 77, Timeout: 19,
	}}
	switch state {
	case rdma.QPStateInit:
		rsp.Mask = uint32(toINIT | rdma.QPAttrAccessFlags)
		if id.ps == cmPortSpaceUDP {
			rsp.Mask = uint32(toINIT | rdma.QPAttrQKey)
		}
	case rdma.QPStateRTR:
		rsp.Mask = uint32(toRTR)
	case rdma.QPStateRTS:
		rsp.Mask = uint32(toRTS)
	default:
		return refuse(syscall.EINVAL, "no such state")
	}
	return body(rsp)
}

func (id *fakeID) join(cm *fakeCM, req abi.CMMulticastReq) ctl.Message {
	h := cm.handle()
	cm.joins[h] = id
	ah := abi.AHAttr{IsGlobal: 1, Port: 1, DLID: 0xc001, DGID: [16]byte{0xff, 0x0e, 15: 9}}
	copy(ah.DGID[11:], req.Addr.Addr[:4])
	cm.tell(id, abi.CMEvent{
		Event: cmMulticastJoin, Join: h, Param: abi.CMParam{QPN: 0xffffff, QKey: 0x01234567, AH: ah},
	})
	return body(abi.HandleMsg{Handle: h})
}
