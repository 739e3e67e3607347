package abi

// Requests about memory beyond registration.
const (
	OpAllocMW     Op = 80 // AllocMWReq; reply AllocMWRsp
	OpDeallocMW   Op = 81 // HandleMsg
	OpReregMR     Op = 82 // ReregMRReq; reply RegMRRsp
	OpAllocNullMR Op = 83 // HandleMsg of the PD; reply RegMRRsp
	OpAdviseMR    Op = 84 // AdviseMRReq; reply as many SGEs, at the addresses of the application
	OpAllocDM     Op = 85 // AllocDMReq; reply AllocDMRsp, with the memory's memfd
	OpFreeDM      Op = 86 // HandleMsg
	OpRegDeviceMR Op = 87 // RegDeviceMRReq; reply RegMRRsp
)

// AllocMWReq makes a memory window, which is then bound by work requests: SendWQE.RKey is its new
// remote key, in which the library has changed the variant, the lowest 8 bits.
type AllocMWReq struct {
	PD   uint32
	Type uint32 // enum ibv_mw_type
}

// AllocMWRsp names the new window.
type AllocMWRsp struct {
	Handle uint32
	RKey   uint32
}

// ReregMRReq changes a region, whose keys stay. It is followed by NumSegments Segments, as RegMRReq
// is, if Flags say that the translation or the access changes: the NIC maps memory by its rights.
type ReregMRReq struct {
	Handle      uint32
	Flags       uint32 // enum ibv_rereg_mr_flags
	PD          uint32
	Access      uint32
	Addr        uint64 // without a new translation, that of the region
	Length      uint64
	IOVA        uint64
	NumSegments uint32
	Reserved    uint32
}

// AdviseMRReq gives advice about ranges of on-demand regions; it is followed by NumSGE SGEs. The
// NIC judges it. To follow it is for the library, since the pages are the application's.
type AdviseMRReq struct {
	PD     uint32
	Advice uint32 // enum ibv_advise_mr_advice
	Flags  uint32
	NumSGE uint32
}

// AllocDMReq asks for device memory.
type AllocDMReq struct {
	Length   uint64
	AlignLog uint32 // the address is a multiple of 2^AlignLog
	Reserved uint32
}

// AllocDMRsp comes with a memfd of Length bytes.
type AllocDMRsp struct {
	Length   uint64 // what was asked for; of OpAllocDM in whole pages
	Handle   uint32
	Reserved uint32
}

// RegDeviceMRReq registers a part of device memory. Its addresses count from 0.
type RegDeviceMRReq struct {
	PD     uint32
	DM     uint32
	Offset uint64
	Length uint64
	Access uint32 // with rdma.AccessZeroBased
	Flags  uint32 // 0
}
