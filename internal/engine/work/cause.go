package work

import (
	"github.com/softrnic/softrnic/internal/abi"
	"github.com/softrnic/softrnic/internal/mem"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Cause is the evidence behind an error: what the NIC saw. Fields that do not apply are zero.
type Cause struct {
	Status   rdma.WCStatus // completion status, if a work request failed
	Vendor   abi.Vendor
	Syndrome uint8     // AETH syndrome of the NAK received or sent
	Fault    mem.Fault // for key, rights, bounds
	Key      rdma.Key  // or address handle, with VendorAddressHandle
	// Region is the lkey of the region that a memory window was to be bound to.
	Region rdma.Key
	Addr   uint64
	Length uint64
	WRID   uint64
	PSN    rdma.PSN
	// Retries and RNRTries count against retry_cnt and rnr_retry, Timeouts the local ACK timeouts,
	// all since the last progress.
	Retries  uint32
	RNRTries uint32
	Timeouts uint32
	// Asked are the rights that an access needed; none for reading locally.
	Asked rdma.Access
	// Room is what Length was to fit into, where HasRoom.
	Room    uint64
	HasRoom bool
	// IsResponder says that the peer's request failed here, not a request of this QP.
	IsResponder bool
	// TookReceive says that WRID is that of the receive in use.
	TookReceive bool
	// Opcode is the work request's (rdma.WROpcode), with IsResponder that of the packet (ib.Opcode),
	// or of the message (iwarp.Opcode) where HasTerminate.
	Opcode uint8
	// Terminate is the code (iwarp.Code) of the Terminate that ended a connection of iWARP, where
	// HasTerminate. IsTold says that the peer sent it, else this end has.
	Terminate    uint16
	HasTerminate bool
	IsTold       bool
}
