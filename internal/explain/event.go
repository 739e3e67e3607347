package explain

import "github.com/softrnic/softrnic/internal/rdma"

//tidy:table
var events = []Entry{
	{
		Code: uint32(rdma.EventCQErr), Name: "IBV_EVENT_CQ_ERR", Words: "CQ error",
		Also:   []string{"completion queue overrun", "CQ overrun"},
		Means:  "A completion queue overran: completions came for which it had no entry. It delivers nothing any more, and its queue pairs go into error.",
		Causes: []string{"the queue has fewer entries than send and receive requests were in flight", "the program stopped polling"},
		Look:   []string{"cqe in ibv_create_cq against the sum of max_send_wr and max_recv_wr of the queue pairs on it"},
	},
	{
		Code: uint32(rdma.EventQPFatal), Name: "IBV_EVENT_QP_FATAL", Words: "local work queue catastrophic error",
		Also:   []string{"QP fatal"},
		Means:  "A queue pair is in error and no completion says so.",
		Causes: []string{"its completion queue overran", "a posted receive, or the memory behind it, could not be used", "its queue in shared memory is damaged"},
		Look:   []string{"rnic ps --errors"},
	},
	{
		Code: uint32(rdma.EventQPReqErr), Name: "IBV_EVENT_QP_REQ_ERR", Words: "invalid request local work queue error",
		Also:   []string{"QP request error"},
		Means:  "The peer sent a request that this queue pair cannot take; both sides are in error now. The peer sees IBV_WC_REM_INV_REQ_ERR.",
		Causes: []string{"more READs or atomics than max_dest_rd_atomic", "an operation that the queue pair does not take, or packets in an impossible order"},
		Look:   []string{"rnic ps --errors", "max_dest_rd_atomic here against max_rd_atomic at the peer"},
	},
	{
		Code: uint32(rdma.EventQPAccessErr), Name: "IBV_EVENT_QP_ACCESS_ERR", Words: "local access violation work queue error",
		Also:   []string{"QP access error"},
		Means:  "The peer asked for memory that it may not have; both sides are in error now. The peer sees IBV_WC_REM_ACCESS_ERR.",
		Causes: []string{"the peer uses a wrong or outdated rkey, or an address outside the region", "the region or the queue pair lacks the remote right"},
		Look:   []string{"rnic ps --errors: key, range, rights asked and held"},
	},
	{
		Code: uint32(rdma.EventCommEst), Name: "IBV_EVENT_COMM_EST", Words: "communication established",
		Means:  "The first packet of the peer came while the queue pair was in RTR. It is news, not trouble: the peer is ready although its message of the connection manager (RTU) is not here yet.",
		Causes: []string{"the RTU was lost or is slower than the data"},
		Look:   []string{"rdma_notify(3), which takes it for the RTU"},
	},
	{
		Code: uint32(rdma.EventSQDrained), Name: "IBV_EVENT_SQ_DRAINED", Words: "send queue drained",
		Also:  []string{"SQ drained"},
		Means: "A queue pair that was moved to SQD has finished what it had begun; attributes may be changed now.",
	},
	{
		Code: uint32(rdma.EventPathMig), Name: "IBV_EVENT_PATH_MIG", Words: "path migrated",
		Means: "The connection moved to its alternate path. SoftRNIC has no path migration, so it never says this.",
	},
	{
		Code: uint32(rdma.EventPathMigErr), Name: "IBV_EVENT_PATH_MIG_ERR", Words: "path migration request error",
		Also:  []string{"path migration error"},
		Means: "Moving to the alternate path failed. SoftRNIC has no path migration, so it never says this.",
	},
	{
		Code: uint32(rdma.EventDeviceFatal), Name: "IBV_EVENT_DEVICE_FATAL", Words: "local catastrophic error",
		Also:   []string{"device fatal"},
		Means:  "The device is gone. Nothing on it works any more; close it and open it again.",
		Causes: []string{"with SoftRNIC: the NIC process ended, by rnic down, a signal, or because no program was left", "with hardware: a reset, a hot unplug or a fault"},
		Look:   []string{"the log of the NIC; is another one running? (rnic devinfo)"},
	},
	{
		Code: uint32(rdma.EventPortActive), Name: "IBV_EVENT_PORT_ACTIVE", Words: "port active",
		Means:  "The port can carry traffic (again).",
		Causes: []string{"the network interface got its first address"},
	},
	{
		Code: uint32(rdma.EventPortErr), Name: "IBV_EVENT_PORT_ERR", Words: "port error",
		Means:  "The port can carry no traffic. Connections are not broken yet; their packets are lost until it comes back.",
		Causes: []string{"the network interface went down or lost its addresses"},
		Look:   []string{"ip link, ip addr"},
	},
	{
		Code: uint32(rdma.EventLIDChange), Name: "IBV_EVENT_LID_CHANGE", Words: "LID change",
		Means: "The subnet manager gave the port another local identifier: address handles and paths are outdated. Ethernet has no LIDs.",
	},
	{
		Code: uint32(rdma.EventPKeyChange), Name: "IBV_EVENT_PKEY_CHANGE", Words: "P_Key change",
		Means: "The partition table changed: indices into it may mean something else now. SoftRNIC has one fixed partition.",
	},
	{
		Code: uint32(rdma.EventSMChange), Name: "IBV_EVENT_SM_CHANGE", Words: "SM change",
		Means: "Another subnet manager rules the subnet. Ethernet has none.",
	},
	{
		Code: uint32(rdma.EventSRQErr), Name: "IBV_EVENT_SRQ_ERR", Words: "SRQ catastrophic error",
		Also:   []string{"SRQ error"},
		Means:  "A shared receive queue cannot be used any more.",
		Causes: []string{"its memory is damaged by the program", "a fault of the adapter"},
		Look:   []string{"rnic ps --errors"},
	},
	{
		Code: uint32(rdma.EventSRQLimitReached), Name: "IBV_EVENT_SRQ_LIMIT_REACHED", Words: "SRQ limit reached",
		Means: "Fewer receives are left in the shared receive queue than its limit. It comes once; arm it again by ibv_modify_srq with IBV_SRQ_LIMIT.",
		Look:  []string{"post more receives now"},
	},
	{
		Code: uint32(rdma.EventQPLastWQEReached), Name: "IBV_EVENT_QP_LAST_WQE_REACHED", Words: "last WQE reached",
		Means: "A queue pair with a shared receive queue went into error and will take no more receives from it. After this event, and after its completions were polled, it can be destroyed.",
	},
	{
		Code: uint32(rdma.EventClientReregister), Name: "IBV_EVENT_CLIENT_REREGISTER", Words: "client reregistration",
		Also:  []string{"client reregister"},
		Means: "The subnet manager wants subscriptions and multicast memberships to be made anew. Ethernet has none.",
	},
	{
		Code: uint32(rdma.EventGIDChange), Name: "IBV_EVENT_GID_CHANGE", Words: "GID table change",
		Also:   []string{"GID change"},
		Means:  "The GID table changed. Read it again; existing connections keep their addresses.",
		Causes: []string{"an IP address came or went on a network interface"},
		Look:   []string{"rnic devinfo; never keep a GID index over time"},
	},
	{
		Code: uint32(rdma.EventWQFatal), Name: "IBV_EVENT_WQ_FATAL", Words: "WQ fatal",
		Means: "A work queue of ibv_create_wq failed. SoftRNIC has none, so it never says this.",
	},
}
