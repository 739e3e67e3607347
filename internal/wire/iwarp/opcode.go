package iwarp

import "fmt"

// Opcode is the message type in the RDMAP control byte, 4 bits (RFC 5040 4.1, RFC 7306 4).
type Opcode uint8

// Opcodes.
const (
	OpcodeWrite              Opcode = 0
	OpcodeReadRequest        Opcode = 1
	OpcodeReadResponse       Opcode = 2
	OpcodeSend               Opcode = 3
	OpcodeSendInvalidate     Opcode = 4
	OpcodeSendSolicited      Opcode = 5
	OpcodeSendSolicitedInv   Opcode = 6
	OpcodeTerminate          Opcode = 7
	OpcodeImmediate          Opcode = 8
	OpcodeImmediateSolicited Opcode = 9
	OpcodeAtomicRequest      Opcode = 10
	OpcodeAtomicResponse     Opcode = 11
	opcodeCount                     = 16
)

// QN is the number of an untagged DDP queue.
type QN uint32

// Queues (RFC 5040 5.1, RFC 7306 4).
const (
	QNSend      QN = 0 // Sends and immediate data: receives of the application
	QNRequest   QN = 1 // READ and atomic requests
	QNTerminate QN = 2
	QNAtomic    QN = 3 // answers to atomics
	QNCount        = 4
)

// Kind is what a message does, whatever its variants. The zero value is an unknown opcode.
type Kind uint8

// Kinds.
const (
	KindUnknown Kind = iota
	KindWrite
	KindReadRequest
	KindReadResponse
	KindSend
	KindTerminate
	KindImmediate
	KindAtomicRequest
	KindAtomicResponse
)

// OpcodeInfo is a row of the opcode table. The row of an unknown opcode is the zero value.
type OpcodeInfo struct {
	Name string
	Kind Kind
	// Tagged messages place into a named buffer, the others into the next one of Queue.
	Tagged bool
	Queue  QN
	// Solicited asks for an event, Invalidate takes the rights of an STag away.
	Solicited, Invalidate bool
	// ContentLen is the exact length of the payload of a message that has a layout of its own, 0
	// where the payload is the application's or of any length.
	ContentLen int
}

var opcodeTable = [opcodeCount]OpcodeInfo{
	OpcodeWrite: {Name: "WRITE", Kind: KindWrite, Tagged: true},
	OpcodeReadRequest: {
		Name: "READ_REQUEST", Kind: KindReadRequest, Queue: QNRequest,
		ContentLen: ReadRequestLen,
	},
	OpcodeReadResponse:   {Name: "READ_RESPONSE", Kind: KindReadResponse, Tagged: true},
	OpcodeSend:           {Name: "SEND", Kind: KindSend},
	OpcodeSendInvalidate: {Name: "SEND_INV", Kind: KindSend, Invalidate: true},
	OpcodeSendSolicited:  {Name: "SEND_SE", Kind: KindSend, Solicited: true},
	OpcodeSendSolicitedInv: {
		Name: "SEND_SE_INV", Kind: KindSend, Solicited: true, Invalidate: true,
	},
	OpcodeTerminate: {Name: "TERMINATE", Kind: KindTerminate, Queue: QNTerminate},
	OpcodeImmediate: {Name: "IMMEDIATE", Kind: KindImmediate, ContentLen: ImmediateLen},
	OpcodeImmediateSolicited: {
		Name: "IMMEDIATE_SE", Kind: KindImmediate, Solicited: true, ContentLen: ImmediateLen,
	},
	OpcodeAtomicRequest: {
		Name: "ATOMIC_REQUEST", Kind: KindAtomicRequest, Queue: QNRequest,
		ContentLen: AtomicRequestLen,
	},
	OpcodeAtomicResponse: {
		Name: "ATOMIC_RESPONSE", Kind: KindAtomicResponse, Queue: QNAtomic,
		ContentLen: AtomicResponseLen,
	},
}

// Info returns the opcode's row, never nil. Nobody may change it.
func (o Opcode) Info() *OpcodeInfo { return &opcodeTable[o&(opcodeCount-1)] }

// IsKnown reports an opcode that a standard defines.
func (o Opcode) IsKnown() bool { return o < opcodeCount && o.Info().Kind != KindUnknown }

// String returns the name, like SEND_SE, or the number when unknown.
func (o Opcode) String() string {
	if o.IsKnown() {
		return o.Info().Name
	}
	return fmt.Sprintf("OPCODE_%d", uint8(o))
}
