package nic

import (
	"fmt"
	"slices"

	"github.com/softrnic/softrnic/internal/limits"
	"github.com/softrnic/softrnic/internal/rdma"
)

// Transport is the wire of a device.
type Transport uint8

// Transports. The zero value is the default.
const (
	TransportRoCE Transport = iota
	TransportIWARP
)

// transport is what a wire means to programs: one row for each.
type transport struct {
	name      string
	title     string // for people
	nodeType  uint32 // enum ibv_node_type
	kind      uint32 // enum ibv_transport_type
	linkLayer uint32
	qpTypes   []rdma.QPType // that its devices make
	caps      uint64        // enum ibv_device_cap_flags
	portCaps  uint32        // enum ibv_port_cap_flags
	odpRC     uint32        // enum ibv_odp_transport_cap_bits of RC
	ackDelay  uint8         // that the peer's ACK timeout has to bear with, 4.096 µs × 2^n
	pkeys     uint32        // length of the table of partition keys
	// hasDatagrams: packets that need no connection, and with them address handles and groups.
	hasDatagrams bool
	// hasTags: shared receive queues may match tags.
	hasTags bool
	// hasIPGIDs: the GIDs are the addresses. Elsewhere a port has one GID, and Port.Addresses tells
	// what it is reached by.
	hasIPGIDs bool
	// hasStreams: connections are those of TCP, and only rdma_cm makes them.
	hasStreams bool
}

//tidy:table
var transports = [...]transport{
	TransportRoCE: {
		name: "roce", title: "RoCE",
		nodeType: nodeTypeCA, kind: transportIB, linkLayer: linkEthernet,
		qpTypes: []rdma.QPType{
			rdma.QPTypeRC, rdma.QPTypeUC, rdma.QPTypeUD, rdma.QPTypeXRCSend, rdma.QPTypeXRCRecv,
		},
		caps: commonCaps | capBadPKeyCounter | capBadQKeyCounter | capRCRNRNakGen | capXRC |
			capFlushGlobal | capAtomicWrite,
		portCaps: portCapCM | portCapIPBased,
		odpRC:    odpReliable | odpFlush | odpStore, ackDelay: ackDelay, pkeys: limits.MaxPKeys,
		hasDatagrams: true, hasIPGIDs: true, hasTags: true,
	},
	TransportIWARP: {
		name: "iwarp", title: "iWARP",
		nodeType: nodeTypeRNIC, kind: transportIWARP, linkLayer: linkEthernet,
		qpTypes:  []rdma.QPType{rdma.QPTypeRC},
		caps:     commonCaps,
		portCaps: portCapCM, odpRC: odpReliable, hasStreams: true,
	},
}

// StreamOptions are what a device of iWARP does as far as peers let it (RFC 5044, RFC 6581). The
// zero value is the default.
type StreamOptions struct {
	// NoCRC does without CRCs where the peer does not ask for them, either. That is the operator's
	// word to give (RFC 5044, section 4.4).
	NoCRC    bool
	Markers  bool  // asks for markers in what peers send
	Revision uint8 // of MPA, highest: 1 or 2; 0 is 2
	FPDU     FPDUSize
	// HostCongestion leaves connections to the host's congestion control also where that is BBR and
	// their paths are short.
	HostCongestion bool
}

func (o StreamOptions) String() string {
	onOff := func(on bool) string {
		if on {
			return "on"
		}
		return "off"
	}
	revision := o.Revision
	if revision == 0 {
		revision = 2
	}
	congestion := "auto"
	if o.HostCongestion {
		congestion = "host"
	}
	return fmt.Sprintf("congestion=%s,crc=%s,fpdu=%v,markers=%s,mpa=%d", congestion, onOff(!o.NoCRC),
		o.FPDU, onOff(o.Markers), revision)
}

// FPDUSize says how long a device's FPDUs may be.
type FPDUSize uint8

// FPDU sizes, by the names that ParseFPDUSize knows.
const (
	FPDUAuto  FPDUSize = iota // auto: FPDUMSS until the peer is known to take more
	FPDUMSS                   // mss: one fits a TCP segment
	FPDULarge                 // large: as long as the length field can tell
)

var fpduSizes = [...]string{FPDUAuto: "auto", FPDUMSS: "mss", FPDULarge: "large"}

func (s FPDUSize) String() string { return fpduSizes[s] }

// ParseFPDUSize finds a size by its name.
func ParseFPDUSize(name string) (FPDUSize, bool) {
	at := slices.Index(fpduSizes[:], name)
	return FPDUSize(max(at, 0)), at >= 0
}

// String is the name that ParseTransport knows.
func (t Transport) String() string { return transports[t].name }

// row is what the transport means.
func (t Transport) row() *transport { return &transports[t] }

// ParseTransport finds a transport by its name.
func ParseTransport(name string) (Transport, bool) {
	at := slices.IndexFunc(transports[:], func(t transport) bool { return t.name == name })
	return Transport(max(at, 0)), at >= 0
}

// TransportNames lists the names that ParseTransport knows.
func TransportNames() []string {
	var out []string
	for _, t := range transports {
		out = append(out, t.name)
	}
	return out
}

// String is how people call the transport.
func (t *transport) String() string { return t.title }

// makes reports whether devices of the transport have queue pairs of a type.
func (t *transport) makes(qpType rdma.QPType) bool { return slices.Contains(t.qpTypes, qpType) }
