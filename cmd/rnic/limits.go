package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/ctl"
)

// property is one line of what "rnic devinfo -v" says, under the name that ibv_devinfo uses.
type property struct{ name, value string }

// deviceAttr asks for what ibv_query_device would say. It opens the device, as a program does.
func (o *clientOptions) deviceAttr(device string) (abi.DeviceAttr, error) {
	var attr abi.DeviceAttr
	c, err := dial(o.socket)
	if err != nil {
		return attr, err
	}
	defer func() { _ = c.Close() }()
	var request abi.OpenDeviceReq
	copy(request.Name[:len(request.Name)-1], device)
	_, fds, err := ctl.Call[abi.OpenDeviceRsp](c.Client, abi.OpOpenDevice, ctl.Bytes(&request))
	if err != nil {
		return attr, err
	}
	for _, fd := range fds {
		_ = unix.Close(fd) // queues and events are for programs that use the device
	}
	attr, _, err = ctl.Call[abi.DeviceAttr](c.Client, abi.OpQueryDevice, nil)
	return attr, err
}

// limitsOf lists the limits that programs ask for.
//
//tidy:table
func limitsOf(a *abi.DeviceAttr) []property {
	var out []property
	number := func(name string, value uint32) {
		out = append(out, property{name, fmt.Sprint(value)})
	}
	out = append(out, property{"max_mr_size", fmt.Sprintf("%#x", a.MaxMRSize)})
	number("max_qp", a.MaxQP)
	number("max_qp_wr", a.MaxQPWR)
	number("max_sge", a.MaxSGE)
	number("max_sge_rd", a.MaxSGERead)
	number("max_inline_data", a.MaxInline)
	number("max_cq", a.MaxCQ)
	number("max_cqe", a.MaxCQE)
	number("max_mr", a.MaxMR)
	number("max_pd", a.MaxPD)
	number("max_qp_rd_atom", a.MaxQPReadAtomic)
	number("max_qp_init_rd_atom", a.MaxQPInitReadAtomic)
	number("max_res_rd_atom", a.MaxResReadAtomic)
	number("max_srq", a.MaxSRQ)
	number("max_srq_wr", a.MaxSRQWR)
	number("max_srq_sge", a.MaxSRQSGE)
	number("max_num_tags", a.MaxTags)
	number("max_ops", a.MaxTagOps)
	number("max_rndv_hdr_size", a.MaxRendezvousHeader)
	number("max_ah", a.MaxAH)
	number("max_mw", a.MaxMW)
	out = append(out, property{"max_dm_size", fmt.Sprint(a.MaxDMSize)})
	out = append(out, property{"max_dm_size", fmt.Sprint(a.MaxDMSize)})
	number("max_mcast_grp", a.MaxMcastGrp)
	number("max_pkeys", a.MaxPKeys)
	number("local_ca_ack_delay", a.LocalCAAckDelay)
	return out
}
