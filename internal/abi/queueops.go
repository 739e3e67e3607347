package abi

// Control requests about queues that exist.
const (
	OpResizeCQ Op = 70 // ResizeCQReq; the reply is a CreateCQRsp with a memfd of slots
	OpModifyCQ Op = 71 // ModifyCQReq
)

// ResizeCQReq asks for a completion queue of another size. The queue keeps its header where it is;
// the reply's memfd holds nothing but Entries × CQEBytes, and the completions that were not polled
// are there at their indices. The application polls nothing from the request to the reply.
type ResizeCQReq struct {
	Handle  uint32
	Entries uint32
}

// ModifyCQReq moderates a completion queue's events: one comes after Count completions, or
// PeriodMicroseconds after the first. Either being 0 ends the moderation.
type ModifyCQReq struct {
	Handle             uint32
	Count              uint32
	PeriodMicroseconds uint32
	Reserved           uint32
}
