package abi

// Control requests about queues that exist.
const (
	OpResizeCQ Op = 70 // ResizeCQReq; the reply is a CreateCQRsp with a memfd of slots
	OpModifyCQ Op = 71 // ModifyCQReq
	// OpResizeSRQ is for shared receive queues what OpResizeCQ is for the others: a ResizeSRQReq,
	// and a CreateSRQRsp with a memfd of slots. The application posts nothing meanwhile.
	OpResizeSRQ Op = 79
)

// ResizeCQReq asks for a completion queue of another size. The queue keeps its header where it is;
// the reply's memfd holds nothing but Entries × CQEBytes, and the completions that were not polled
// are there at their indices. The application polls nothing from the request to the reply.
type ResizeCQReq struct {
	Handle  uint32
	Entries uint32
}

// ResizeSRQReq asks for a shared receive queue of another size. Receives may then have MaxSGE
// entries, where that is more than before.
type ResizeSRQReq struct {
	Handle   uint32
	Entries  uint32
	MaxSGE   uint32
	Reserved uint32
}

// ModifyCQReq moderates a completion queue's events: one comes after Count completions, or
// PeriodMicroseconds after the first. Either being 0 ends the moderation.
type ModifyCQReq struct {
	Handle             uint32
	Count              uint32
	PeriodMicroseconds uint32
	Reserved           uint32
}

// Control requests about XRC.
const (
	OpOpenXRCD  Op = 72 // OpenXRCDReq, with a descriptor of the file if there is one; reply HandleMsg
	OpCloseXRCD Op = 73 // HandleMsg
	OpOpenQP    Op = 74 // OpenQPReq; reply HandleMsg
)

// OpenXRCDReq opens an XRC domain: the one of the file whose descriptor comes with it, or one for
// this context alone.
type OpenXRCDReq struct {
	Flags    uint32 // XRCDCreate, XRCDExclusive
	Reserved uint32
}

// Flags of an OpenXRCDReq.
const (
	// XRCDCreate makes the domain where there is none (O_CREAT).
	XRCDCreate = 1
	// XRCDExclusive refuses a domain that is there (O_EXCL).
	XRCDExclusive = 2
)

// OpenQPReq asks for a handle of a receiving XRC queue pair of the domain.
type OpenQPReq struct {
	XRCD     uint32
	QPN      uint32
	Type     uint32 // enum ibv_qp_type
	Reserved uint32
}

// Control requests about objects of another context, of this process or another.
const (
	OpImportContext Op = 75 // with the other context's command descriptor; then the others may follow
	OpImportPD      Op = 76 // HandleMsg; reply HandleMsg
	OpImportMR      Op = 77 // ImportMRReq; reply ImportMRRsp
	OpImportDM      Op = 78 // HandleMsg; reply AllocDMRsp with the memfd
)

// ImportMRReq asks for the keys of a region in a protection domain that was imported.
type ImportMRReq struct {
	PD     uint32
	Handle uint32
}

// ImportMRRsp describes the region.
type ImportMRRsp struct {
	Handle   uint32
	LKey     uint32
	RKey     uint32
	Reserved uint32
	Length   uint64
	IOVA     uint64
}
