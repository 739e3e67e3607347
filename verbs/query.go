package verbs

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
	"github.com/softrnic/softrnic/internal/rdma"
)

// DeviceAttr are the limits and abilities of a device (ibv_query_device(3)).
type DeviceAttr struct {
	FWVersion                         string
	NodeGUID, SysImageGUID            GUID
	VendorID, VendorPartID, HWVersion uint32
	MaxMRSize, PageSizeCap, CapFlags  uint64
	MaxQP, MaxQPWR, MaxSGE, MaxInline int
	MaxCQ, MaxCQE, MaxMR, MaxPD       int
	MaxAH, MaxSRQ, MaxSRQWR           int
	MaxSRQSGE, MaxMW                  int
	// MaxDMSize bounds the device memory of a context, in bytes.
	MaxDMSize uint64
	// MaxQPReadAtomic bounds MaxDestRdAtomic, MaxQPInitReadAtomic bounds MaxRdAtomic.
	MaxQPReadAtomic, MaxQPInitReadAtomic int
	MaxPKeys, Ports                      int
	// MaxTags bounds the buffers of a queue that matches tags, 0 where the device has none such;
	// MaxTagOps the operations under way on its list, MaxTagSGE the entries of a buffer.
	MaxTags, MaxTagOps, MaxTagSGE int
	// MaxRendezvousHeader bounds a rendezvous request, in bytes, its headers included.
	MaxRendezvousHeader int
}

// Query returns the device's limits and abilities.
func (c *Context) Query() (DeviceAttr, error) {
	a, _, err := call[abi.DeviceAttr](c, request{op: "query device", code: abi.OpQueryDevice})
	if err != nil {
		return DeviceAttr{}, err
	}
	return DeviceAttr{
		FWVersion: text(a.FWVersion[:]), NodeGUID: GUID(a.NodeGUID),
		SysImageGUID: GUID(a.SysImageGUID), VendorID: a.VendorID, VendorPartID: a.VendorPartID,
		HWVersion: a.HWVersion, MaxMRSize: a.MaxMRSize, PageSizeCap: a.PageSizeCap,
		CapFlags: a.CapFlags, MaxQP: int(a.MaxQP), MaxQPWR: int(a.MaxQPWR), MaxSGE: int(a.MaxSGE),
		MaxInline: int(a.MaxInline), MaxCQ: int(a.MaxCQ), MaxCQE: int(a.MaxCQE),
		MaxMR: int(a.MaxMR), MaxPD: int(a.MaxPD), MaxAH: int(a.MaxAH), MaxSRQ: int(a.MaxSRQ),
		MaxSRQWR: int(a.MaxSRQWR), MaxSRQSGE: int(a.MaxSRQSGE), MaxMW: int(a.MaxMW),
		MaxDMSize:           a.MaxDMSize,
		MaxQPReadAtomic:     int(a.MaxQPReadAtomic),
		MaxQPInitReadAtomic: int(a.MaxQPInitReadAtomic),
		MaxPKeys:            int(a.MaxPKeys), Ports: int(a.Ports),
		MaxTags: int(a.MaxTags), MaxTagOps: int(a.MaxTagOps), MaxTagSGE: int(a.MaxTagSGE),
		MaxRendezvousHeader: int(a.MaxRendezvousHeader),
	}, nil
}

// PortAttr is the state of a port (ibv_query_port(3)).
type PortAttr struct {
	State             PortState
	MaxMTU, ActiveMTU MTU
	GIDTableLen       int
	PKeyTableLen      int
	MaxMsgSize        uint64
	LID               LID
	// IsEthernet tells RoCE from InfiniBand.
	IsEthernet bool
}

const linkLayerEthernet = 2

// Port returns the state of a port; ports count from 1.
func (c *Context) Port(port uint32) (PortAttr, error) {
	req := abi.PortReq{Port: port}
	a, _, err := call[abi.PortAttr](c, request{
		op: fmt.Sprintf("query port %d", port), code: abi.OpQueryPort, body: ctl.Bytes(&req),
	})
	if err != nil {
		return PortAttr{}, err
	}
	return PortAttr{
		State: PortState(a.State), MaxMTU: MTU(a.MaxMTU), ActiveMTU: MTU(a.ActiveMTU),
		GIDTableLen: int(a.GIDTableLen), PKeyTableLen: int(a.PKeyTableLen),
		MaxMsgSize: uint64(a.MaxMsgSize), LID: LID(a.LID),
		IsEthernet: a.LinkLayer == linkLayerEthernet,
	}, nil
}

// GIDEntry is a valid entry of the GID table.
type GIDEntry struct {
	GID    GID
	Index  uint32
	Port   uint32
	Type   GIDType
	IfName string // the network interface that has the address
}

// GIDs returns the valid entries of the GID table, in order. The table follows the addresses of
// the host; a GID keeps its index while it lives.
func (c *Context) GIDs() ([]GIDEntry, error) {
	list, err := callList[abi.GIDEntry](c, request{op: "query GIDs", code: abi.OpQueryGIDTable})
	if err != nil {
		return nil, err
	}
	out := make([]GIDEntry, 0, len(list))
	for i := range list {
		g := &list[i]
		out = append(out, GIDEntry{
			GID: g.GID, Index: g.Index, Port: g.Port, Type: rdma.GIDType(g.Type),
			IfName: text(g.IfName[:]),
		})
	}
	return out, nil
}

// PKey returns an entry of a port's partition key table.
func (c *Context) PKey(port, index uint32) (PKey, error) {
	req := abi.PortReq{Port: port, Index: index}
	rsp, _, err := call[abi.PKeyRsp](c, request{
		op: "query P_Key", code: abi.OpQueryPKey, body: ctl.Bytes(&req),
	})
	return PKey(rsp.PKey), err
}
