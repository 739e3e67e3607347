// Package limits holds every bound of the NIC, each with its reason and, where there is one, the
// attack it stops. What ibv_query_device reports comes from here.
package limits

import "time"

// Objects. They bound what one NIC process can be made to allocate.
const (
	// MaxContexts bounds control connections, each of which costs three descriptors.
	MaxContexts = 1024
	// MaxQP bounds queue pairs of one NIC. QPNs are 24 bits; the table is sparse.
	MaxQP = 65536
	// MaxQPPerContext is the number of doorbell bits in a context's page (abi.DoorbellSlots).
	MaxQPPerContext = 16384
	// MaxQPWR bounds the entries of one send or receive queue.
	MaxQPWR = 32768
	// MaxSGE bounds scatter/gather entries per work request; a work request is copied whole.
	MaxSGE = 32
	// MaxInline bounds inline bytes per send work request, for the same reason.
	MaxInline = 1024
	// MaxCQ bounds completion queues of one NIC.
	MaxCQ = 65536
	// MaxCQE bounds the entries of one completion queue: 64 B each.
	MaxCQE = 1 << 20
	// MaxMR bounds memory regions. A key has 24 bits of index.
	MaxMR = 1 << 18
	// MaxMRSize bounds the length of a region, in bytes: the whole user address space.
	MaxMRSize = 1 << 47
	// MaxMRSegments bounds the pieces, mapped or not, that one region may consist of.
	MaxMRSegments = 16
	// MaxPD bounds protection domains.
	MaxPD = 65536
	// MaxAH bounds address handles.
	MaxAH = 65536
	// MaxXRCD bounds the handles of XRC domains, and MaxXRCShares those of one receiving XRC queue
	// pair, each of which gets its events.
	MaxXRCD      = 65536
	MaxXRCShares = 1024
	// MaxSRQ bounds shared receive queues.
	MaxSRQ = 16384
	// MaxCompChannels bounds completion channels: a pipe each.
	MaxCompChannels = 4096
	// MaxGIDs bounds the GID table of a port.
	MaxGIDs = 256
	// MaxPKeys is the P_Key table's length: RoCE has only the default partition (annex A16.4).
	MaxPKeys = 1
)

// Transport.
const (
	// MaxMessageBytes is the longest message: 2^31 (IBTA 9.7.6); verbs lengths are 32 bits.
	MaxMessageBytes = 1 << 31
	// MaxRDAtomic bounds READs and atomics a QP has outstanding in either direction; the
	// responder keeps as many replies for duplicates.
	MaxRDAtomic = 128
	// WindowPacketsMin and WindowPacketsMax bound the request packets a QP has on the wire. The
	// upper bound keeps a burst well under a peer's socket buffer (212,992 B by default on
	// Linux, about 50 packets of 4 KiB before the window adapts).
	WindowPacketsMin     = 2
	WindowPacketsInitial = 32
	WindowPacketsMax     = 1024
	// PacketsPerPoll bounds the packets that one QP may emit before others get their turn.
	PacketsPerPoll = 64
	// WQEsPerDoorbell bounds the work requests fetched from one queue per call.
	WQEsPerDoorbell = 256
	// RetransmitInterval is the shortest time between two go-backs of one QP without a NAK.
	RetransmitInterval = 100 * time.Microsecond
)

// Connection management.
const (
	// MaxCMIDs bounds communication identifiers of one NIC. Each may own a port, a connection in
	// the engine and a few events; a peer that floods a listener cannot make more than these.
	MaxCMIDs = 65536
	// MaxEventChannels bounds channels of connection events: a pipe each.
	MaxEventChannels = 4096
	// MaxListenBacklog bounds, and is where none is given, the requests that a listener has not
	// taken yet. It is the value of the Linux kernel (ucma max_backlog).
	MaxListenBacklog = 1024
	// MaxEventBacklog bounds the connection events that a program lets wait beyond what its pipe
	// holds; then it may start nothing that leads to more.
	MaxEventBacklog = 8192
	// MaxMulticastGroups bounds the groups that queue pairs are attached to, or identifiers joined.
	MaxMulticastGroups = 4096
	// MaxMulticastAttach bounds the queue pairs of one group: one packet is copied to each.
	MaxMulticastAttach = 256
	// MaxMulticastJoins bounds the joins of all identifiers.
	MaxMulticastJoins = 16384
)

// Captures.
const (
	// MaxCaptures bounds captures at one time: each copies all packets once more.
	MaxCaptures = 4
	// MaxCaptureBytes bounds what one holds for a reader that is slow; there is as much again on
	// its way into the pipe.
	MaxCaptureBytes = 256 << 20
)

// Control protocol.
const (
	// MaxMessage bounds one control message, in bytes.
	MaxMessage = 64 << 10
	// MaxFDs bounds descriptors that come with one control message.
	MaxFDs = MaxMRSegments
)
