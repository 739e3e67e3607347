package verbs

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// AHAttr is a path to a peer: an address vector.
type AHAttr struct {
	DGID         GID
	SGIDIndex    uint8
	FlowLabel    uint32 // 20 bits; on IPv4 it only spreads load
	HopLimit     uint8  // 0 means 64
	TrafficClass uint8
	SL           uint8
	Port         uint8 // 0 means 1
	DLID         LID   // InfiniBand only
}

func (a *AHAttr) abi() abi.AHAttr {
	out := abi.AHAttr{
		DGID: a.DGID, FlowLabel: a.FlowLabel, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit,
		TrafficClass: a.TrafficClass, DLID: uint16(a.DLID), SL: a.SL, Port: a.Port,
	}
	if !a.DGID.IsZero() {
		out.IsGlobal = 1
	}
	if out.HopLimit == 0 {
		out.HopLimit = 64
	}
	if out.Port == 0 {
		out.Port = 1
	}
	return out
}

func ahAttrFrom(a *abi.AHAttr) AHAttr {
	return AHAttr{
		DGID: a.DGID, SGIDIndex: a.SGIDIndex, FlowLabel: a.FlowLabel, HopLimit: a.HopLimit,
		TrafficClass: a.TrafficClass, SL: a.SL, Port: a.Port, DLID: LID(a.DLID),
	}
}

// AH is an address handle: where a datagram goes.
type AH struct {
	pd     *PD
	handle uint32
}

// CreateAH makes an address handle.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	req := abi.CreateAHReq{PD: p.handle, Attr: attr.abi()}
	rsp, _, err := call[abi.HandleMsg](p.ctx, request{
		op: "create address handle", code: abi.OpCreateAH, body: ctl.Bytes(&req), of: p,
	})
	if err != nil {
		return nil, err
	}
	return &AH{pd: p, handle: rsp.Handle}, nil
}

// CreateAHFrom makes the address handle that answers a datagram: grh is the first GRHBytes of the
// buffer that it came in.
func (p *PD) CreateAHFrom(wc *WC, grh []byte) (*AH, error) {
	const op = "create address handle from a completion"
	if wc.Flags&WCGRH == 0 || len(grh) < GRHBytes {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, "the completion has no GRH"))
	}
	attr, dst, ok := parseGRH(grh)
	if !ok {
		return nil, refuse(op, rdma.Refuse(syscall.EINVAL, "the GRH area holds no IP header"))
	}
	gids, err := p.ctx.GIDs()
	if err != nil {
		return nil, err
	}
	for _, g := range gids {
		if g.GID == dst && g.Type != rdma.GIDTypeRoCEv1 && g.Index <= 0xff {
			attr.SGIDIndex, attr.Port, attr.SL = uint8(g.Index), uint8(g.Port), wc.SL
			return p.CreateAH(attr)
		}
	}
	return nil, refuse(op, rdma.Refuse(syscall.ENOENT,
		fmt.Sprintf("the address %v, where the datagram came to, is no longer a GID", dst)))
}

// parseGRH reads the network header that a datagram's receiver finds in front: an IPv6 header, or
// an IPv4 header in the last 20 bytes (annex A17.4.5.2). It returns the way back and the address
// that the datagram was sent to.
func parseGRH(grh []byte) (back AHAttr, to GID, ok bool) {
	if v4 := grh[20:GRHBytes]; v4[0] == 0x45 && (grh[0]>>4 != 6 || checksumHolds(v4)) {
		src, dst := netip.AddrFrom4([4]byte(v4[12:16])), netip.AddrFrom4([4]byte(v4[16:20]))
		back = AHAttr{DGID: rdma.GIDFromAddr(src), TrafficClass: v4[1]}
		return back, rdma.GIDFromAddr(dst), true
	}
	if grh[0]>>4 != 6 {
		return AHAttr{}, GID{}, false
	}
	first := binary.BigEndian.Uint32(grh)
	back = AHAttr{
		DGID: GID(grh[8:24]), TrafficClass: uint8(first >> 20), FlowLabel: first & 0xfffff,
	}
	return back, GID(grh[24:40]), true
}

// checksumHolds verifies the checksum of an IPv4 header (RFC 791 §3.1). It decides where the first
// bytes, which an IPv4 datagram leaves undefined, look like an IPv6 header.
func checksumHolds(header []byte) bool {
	sum := uint32(0)
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return sum == 0xffff
}

// Close destroys the address handle. Requests that name it must have completed.
func (a *AH) Close() error {
	return a.pd.ctx.destroy("destroy address handle", abi.OpDestroyAH, a.handle)
}
