package main

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/limits"
)

// structs lists the structures of package abi, each after those it contains. A test compares the
// list with the package's source.
//
//tidy:table
var structs = []any{
	abi.SendWQE{},
	abi.RecvWQE{},
	abi.SGE{},
	abi.CQE{},
	abi.Header{},
	abi.HelloReq{},
	abi.HelloRsp{},
	abi.DeviceInfo{},
	abi.OpenDeviceReq{},
	abi.OpenDeviceRsp{},
	abi.DeviceAttr{},
	abi.PortReq{},
	abi.PortAttr{},
	abi.GIDEntry{},
	abi.PKeyRsp{},
	abi.HandleMsg{},
	abi.Segment{},
	abi.RegMRReq{},
	abi.RegMRRsp{},
	abi.CompEvent{},
	abi.AsyncEvent{},
	abi.CreateCQReq{},
	abi.CreateCQRsp{},
	abi.CreateQPReq{},
	abi.CreateQPRsp{},
	abi.AHAttr{},
	abi.QPAttr{},
	abi.ModifyQPReq{},
	abi.QueryQPRsp{},
	abi.CreateAHReq{},
	abi.CreateSRQReq{},
	abi.CreateSRQRsp{},
	abi.SRQAttr{},
	abi.StatusRsp{},
}

type constant struct {
	name  string
	value uint64
}

// constants lists the constants of package abi by what they are for. The same test compares it
// with the source.
//
//tidy:table
var constants = []struct {
	title string
	list  []constant
}{
	{"Version of the contract.", []constant{
		{"Version", abi.Version},
		{"Magic", uint64(abi.Magic)},
	}},
	{"Queue memory.", []constant{
		{"QueueHeaderBytes", abi.QueueHeaderBytes},
		{"OffSQProducer", abi.OffSQProducer},
		{"OffSQConsumer", abi.OffSQConsumer},
		{"OffRQProducer", abi.OffRQProducer},
		{"OffRQConsumer", abi.OffRQConsumer},
		{"OffQPState", abi.OffQPState},
		{"OffRQDoorbell", abi.OffRQDoorbell},
		{"OffCQProducer", abi.OffCQProducer},
		{"OffCQConsumer", abi.OffCQConsumer},
		{"OffCQArm", abi.OffCQArm},
		{"OffCQState", abi.OffCQState},
		{"ArmNone", uint64(abi.ArmNone)},
		{"ArmSolicited", uint64(abi.ArmSolicited)},
		{"ArmNext", uint64(abi.ArmNext)},
		{"SendWQEBytes", abi.SendWQEBytes},
		{"RecvWQEBytes", abi.RecvWQEBytes},
		{"SGEBytes", abi.SGEBytes},
		{"CQEBytes", abi.CQEBytes},
		{"CQESkip", uint64(abi.CQESkip)},
	}},
	{"Doorbell page and lane page.", []constant{
		{"DoorbellPageBytes", abi.DoorbellPageBytes},
		{"DoorbellSlots", abi.DoorbellSlots},
		{"OffDoorbellSummary", abi.OffDoorbellSummary},
		{"OffDoorbellWords", abi.OffDoorbellWords},
		{"LanePageBytes", abi.LanePageBytes},
		{"OffLaneSleeping", abi.OffLaneSleeping},
	}},
	{"Control requests.", []constant{
		{"OpHello", uint64(abi.OpHello)},
		{"OpListDevices", uint64(abi.OpListDevices)},
		{"OpOpenDevice", uint64(abi.OpOpenDevice)},
		{"OpQueryDevice", uint64(abi.OpQueryDevice)},
		{"OpQueryPort", uint64(abi.OpQueryPort)},
		{"OpQueryGIDTable", uint64(abi.OpQueryGIDTable)},
		{"OpQueryPKey", uint64(abi.OpQueryPKey)},
		{"OpAllocPD", uint64(abi.OpAllocPD)},
		{"OpDeallocPD", uint64(abi.OpDeallocPD)},
		{"OpRegMR", uint64(abi.OpRegMR)},
		{"OpDeregMR", uint64(abi.OpDeregMR)},
		{"OpCreateCompChannel", uint64(abi.OpCreateCompChannel)},
		{"OpDestroyCompChannel", uint64(abi.OpDestroyCompChannel)},
		{"OpCreateCQ", uint64(abi.OpCreateCQ)},
		{"OpDestroyCQ", uint64(abi.OpDestroyCQ)},
		{"OpCreateQP", uint64(abi.OpCreateQP)},
		{"OpModifyQP", uint64(abi.OpModifyQP)},
		{"OpQueryQP", uint64(abi.OpQueryQP)},
		{"OpDestroyQP", uint64(abi.OpDestroyQP)},
		{"OpCreateAH", uint64(abi.OpCreateAH)},
		{"OpDestroyAH", uint64(abi.OpDestroyAH)},
		{"OpCreateSRQ", uint64(abi.OpCreateSRQ)},
		{"OpModifySRQ", uint64(abi.OpModifySRQ)},
		{"OpQuerySRQ", uint64(abi.OpQuerySRQ)},
		{"OpDestroySRQ", uint64(abi.OpDestroySRQ)},
		{"OpStatus", uint64(abi.OpStatus)},
		{"OpShutdown", uint64(abi.OpShutdown)},
	}},
	{"Vendor errors of completions.", []constant{
		{"VendorNone", uint64(abi.VendorNone)},
		{"VendorNak", uint64(abi.VendorNak)},
		{"VendorAckTimeout", uint64(abi.VendorAckTimeout)},
		{"VendorSequence", uint64(abi.VendorSequence)},
		{"VendorRNR", uint64(abi.VendorRNR)},
		{"VendorNoNIC", uint64(abi.VendorNoNIC)},
		{"VendorLocalKey", uint64(abi.VendorLocalKey)},
		{"VendorLocalBounds", uint64(abi.VendorLocalBounds)},
		{"VendorLocalFault", uint64(abi.VendorLocalFault)},
		{"VendorLength", uint64(abi.VendorLength)},
		{"VendorOpcode", uint64(abi.VendorOpcode)},
		{"VendorAddressHandle", uint64(abi.VendorAddressHandle)},
		{"VendorBadWQE", uint64(abi.VendorBadWQE)},
		{"VendorBadResponse", uint64(abi.VendorBadResponse)},
		{"VendorNoRoute", uint64(abi.VendorNoRoute)},
		{"VendorRemoteRights", uint64(abi.VendorRemoteRights)},
		{"VendorRDAtomic", uint64(abi.VendorRDAtomic)},
		{"VendorFlushed", uint64(abi.VendorFlushed)},
	}},
	{"Limits that both ends share.", []constant{
		{"MaxMRSegments", limits.MaxMRSegments},
		{"MaxMessage", limits.MaxMessage},
		{"MaxFDs", limits.MaxFDs},
	}},
}
