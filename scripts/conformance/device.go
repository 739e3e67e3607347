package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/explain"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/nic"
	"github.com/softrnic/softrnic/internal/rdma"
)

// device is a NIC without a network, to ask.
type device struct {
	context *nic.Context
	pd, cq  uint32
}

// heap gives queues memory that nobody else sees.
type heap struct{}

type block []byte

func (heap) Alloc(n int) (nic.Shared, error) { return block(make([]byte, n)), nil }
func (b block) Bytes() []byte                { return b }
func (b block) Release()                     {}

func newDevice(transport nic.Transport) *device {
	n := nic.New(nic.Config{
		Devices:  []nic.DeviceConfig{{Name: "device", Transport: transport}},
		NodeGUID: 1, Secret: 1, Memory: heap{},
	})
	var g rdma.GID
	g[15] = 1
	n.SetPort(0, 0, nic.Port{MTU: rdma.MTU1024, Active: true, GIDs: []abi.GIDEntry{
		{GID: g, Port: 1, Type: uint32(rdma.GIDTypeRoCEv2)},
	}})
	c, _ := n.OpenContext(0, nic.ContextConfig{
		Name: "conformance", Doorbells: make([]byte, abi.DoorbellPageBytes),
	})
	d := &device{context: c}
	d.pd, _ = c.AllocPD()
	rsp, _, _ := c.CreateCQ(&abi.CreateCQReq{Entries: 16})
	d.cq = rsp.Handle
	return d
}

// answer is a refusal in words.
func answer(r *rdma.Refusal) string {
	if r == nil {
		return "works"
	}
	return explain.ErrnoName(r.Errno)
}

// ask tries something on the NIC: "qpt 2" makes a queue pair, "access 0x4" registers memory.
func (d *device) ask(what, argument string) (string, error) {
	if what == "limit" {
		return d.limit(argument)
	}
	n, err := strconv.ParseUint(argument, 0, 64)
	if err != nil {
		return "", err
	}
	switch what {
	case "qpt":
		req := abi.CreateQPReq{
			Type: uint32(n), PD: d.pd, SendCQ: d.cq, RecvCQ: d.cq, MaxSendWR: 1, MaxRecvWR: 1,
		}
		if rdma.QPType(n) == rdma.QPTypeXRCRecv {
			domain, _ := d.context.OpenXRCD(nil, 0)
			req = abi.CreateQPReq{Type: uint32(n), XRCD: domain}
		}
		_, _, r := d.context.CreateQP(0, &req)
		return answer(r), nil
	case "access":
		access := uint32(n) | uint32(rdma.AccessLocalWrite)
		_, r := d.context.RegMR(&abi.RegMRReq{
			PD: d.pd, Access: access, Addr: 4096, Length: 4096,
			IOVA: 4096,
		}, []mem.Segment{{Addr: 4096, Length: 4096, Mapped: make([]byte, 4096)}})
		return answer(r), nil
	case "cap":
		attr := d.context.DeviceAttr()
		if attr.CapFlags&n != 0 {
			return "set", nil
		}
		return "not set", nil
	}
	return "", fmt.Errorf("nothing is asked by %q", what)
}

// limit is a field of the device's attributes.
func (d *device) limit(field string) (string, error) {
	attr := d.context.DeviceAttr()
	v := reflect.ValueOf(&attr).Elem().FieldByName(field)
	if !v.IsValid() {
		return "", fmt.Errorf("a device has no attribute %s", field)
	}
	return strings.TrimSpace(fmt.Sprint(v.Uint())), nil
}
