package ib

import (
	"fmt"

	"github.com/softrnic/softrnic/internal/rdma"
)

// Opcode is the first byte of a BTH: a transport service in the upper three bits and an operation
// in the lower five (IBTA 9.2.1 table 38).
type Opcode uint8

// Opcodes of the reliable connection service.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImm        Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImm        Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImm       Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImm       Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAcknowledge        Opcode = 0x11
	RCAtomicAcknowledge  Opcode = 0x12
	RCCompareSwap        Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInv        Opcode = 0x16
	RCSendOnlyInv        Opcode = 0x17
	RCFlush              Opcode = 0x1c
	RCAtomicWrite        Opcode = 0x1d
)

// Opcodes of the unreliable connection service.
const (
	UCSendFirst    Opcode = 0x20
	UCSendMiddle   Opcode = 0x21
	UCSendLast     Opcode = 0x22
	UCSendLastImm  Opcode = 0x23
	UCSendOnly     Opcode = 0x24
	UCSendOnlyImm  Opcode = 0x25
	UCWriteFirst   Opcode = 0x26
	UCWriteMiddle  Opcode = 0x27
	UCWriteLast    Opcode = 0x28
	UCWriteLastImm Opcode = 0x29
	UCWriteOnly    Opcode = 0x2a
	UCWriteOnlyImm Opcode = 0x2b
)

// Opcodes of unreliable datagrams, and the congestion notification of RoCE v2 (IBTA A17.9.3).
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
	CNP           Opcode = 0x81
)

// Opcodes of the extended reliable connection service (IBTA A14.4.1).
const (
	XRCSendFirst          Opcode = 0xa0
	XRCSendMiddle         Opcode = 0xa1
	XRCSendLast           Opcode = 0xa2
	XRCSendLastImm        Opcode = 0xa3
	XRCSendOnly           Opcode = 0xa4
	XRCSendOnlyImm        Opcode = 0xa5
	XRCWriteFirst         Opcode = 0xa6
	XRCWriteMiddle        Opcode = 0xa7
	XRCWriteLast          Opcode = 0xa8
	XRCWriteLastImm       Opcode = 0xa9
	XRCWriteOnly          Opcode = 0xaa
	XRCWriteOnlyImm       Opcode = 0xab
	XRCReadRequest        Opcode = 0xac
	XRCReadResponseFirst  Opcode = 0xad
	XRCReadResponseMiddle Opcode = 0xae
	XRCReadResponseLast   Opcode = 0xaf
	XRCReadResponseOnly   Opcode = 0xb0
	XRCAcknowledge        Opcode = 0xb1
	XRCAtomicAcknowledge  Opcode = 0xb2
	XRCCompareSwap        Opcode = 0xb3
	XRCFetchAdd           Opcode = 0xb4
	XRCSendLastInv        Opcode = 0xb6
	XRCSendOnlyInv        Opcode = 0xb7
	XRCFlush              Opcode = 0xbc
)

// Class is the transport service of an opcode.
type Class uint8

// Transport services. The zero value is an unknown opcode.
const (
	ClassUnknown Class = iota
	ClassRC
	ClassUC
	ClassRD
	ClassUD
	ClassXRC
	ClassCNP
)

func (c Class) String() string {
	names := [...]string{"unknown", "RC", "UC", "RD", "UD", "XRC", "CNP"}
	if int(c) < len(names) {
		return names[c]
	}
	return names[0]
}

// Operation is what a packet does, whatever its service and its place in the message.
type Operation uint8

// Operations. The zero value is an unknown opcode.
const (
	OperationUnknown Operation = iota
	OperationSend
	OperationWrite
	OperationReadRequest
	OperationReadResponse
	OperationAcknowledge
	OperationAtomicAcknowledge
	OperationCompareSwap
	OperationFetchAdd
	OperationResync
	OperationFlush
	OperationAtomicWrite
	OperationCNP
)

// Position is a packet's place in its message (IBTA 9.4). Requests and answers that fit one packet
// by nature (acknowledges, atomics, READ requests) are Only.
type Position uint8

// Positions.
const (
	First Position = iota
	Middle
	Last
	Only
)

func (p Position) String() string {
	return [...]string{"First", "Middle", "Last", "Only"}[p&3]
}

// Role is which half of a QP a packet is for.
type Role uint8

// Roles. The zero value is an unknown opcode.
const (
	RoleUnknown Role = iota
	// RoleRequest goes to a responder.
	RoleRequest
	// RoleResponse is READ data for a requester.
	RoleResponse
	// RoleAcknowledge is an ACK, a NAK or an atomic's answer for a requester.
	RoleAcknowledge
	// RoleNotification is a CNP: congestion control only, no PSN, no sequence.
	RoleNotification
)

// PayloadRule is how many payload bytes a packet may have (IBTA 9.4, 9.7.4.1.6).
type PayloadRule uint8

// Payload rules.
const (
	PayloadNone    PayloadRule = iota // exactly 0
	PayloadFull                       // exactly the path MTU
	PayloadSome                       // 1 … path MTU
	PayloadAny                        // 0 … path MTU
	PayloadEight                      // exactly 8: the value of an ATOMIC WRITE (IBTA A19)
	PayloadSixteen                    // exactly 16: the reserved bytes of a CNP (IBTA A17.9.3)
)

// Allows reports whether a payload of n bytes, pad not counted, is legal at a path MTU of mtu
// bytes.
func (r PayloadRule) Allows(n, mtu int) bool {
	switch r {
	case PayloadNone:
		return n == 0
	case PayloadFull:
		return n == mtu
	case PayloadSome:
		return n >= 1 && n <= mtu
	case PayloadAny:
		return n >= 0 && n <= mtu
	case PayloadEight:
		return n == 8
	case PayloadSixteen:
		return n == 16
	}
	return false
}

// HeaderSet is a set of extended transport headers. Those of a packet stand on the wire in the
// order of the bits, lowest first.
type HeaderSet uint16

// Extended transport headers.
const (
	HasRDETH HeaderSet = 1 << iota
	HasDETH
	HasXRCETH
	HasFETH
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImmDt
	HasIETH
)

// headerLens are the lengths in the order of the bits.
var headerLens = [...]int{
	RDETHLen, DETHLen, XRCETHLen, FETHLen, RETHLen, AtomicETHLen,
	AETHLen, AtomicAckETHLen, ImmDtLen, IETHLen,
}

// Has reports whether all of want are in the set.
func (s HeaderSet) Has(want HeaderSet) bool { return s&want == want }

// Len returns the length of the headers together in bytes.
func (s HeaderSet) Len() int {
	n := 0
	for i, l := range headerLens {
		if s&(1<<i) != 0 {
			n += l
		}
	}
	return n
}

// QPTypeSet is a set of rdma.QPType, a bit each.
type QPTypeSet uint32

// Has reports whether t is in the set.
func (s QPTypeSet) Has(t rdma.QPType) bool { return s>>t&1 != 0 }

func qpTypes(types ...rdma.QPType) QPTypeSet {
	var s QPTypeSet
	for _, t := range types {
		s |= 1 << t
	}
	return s
}

// OpcodeInfo is a row of the opcode table. The row of an unknown opcode is the zero value but for
// its name.
type OpcodeInfo struct {
	Name      string
	Class     Class
	Operation Operation
	Position  Position
	Role      Role
	Payload   PayloadRule
	Headers   HeaderSet
	// HeaderLen is the length of the BTH and the extended headers together.
	HeaderLen int
	// QPTypes are the types of QP that may receive the packet. Packets of the RD service have
	// none: verbs gave it up.
	QPTypes QPTypeSet
}

// Info returns the opcode's row, never nil. Nobody may change it.
func (o Opcode) Info() *OpcodeInfo { return &opcodeTable[o] }

// IsKnown reports an opcode that the standard defines, of any service.
func (o Opcode) IsKnown() bool { return opcodeTable[o].Class != ClassUnknown }

// Class returns the transport service.
func (o Opcode) Class() Class { return opcodeTable[o].Class }

// Has reports whether all the extended headers of want follow the BTH.
func (o Opcode) Has(want HeaderSet) bool { return opcodeTable[o].Headers.Has(want) }

// HeaderLen returns the bytes of the BTH and the extended headers together; 0 when unknown.
func (o Opcode) HeaderLen() int { return opcodeTable[o].HeaderLen }

// IsFirst reports the first of several packets of a message.
func (o Opcode) IsFirst() bool { return o.IsKnown() && opcodeTable[o].Position == First }

// IsMiddle reports an inner packet of a message.
func (o Opcode) IsMiddle() bool { return o.IsKnown() && opcodeTable[o].Position == Middle }

// IsLast reports the last of several packets of a message.
func (o Opcode) IsLast() bool { return o.IsKnown() && opcodeTable[o].Position == Last }

// IsOnly reports a message of one packet.
func (o Opcode) IsOnly() bool { return o.IsKnown() && opcodeTable[o].Position == Only }

// StartsMessage reports First or Only.
func (o Opcode) StartsMessage() bool { return o.IsFirst() || o.IsOnly() }

// EndsMessage reports Last or Only.
func (o Opcode) EndsMessage() bool { return o.IsLast() || o.IsOnly() }

// IsRequest reports a packet for a responder.
func (o Opcode) IsRequest() bool { return opcodeTable[o].Role == RoleRequest }

// IsResponse reports a packet for a requester: READ data, an acknowledge or an atomic's answer.
func (o Opcode) IsResponse() bool {
	role := opcodeTable[o].Role
	return role == RoleResponse || role == RoleAcknowledge
}

// IsAcknowledge reports an ACK, a NAK or an atomic's answer.
func (o Opcode) IsAcknowledge() bool { return opcodeTable[o].Role == RoleAcknowledge }

// IsSend reports a packet of a SEND of any kind.
func (o Opcode) IsSend() bool { return opcodeTable[o].Operation == OperationSend }

// IsWrite reports a packet of an RDMA WRITE, with immediate or not.
func (o Opcode) IsWrite() bool { return opcodeTable[o].Operation == OperationWrite }

// IsReadRequest reports an RDMA READ request.
func (o Opcode) IsReadRequest() bool { return opcodeTable[o].Operation == OperationReadRequest }

// IsReadResponse reports a packet of an answer to an RDMA READ.
func (o Opcode) IsReadResponse() bool { return opcodeTable[o].Operation == OperationReadResponse }

// IsAtomic reports a CmpSwap or FetchAdd request.
func (o Opcode) IsAtomic() bool {
	op := opcodeTable[o].Operation
	return op == OperationCompareSwap || op == OperationFetchAdd
}

// HasImm reports whether immediate data follows.
func (o Opcode) HasImm() bool { return opcodeTable[o].Headers&HasImmDt != 0 }

// HasInvalidate reports whether a key to invalidate follows.
func (o Opcode) HasInvalidate() bool { return opcodeTable[o].Headers&HasIETH != 0 }

// HasRETH reports whether an RETH follows.
func (o Opcode) HasRETH() bool { return opcodeTable[o].Headers&HasRETH != 0 }

// HasAETH reports whether an AETH follows.
func (o Opcode) HasAETH() bool { return opcodeTable[o].Headers&HasAETH != 0 }

// String returns the name with its service, like RC_SEND_FIRST, or the number when unknown.
func (o Opcode) String() string {
	if o.IsKnown() {
		return opcodeTable[o].Name
	}
	return fmt.Sprintf("OPCODE_0x%02x", uint8(o))
}
