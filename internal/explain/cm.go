package explain

import "github.com/softrnic/softrnic/internal/wire/mad"

//tidy:table
var cmEvents = []Entry{
	{Code: 0, Name: "RDMA_CM_EVENT_ADDR_RESOLVED", Words: "address resolved", Means: "rdma_resolve_addr found the device and the local address that lead to the peer."},
	{
		Code: 1, Name: "RDMA_CM_EVENT_ADDR_ERROR", Words: "address error",
		Means: "rdma_resolve_addr found no way to the address. The status is a negative errno.",
		Causes: []string{
			"no route: -101 (ENETUNREACH) or -113 (EHOSTUNREACH)",
			"no RDMA device owns the interface that the route uses: -19 (ENODEV); another network namespace has other addresses",
			"the local address given belongs to no interface: -99 (EADDRNOTAVAIL)",
			"the neighbour does not answer: -110 (ETIMEDOUT)",
		},
		Look: []string{"ip route get ADDRESS", "rnic devinfo: the addresses that the NIC has"},
	},
	{Code: 2, Name: "RDMA_CM_EVENT_ROUTE_RESOLVED", Words: "route resolved", Means: "The path to the peer is known; rdma_connect may be called."},
	{
		Code: 3, Name: "RDMA_CM_EVENT_ROUTE_ERROR", Words: "route error",
		Means:  "rdma_resolve_route found no path. The status is a negative errno.",
		Causes: []string{"an address went away between the two steps", "on InfiniBand: no subnet manager, or none that knows the peer"},
		Look:   []string{"resolve the address again"},
	},
	{Code: 4, Name: "RDMA_CM_EVENT_CONNECT_REQUEST", Words: "connect request", Means: "Somebody wants to connect to this listener. The event's id is a new one: accept or reject it, then destroy it some day."},
	{Code: 5, Name: "RDMA_CM_EVENT_CONNECT_RESPONSE", Words: "connect response", Means: "The peer accepted and this identifier has no queue pair of its own: move yours to RTS, then rdma_establish."},
	{
		Code: 6, Name: "RDMA_CM_EVENT_CONNECT_ERROR", Words: "connect error",
		Means:  "Something failed on this side while a connection was set up. The status is a negative errno.",
		Causes: []string{"the queue pair could not be moved with what the peer said", "the port or its address went away"},
		Look:   []string{"rnic ps --errors"},
	},
	{
		Code: 7, Name: "RDMA_CM_EVENT_UNREACHABLE", Words: "unreachable",
		Means: "The peer did not answer the connection request. The status is a negative errno; for datagrams a positive one is the service's answer.",
		Causes: []string{
			"-110 (ETIMEDOUT): packets to UDP port 4791 are dropped on the way, or the peer is down",
			"-111 (ECONNREFUSED): the host is there and has no RDMA adapter (no SoftRNIC, no rdma_rxe) at that address",
			"-113 (EHOSTUNREACH): the network says that the host is not there",
			"datagrams: nobody listens, or the listener said no",
			"iWARP: the same errnos of a TCP connection to the service's own port",
		},
		Look: []string{"rnic devinfo on the peer's host", "firewall rules for UDP port 4791 on both hosts", "rnic capture here: do the requests leave, does an answer come?"},
	},
	{
		Code: 8, Name: "RDMA_CM_EVENT_REJECTED", Words: "rejected",
		Means: "The peer said no. The status is the reason: rnic explain reject NUMBER. On iWARP it is a negative errno.",
		Causes: []string{
			"8 (invalid service ID): nobody listens on that port in that port space",
			"28 (consumer): the program there called rdma_reject; its private data may say why",
			"10 (stale connection): the peer still has an older connection of this queue pair number",
			"3 (no resources): the backlog is full",
			"iWARP: -104 (ECONNRESET) is rdma_reject, -111 (ECONNREFUSED) that nobody listens on that TCP port: the server may listen on RoCE alone, or another program there has the port (rnic ps)",
		},
		Look: []string{"is the server running, and with rdma_cm (-R)?", "port space: RDMA_PS_TCP and RDMA_PS_UDP do not see each other"},
	},
	{Code: 9, Name: "RDMA_CM_EVENT_ESTABLISHED", Words: "established", Means: "The connection is up on both sides."},
	{
		Code: 10, Name: "RDMA_CM_EVENT_DISCONNECTED", Words: "disconnected",
		Means:  "The connection is over, and the queue pair is to be moved to error. Status -110 says that the peer did not confirm.",
		Causes: []string{"one side called rdma_disconnect", "the peer's program ended: its NIC says so for it", "the peer's host vanished"},
		Look:   []string{"what the peer did; earlier failed completions"},
	},
	{
		Code: 11, Name: "RDMA_CM_EVENT_DEVICE_REMOVAL", Words: "device removal",
		Means:  "The device is gone. Destroy the identifier and everything on it.",
		Causes: []string{"with SoftRNIC: the NIC process ended"},
		Look:   []string{"the log of the NIC"},
	},
	{Code: 12, Name: "RDMA_CM_EVENT_MULTICAST_JOIN", Words: "multicast join", Means: "The group was joined; the event tells how to address it."},
	{
		Code: 13, Name: "RDMA_CM_EVENT_MULTICAST_ERROR", Words: "multicast error",
		Means:  "The group could not be joined, or was lost. The status is a negative errno.",
		Causes: []string{"the address is no multicast address", "the interface has no multicast, or its limit of memberships is reached"},
		Look:   []string{"ip maddr"},
	},
	{
		Code: 14, Name: "RDMA_CM_EVENT_ADDR_CHANGE", Words: "address change",
		Means:  "The address of the device below the connection changed. The connection goes on with the old one as long as that works.",
		Causes: []string{"fail-over of a bond", "an address was taken away"},
	},
	{Code: 15, Name: "RDMA_CM_EVENT_TIMEWAIT_EXIT", Words: "timewait exit", Means: "Late packets of the connection can be about no more; its queue pair may be used again. News, not trouble."},
}

// path is the explanation of a reason that no RoCE peer gives.
const path = "The peer does not accept a value of the path that the request named." +
	" Connection managers of Ethernet networks have no use for it."

//tidy:table
var rejects = []Entry{
	{Code: uint32(mad.ReasonNoQP), Name: "IB_CM_REJ_NO_QP", Words: "no queue pair available", Means: "The peer could not get a queue pair for the connection.", Causes: []string{"its device is at its limit of queue pairs"}},
	{Code: uint32(mad.ReasonNoEEC), Name: "IB_CM_REJ_NO_EEC", Words: "no end-to-end context available", Means: reserved},
	{
		Code: uint32(mad.ReasonNoResources), Name: "IB_CM_REJ_NO_RESOURCES", Words: "no resources available",
		Means:  "The peer has no room for another connection.",
		Causes: []string{"RoCE: the listener's backlog is full, and the program there has taken no request for half a minute", "a limit of identifiers or memory"},
		Look:   []string{"backlog of rdma_listen", "is the server blocked?"},
	},
	{
		Code: uint32(mad.ReasonTimeout), Name: "IB_CM_REJ_TIMEOUT", Words: "timeout",
		Means:  "One side gave up waiting for the other's next message.",
		Causes: []string{"the server's program was too slow to accept", "messages are lost on the path"},
		Look:   []string{"what the server does between CONNECT_REQUEST and rdma_accept"},
	},
	{Code: uint32(mad.ReasonUnsupportedRequest), Name: "IB_CM_REJ_UNSUPPORTED", Words: "unsupported request", Means: "The peer's connection manager does not know such a request.", Causes: []string{"a transport that the peer lacks, such as XRC"}},
	{Code: uint32(mad.ReasonInvalidCommID), Name: "IB_CM_REJ_INVALID_COMM_ID", Words: "invalid communication ID", Means: "The message names a connection that the peer does not know.", Causes: []string{"the peer gave the connection up or was restarted meanwhile"}},
	{Code: uint32(mad.ReasonInvalidCommInstance), Name: "IB_CM_REJ_INVALID_COMM_INSTANCE", Words: "invalid communication instance", Means: "The message belongs to an earlier connection with the same number.", Causes: []string{"a late message; trying again helps"}},
	{
		Code: uint32(mad.ReasonInvalidServiceID), Name: "IB_CM_REJ_INVALID_SERVICE_ID", Words: "invalid service ID",
		Also:   []string{"invalid service ID: nobody listens", "nobody listens"},
		Means:  "Nobody listens there: the port, the port space or the address is not the one of a listener.",
		Causes: []string{"the server is not running (yet), or on another port", "it was started without rdma_cm (perftest: without -R)", "it listens in another port space, or on another address", "it runs on the kernel's or another adapter, not on the NIC at this address"},
		Look:   []string{"rnic ps on the server's host: the CM ID table lists listeners"},
	},
	{Code: uint32(mad.ReasonInvalidTransport), Name: "IB_CM_REJ_INVALID_TRANSPORT_TYPE", Words: "invalid transport service type", Means: "The listener takes no queue pairs of that type.", Causes: []string{"RC against UC, or XRC: the two sides disagree"}},
	{
		Code: uint32(mad.ReasonStaleConnection), Name: "IB_CM_REJ_STALE_CONN", Words: "stale connection",
		Means:  "The peer believes that this queue pair number is in use by an older connection.",
		Causes: []string{"this side was restarted and the peer has not noticed yet", "a queue pair was used again before TIMEWAIT_EXIT"},
		Look:   []string{"try again after some seconds with a new queue pair"},
	},
	{Code: uint32(mad.ReasonRDCNotExistent), Name: "IB_CM_REJ_RDC_NOT_EXIST", Words: "reliable datagram channel does not exist", Means: reserved},
	{Code: uint32(mad.ReasonPrimaryGID), Name: "IB_CM_REJ_INVALID_GID", Words: "primary remote port GID rejected", Means: "The address that the request came to is none of the peer's.", Causes: []string{"the peer's address changed", "a GID of another type (RoCE v1 against v2)"}, Look: []string{"GID tables of both sides"}},
	{Code: uint32(mad.ReasonPrimaryLID), Name: "IB_CM_REJ_INVALID_LID", Words: "primary remote port LID rejected", Means: path},
	{Code: uint32(mad.ReasonPrimarySL), Name: "IB_CM_REJ_INVALID_SL", Words: "invalid primary service level", Means: path},
	{Code: uint32(mad.ReasonPrimaryTrafficClass), Name: "IB_CM_REJ_INVALID_TRAFFIC_CLASS", Words: "invalid primary traffic class", Means: path},
	{Code: uint32(mad.ReasonPrimaryHopLimit), Name: "IB_CM_REJ_INVALID_HOP_LIMIT", Words: "invalid primary hop limit", Means: path},
	{Code: uint32(mad.ReasonPrimaryPacketRate), Name: "IB_CM_REJ_INVALID_PACKET_RATE", Words: "invalid primary packet rate", Means: path},
	{Code: uint32(mad.ReasonAlternateGID), Name: "IB_CM_REJ_INVALID_ALT_GID", Words: "alternate remote port GID rejected", Means: path},
	{Code: uint32(mad.ReasonAlternateLID), Name: "IB_CM_REJ_INVALID_ALT_LID", Words: "alternate remote port LID rejected", Means: path},
	{Code: uint32(mad.ReasonAlternateSL), Name: "IB_CM_REJ_INVALID_ALT_SL", Words: "invalid alternate service level", Means: path},
	{Code: uint32(mad.ReasonAlternateTrafficClass), Name: "IB_CM_REJ_INVALID_ALT_TRAFFIC_CLASS", Words: "invalid alternate traffic class", Means: path},
	{Code: uint32(mad.ReasonAlternateHopLimit), Name: "IB_CM_REJ_INVALID_ALT_HOP_LIMIT", Words: "invalid alternate hop limit", Means: path},
	{Code: uint32(mad.ReasonAlternatePacketRate), Name: "IB_CM_REJ_INVALID_ALT_PACKET_RATE", Words: "invalid alternate packet rate", Means: path},
	{Code: uint32(mad.ReasonPortAndCMRedirect), Name: "IB_CM_REJ_PORT_CM_REDIRECT", Words: "port and communication manager redirected", Means: "The peer wants the request to go to another port and connection manager, which the message names."},
	{Code: uint32(mad.ReasonPortRedirect), Name: "IB_CM_REJ_PORT_REDIRECT", Words: "port redirected", Means: "The peer wants the connection on another of its ports, which the message names."},
	{
		Code: uint32(mad.ReasonInvalidMTU), Name: "IB_CM_REJ_INVALID_MTU", Words: "invalid path MTU",
		Means:  "The path MTU in the request is larger than the peer's port carries.",
		Causes: []string{"the interfaces have different MTUs: 1500 carries a path MTU of 1024, 4200 and more one of 4096"},
		Look:   []string{"ip link on both hosts", "rnic devinfo: active_mtu"},
	},
	{Code: uint32(mad.ReasonInsufficientResources), Name: "IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES", Words: "insufficient responder resources", Means: "The peer cannot serve as many READs and atomics at once as the request asks for.", Causes: []string{"initiator_depth of rdma_connect is above the peer's responder_resources"}, Look: []string{"max_qp_rd_atom of both devices"}},
	{
		Code: uint32(mad.ReasonConsumer), Name: "IB_CM_REJ_CONSUMER_DEFINED", Words: "rejected by the application",
		Also:   []string{"consumer reject", "consumer defined", "consumer", "rdma_reject"},
		Means:  "The program at the other side said no (rdma_reject). Adapters and network are in order.",
		Causes: []string{"the server is full, or does not like the private data: wrong protocol, version or credentials"},
		Look:   []string{"the server's log; the private data of the event"},
	},
	{Code: uint32(mad.ReasonRNRRetryCount), Name: "IB_CM_REJ_RNR_RETRY_COUNT", Words: "RNR retry count rejected", Means: "The peer does not accept the rnr_retry_count of the request."},
	{Code: uint32(mad.ReasonDuplicateLocalID), Name: "IB_CM_REJ_DUPLICATE_LOCAL_COMM_ID", Words: "duplicate local communication ID", Means: "The peer has a connection under way with the number that the request gave itself.", Causes: []string{"this side was restarted within seconds; trying again helps"}},
	{Code: uint32(mad.ReasonInvalidClassVersion), Name: "IB_CM_REJ_INVALID_CLASS_VERSION", Words: "invalid class version", Means: "The peer's connection manager speaks another version of the protocol."},
	{Code: uint32(mad.ReasonPrimaryFlowLabel), Name: "IB_CM_REJ_INVALID_FLOW_LABEL", Words: "invalid primary flow label", Means: path},
	{Code: uint32(mad.ReasonAlternateFlowLabel), Name: "IB_CM_REJ_INVALID_ALT_FLOW_LABEL", Words: "invalid alternate flow label", Means: path},
	{Code: uint32(mad.ReasonVendorOptionNotSupported), Name: "IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED", Words: "vendor option not supported", Means: "The request asks for an enhancement of a vendor (ECE) that the peer does not have.", Causes: []string{"ibv_set_ece or rdma_set_local_ece with options that the peer does not know"}},
}

//tidy:table
var services = []Entry{
	{Code: uint32(mad.SIDRStatusOK), Name: "IB_SIDR_SUCCESS", Words: "success", Means: "The service exists; the answer tells its queue pair and Q_Key."},
	{Code: uint32(mad.SIDRStatusUnsupportedService), Name: "IB_SIDR_UNSUPPORTED", Words: "unsupported service", Means: "Nobody listens for datagrams there.", Causes: []string{"the server is not running, or listens on another port or in another port space"}, Look: []string{"rnic ps on the server's host"}},
	{Code: uint32(mad.SIDRStatusRejected), Name: "IB_SIDR_REJECT", Words: "rejected", Means: "The program at the other side said no (rdma_reject).", Look: []string{"private data of the event; the server's log"}},
	{Code: uint32(mad.SIDRStatusNoQP), Name: "IB_SIDR_NO_QP", Words: "no queue pair", Means: "The service has no queue pair to offer.", Causes: []string{"the peer is at its limits, or its backlog is full"}},
	{Code: uint32(mad.SIDRStatusRedirected), Name: "IB_SIDR_REDIRECT", Words: "redirected", Means: "The service is at another port, which the answer names."},
	{Code: uint32(mad.SIDRStatusUnsupportedVersion), Name: "IB_SIDR_UNSUPPORTED_VERSION", Words: "unsupported version", Means: "The peer's connection manager speaks another version of the protocol."},
}
