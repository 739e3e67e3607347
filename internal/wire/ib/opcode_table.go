package ib

import "github.com/softrnic/softrnic/internal/rdma"

// opcodeRow is what the services share about an operation: the lower five bits of the opcode.
type opcodeRow struct {
	code      uint8
	name      string
	operation Operation
	position  Position
	role      Role
	payload   PayloadRule
	headers   HeaderSet
}

// opcodeRows are the operations of IBTA 9.2.1 table 38, A14.4.1 and A19.4.1, as the RC service has
// them. The packets of a message that is cut at the path MTU are full but for the last.
var opcodeRows = [...]opcodeRow{
	{0x00, "SEND_FIRST", OperationSend, First, RoleRequest, PayloadFull, 0},
	{0x01, "SEND_MIDDLE", OperationSend, Middle, RoleRequest, PayloadFull, 0},
	{0x02, "SEND_LAST", OperationSend, Last, RoleRequest, PayloadSome, 0},
	{0x03, "SEND_LAST_WITH_IMM", OperationSend, Last, RoleRequest, PayloadSome, HasImmDt},
	{0x04, "SEND_ONLY", OperationSend, Only, RoleRequest, PayloadAny, 0},
	{0x05, "SEND_ONLY_WITH_IMM", OperationSend, Only, RoleRequest, PayloadAny, HasImmDt},
	{0x06, "WRITE_FIRST", OperationWrite, First, RoleRequest, PayloadFull, HasRETH},
	{0x07, "WRITE_MIDDLE", OperationWrite, Middle, RoleRequest, PayloadFull, 0},
	{0x08, "WRITE_LAST", OperationWrite, Last, RoleRequest, PayloadSome, 0},
	{0x09, "WRITE_LAST_WITH_IMM", OperationWrite, Last, RoleRequest, PayloadSome, HasImmDt},
	{0x0a, "WRITE_ONLY", OperationWrite, Only, RoleRequest, PayloadAny, HasRETH},
	{
		0x0b, "WRITE_ONLY_WITH_IMM", OperationWrite, Only, RoleRequest, PayloadAny,
		HasRETH | HasImmDt,
	},
	{0x0c, "READ_REQUEST", OperationReadRequest, Only, RoleRequest, PayloadNone, HasRETH},
	{
		0x0d, "READ_RESPONSE_FIRST", OperationReadResponse, First, RoleResponse, PayloadFull,
		HasAETH,
	},
	{0x0e, "READ_RESPONSE_MIDDLE", OperationReadResponse, Middle, RoleResponse, PayloadFull, 0},
	{
		0x0f, "READ_RESPONSE_LAST", OperationReadResponse, Last, RoleResponse, PayloadSome,
		HasAETH,
	},
	{
		0x10, "READ_RESPONSE_ONLY", OperationReadResponse, Only, RoleResponse, PayloadAny,
		HasAETH,
	},
	{0x11, "ACKNOWLEDGE", OperationAcknowledge, Only, RoleAcknowledge, PayloadNone, HasAETH},
	{
		0x12, "ATOMIC_ACKNOWLEDGE", OperationAtomicAcknowledge, Only, RoleAcknowledge, PayloadNone,
		HasAETH | HasAtomicAckETH,
	},
	{0x13, "CMP_SWAP", OperationCompareSwap, Only, RoleRequest, PayloadNone, HasAtomicETH},
	{0x14, "FETCH_ADD", OperationFetchAdd, Only, RoleRequest, PayloadNone, HasAtomicETH},
	{0x15, "RESYNC", OperationResync, Only, RoleRequest, PayloadNone, 0},
	{0x16, "SEND_LAST_WITH_INV", OperationSend, Last, RoleRequest, PayloadSome, HasIETH},
	{0x17, "SEND_ONLY_WITH_INV", OperationSend, Only, RoleRequest, PayloadAny, HasIETH},
	{0x1c, "FLUSH", OperationFlush, Only, RoleRequest, PayloadNone, HasFETH | HasRETH},
	{0x1d, "ATOMIC_WRITE", OperationAtomicWrite, Only, RoleRequest, PayloadEight, HasRETH},
}

// opcodeService says which rows a service has and which headers it puts in front of them.
type opcodeService struct {
	class Class
	base  Opcode
	// codes is the set of rows by their lower five bits.
	codes uint32
	// all precede in every packet, requests in requests only.
	all, requests HeaderSet
	qpTypes       QPTypeSet
	// responseQPTypes receive what is not a request.
	responseQPTypes QPTypeSet
}

const (
	codesUnreliable = 0x00000fff                // SEND and WRITE
	codesReliable   = 0x001fffff                // and READ, acknowledges, atomics
	codesInvalidate = 1<<0x16 | 1<<0x17         // SEND with invalidate
	codesPlacement  = 1<<0x1c | 1<<0x1d         // FLUSH, ATOMIC WRITE
	codesFlush      = 1 << 0x1c                 // FLUSH, which ibv_wr_post(3) has on XRC too
	codesRD         = 1<<0x15 | 1<<0x1c         // RESYNC, FLUSH
	codesUD         = uint32(1<<0x04 | 1<<0x05) // SEND Only
)

var opcodeServices = [...]opcodeService{
	{
		class: ClassRC, base: 0x00, codes: codesReliable | codesInvalidate | codesPlacement,
		qpTypes: qpTypes(rdma.QPTypeRC), responseQPTypes: qpTypes(rdma.QPTypeRC),
	},
	{class: ClassUC, base: 0x20, codes: codesUnreliable, qpTypes: qpTypes(rdma.QPTypeUC)},
	{
		class: ClassRD, base: 0x40, codes: codesReliable | codesRD,
		all: HasRDETH, requests: HasDETH,
	},
	{
		class: ClassUD, base: 0x60, codes: codesUD, all: HasDETH,
		qpTypes: qpTypes(rdma.QPTypeUD),
	},
	{
		class: ClassXRC, base: 0xa0, codes: codesReliable | codesInvalidate | codesFlush,
		requests: HasXRCETH, qpTypes: qpTypes(rdma.QPTypeXRCRecv),
		responseQPTypes: qpTypes(rdma.QPTypeXRCSend),
	},
}

var opcodeTable = buildOpcodeTable()

func buildOpcodeTable() [256]OpcodeInfo {
	var t [256]OpcodeInfo
	for i := range t {
		t[i].Name = "unknown"
	}
	for i := range opcodeServices {
		s := &opcodeServices[i]
		for j := range opcodeRows {
			r := &opcodeRows[j]
			if s.codes>>r.code&1 != 0 {
				t[s.base|Opcode(r.code)] = s.info(r)
			}
		}
	}
	t[CNP] = OpcodeInfo{
		Name: "CNP", Class: ClassCNP, Operation: OperationCNP, Position: Only,
		Role: RoleNotification, Payload: PayloadSixteen, HeaderLen: BTHLen,
		QPTypes: qpTypes(rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD,
			rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv),
	}
	return t
}

func (s *opcodeService) info(r *opcodeRow) OpcodeInfo {
	headers, types := r.headers|s.all, s.responseQPTypes
	if r.role == RoleRequest {
		headers, types = headers|s.requests, s.qpTypes
	}
	return OpcodeInfo{
		Name: s.class.String() + "_" + r.name, Class: s.class, Operation: r.operation,
		Position: r.position, Role: r.role, Payload: r.payload, Headers: headers,
		HeaderLen: BTHLen + headers.Len(), QPTypes: types,
	}
}
