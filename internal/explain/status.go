package explain

import "github.com/softrnic/softrnic/internal/rdma"

// reserved is the explanation of what only standards have.
const reserved = "It belongs to reliable datagrams, which no adapter implements: seeing it means" +
	" that a field was read from the wrong place, or was never written."

//tidy:table
var statuses = []Entry{
	{
		Code: uint32(rdma.WCSuccess), Name: "IBV_WC_SUCCESS", Words: "success",
		Means: "The work request is done. For a send that needs an acknowledge (RC) the peer's adapter has the data; its program may not have looked yet. For UC and UD the packets have left, no more.",
	},
	{
		Code: uint32(rdma.WCLocLenErr), Name: "IBV_WC_LOC_LEN_ERR", Words: "local length error",
		Means: "A length did not fit on this side: a message that arrived is longer than the posted receive, or one to be sent is longer than allowed. The queue pair is in error; of UC and UD only its send queue, where the message was to be sent. A datagram that does not fit its receive is dropped without an error, and the receive stays.",
		Causes: []string{
			"the receive buffer is shorter than the message (RC, UC); a sender on RC sees IBV_WC_REM_INV_REQ_ERR",
			"a datagram to be sent is longer than the path MTU",
			"on hardware and rdma_rxe also a UD receive that is too short: it needs 40 bytes more than the data, for the network header in front",
			"an atomic whose local buffer is not exactly 8 bytes",
			"a message longer than max_msg_sz (2 GiB)",
		},
		Look: []string{"sum of sge.length of the receive against what the peer sends", "rnic ps --errors: it tells both lengths"},
	},
	{
		Code: uint32(rdma.WCLocQPOpErr), Name: "IBV_WC_LOC_QP_OP_ERR", Words: "local QP operation error",
		Means: "The adapter found the work request itself wrong when it came to execute it.",
		Causes: []string{
			"an operation that the queue pair type does not have, such as READ on UC or WRITE on UD",
			"READs or atomics on a queue pair whose max_rd_atomic is 0",
			"inline data with an operation that brings data back, or more of it than max_inline_data (libraries refuse such posts)",
			"a datagram whose address handle was destroyed, or is of another protection domain",
			"a work request that was overwritten in the shared queue after it was posted",
		},
		Look: []string{"opcode, send_flags and num_sge of the work request with this wr_id", "max_rd_atomic in the modify to RTS"},
	},
	{
		Code: uint32(rdma.WCLocEECOpErr), Name: "IBV_WC_LOC_EEC_OP_ERR", Words: "local EE context operation error",
		Means: reserved,
	},
	{
		Code: uint32(rdma.WCLocProtErr), Name: "IBV_WC_LOC_PROT_ERR", Words: "local protection error",
		Also:  []string{"local prot error", "protection error"},
		Means: "A scatter/gather entry of this side does not lead to memory that the work request may use: its lkey, address or length is wrong, or the right is missing.",
		Causes: []string{
			"a wrong lkey (for example an rkey of the peer, or of a region that was deregistered)",
			"address and length reach beyond the region",
			"a receive, READ or atomic into a region without IBV_ACCESS_LOCAL_WRITE",
			"region and queue pair, or of a receive the shared queue that it comes from, belong to different protection domains",
			"the memory was unmapped after it was registered",
		},
		Look: []string{"rnic ps --errors: key, address range, rights asked and held", "rnic ps: the MR table"},
	},
	{
		Code: uint32(rdma.WCWRFlushErr), Name: "IBV_WC_WR_FLUSH_ERR", Words: "Work Request Flushed Error",
		Also:  []string{"work request flushed", "flushed", "flush error", "wr flush", "vendor err 249"},
		Means: "The request was not executed, or not to its end, because the queue pair had gone into error before. It is a consequence, never the first trouble: with RoCE that is a completion, with iWARP it may be the end of the connection.",
		Causes: []string{
			"an earlier request of the same queue pair failed: its completion, the first that is not a flush, says why",
			"the program or rdma_disconnect moved the queue pair to ERR on purpose, at the end of a connection",
			"the peer's request was refused here, or the completion queue overran",
			"iWARP: the peer ended the connection, as it does when its program ends, or TCP lost it",
		},
		Look: []string{"the first failed completion of this queue pair", "rnic ps --errors"},
	},
	{
		Code: uint32(rdma.WCMWBindErr), Name: "IBV_WC_MW_BIND_ERR", Words: "memory management operation error",
		Also:  []string{"memory window bind error"},
		Means: "Binding a memory window, or invalidating a key, was refused.",
		Causes: []string{
			"the region lacks IBV_ACCESS_MW_BIND, or the window asks for more than the region grants",
			"the range leaves the region",
			"region, window and queue pair are not of one protection domain",
			"the key to invalidate is unknown, in use, or of a kind that cannot be invalidated",
		},
		Look: []string{"access flags of the region and of the bind"},
	},
	{
		Code: uint32(rdma.WCBadRespErr), Name: "IBV_WC_BAD_RESP_ERR", Words: "bad response error",
		Means: "The peer's adapter answered with something that does not fit the request, such as more READ data than was asked for.",
		Causes: []string{
			"the two sides disagree about the path MTU",
			"a peer that is not what it seems: a queue pair that was reused, or an adapter with a fault",
		},
		Look: []string{"path_mtu of both queue pairs", "rnic capture -w FILE, opened in Wireshark"},
	},
	{
		Code: uint32(rdma.WCLocAccessErr), Name: "IBV_WC_LOC_ACCESS_ERR", Words: "local access error",
		Means: "While data for a receive arrived, an access of the peer broke a right of this side.",
		Causes: []string{
			"a WRITE with immediate data whose address or rkey is wrong",
			"the queue pair lacks the access flag (IBV_ACCESS_REMOTE_WRITE)",
		},
		Look: []string{"qp_access_flags of this queue pair", "rnic ps --errors"},
	},
	{
		Code: uint32(rdma.WCRemInvReqErr), Name: "IBV_WC_REM_INV_REQ_ERR", Words: "remote invalid request error",
		Also:  []string{"remote invalid request", "remote inv req"},
		Means: "The peer's adapter answered with the NAK “invalid request”: it does not take such a request, or not of that length.",
		Causes: []string{
			"the message is longer than the peer's posted receive; the peer sees IBV_WC_LOC_LEN_ERR",
			"more READs or atomics in flight than the peer's max_dest_rd_atomic",
			"the peer's queue pair (qp_access_flags) lacks remote read, write or atomic",
			"the operation is not enabled at the peer, or it has no receive queue for it",
			"an atomic whose remote address is not a multiple of 8",
		},
		Look: []string{"receive length at the peer", "max_rd_atomic here against max_dest_rd_atomic there", "rnic explain nak invalid request"},
	},
	{
		Code: uint32(rdma.WCRemAccessErr), Name: "IBV_WC_REM_ACCESS_ERR", Words: "remote access error",
		Also:  []string{"remote access violation"},
		Means: "The peer's adapter answered with the NAK “remote access error”: key, address, length or rights of an RDMA operation are not right over there.",
		Causes: []string{
			"a wrong or outdated rkey, or an address that is not in the region that it names",
			"the range reaches beyond the peer's region",
			"the peer's region or memory window lacks remote read, write or atomic",
			"the peer's memory window is not bound, or by another queue pair",
			"region and queue pair of the peer belong to different protection domains",
		},
		Look: []string{"on the peer's host: rnic ps --errors says which of these it was", "byte order of rkey and address in your own exchange"},
	},
	{
		Code: uint32(rdma.WCRemOpErr), Name: "IBV_WC_REM_OP_ERR", Words: "remote operation error",
		Also:  []string{"remote operational error"},
		Means: "The peer's adapter could not finish the request for reasons of its own (NAK “remote operational error”).",
		Causes: []string{
			"a receive that the peer posted has a bad lkey or address: look there for IBV_WC_LOC_PROT_ERR",
			"the peer's memory went away while it was used: its process died or unmapped it",
		},
		Look: []string{"the peer's completions and rnic ps --errors on its host"},
	},
	{
		Code: uint32(rdma.WCRetryExcErr), Name: "IBV_WC_RETRY_EXC_ERR", Words: "transport retry counter exceeded",
		Also: []string{
			"retry exceeded", "transport retry count exceeded", "transport retry error", "vendor err 129",
			"syndrom 0x81",
		},
		Means: "The peer did not acknowledge, although the packet was sent retry_cnt + 1 times, each time with a wait of at least 4.096 µs × 2^timeout. The data may or may not have arrived.",
		Causes: []string{
			"the peer's queue pair is not in RTR yet, is in error, or is gone: its program ended or closed it",
			"wrong addressing: GID or GID index, QP number, or the first PSN of the two sides",
			"packets do not get through: a firewall drops UDP port 4791, or the path carries no packets of the path MTU",
			"timeout and retry_cnt are too small for a path that loses packets or for a peer that is stopped",
		},
		Look: []string{
			"state of the peer's queue pair (rnic ps on its host)", "rnic stat on both hosts: out_of_seq_request, rcvd_seq_err, local_ack_timeout_err, packets with a wrong ICRC",
			"rnic ping to the peer", "vendor_err: 2 says no answer at all, 3 says lost packets, 5 says that no adapter is there",
		},
		Source: "IBTA 11.6.2, 9.9.2.4.2; ibv_poll_cq(3)",
	},
	{
		Code: uint32(rdma.WCRNRRetryExcErr), Name: "IBV_WC_RNR_RETRY_EXC_ERR", Words: "RNR retry counter exceeded",
		Also:  []string{"receiver not ready", "rnr retry exceeded", "rnr exceeded", "RNR"},
		Means: "The peer is alive but had no receive posted each time the message came: it answered “receiver not ready” more often than rnr_retry allows.",
		Causes: []string{
			"the peer posts its receives after the first message is sent, or fewer than messages come",
			"the peer's program is busy and does not post receives fast enough",
			"rnr_retry is 0 or small; 7 means for ever",
		},
		Look:   []string{"post receives before the queue pair goes to RTR", "rnr_retry here, min_rnr_timer at the peer", "counter send_rnr_err of the peer"},
		Source: "IBTA 11.6.2, 9.7.5.2.8; ibv_poll_cq(3)",
	},
	{Code: uint32(rdma.WCLocRDDViolErr), Name: "IBV_WC_LOC_RDD_VIOL_ERR", Words: "local RDD violation error", Means: reserved},
	{Code: uint32(rdma.WCRemInvRDReqErr), Name: "IBV_WC_REM_INV_RD_REQ_ERR", Words: "remote invalid RD request", Means: reserved},
	{
		Code: uint32(rdma.WCRemAbortErr), Name: "IBV_WC_REM_ABORT_ERR", Words: "aborted error",
		Also:   []string{"remote aborted"},
		Means:  "The peer gave the operation up: its queue pair went into error or was reset while the operation was under way.",
		Causes: []string{"the peer's program closed its queue pair"},
		Look:   []string{"why the peer ended"},
	},
	{Code: uint32(rdma.WCInvEECNErr), Name: "IBV_WC_INV_EECN_ERR", Words: "invalid EE context number", Means: reserved},
	{Code: uint32(rdma.WCInvEECStateErr), Name: "IBV_WC_INV_EEC_STATE_ERR", Words: "invalid EE context state", Means: reserved},
	{
		Code: uint32(rdma.WCFatalErr), Name: "IBV_WC_FATAL_ERR", Words: "fatal error",
		Means:  "The adapter itself failed and cannot say more.",
		Causes: []string{"the device is being removed or reset", "a fault of adapter or driver"},
		Look:   []string{"asynchronous events, the kernel's log; with SoftRNIC the log of the NIC"},
	},
	{
		Code: uint32(rdma.WCRespTimeoutErr), Name: "IBV_WC_RESP_TIMEOUT_ERR", Words: "response timeout error",
		Means:  "An answer that was promised did not come in time. Few adapters use it; most say IBV_WC_RETRY_EXC_ERR.",
		Causes: []string{"as for IBV_WC_RETRY_EXC_ERR"},
		Look:   []string{"rnic explain IBV_WC_RETRY_EXC_ERR"},
	},
	{
		Code: uint32(rdma.WCGeneralErr), Name: "IBV_WC_GENERAL_ERR", Words: "general error",
		Means:  "Something failed for which there is no other status; vendor_err may tell more.",
		Causes: []string{"depends on the adapter"},
		Look:   []string{"vendor_err"},
	},
	{
		Code: uint32(rdma.WCTagErr), Name: "IBV_WC_TM_ERR", Words: "TM error",
		Means:  "An operation on a matching list could not be carried out.",
		Causes: []string{"IBV_WR_TAG_DEL of a buffer that a message has matched meanwhile"},
		Look:   []string{"vendor_err"},
	},
	{
		Code: uint32(rdma.WCTagIncomplete), Name: "IBV_WC_TM_RNDV_INCOMPLETE", Words: "TM software rendezvous",
		Means:  "A rendezvous was matched by tag, but its data are longer than the buffer. The buffer holds the request, and the program has to fetch the data and tell the sender.",
		Causes: []string{"the tagged buffer is shorter than the sender's message"},
		Look:   []string{"len in the struct ibv_rvh at the start of the buffer, behind the struct ibv_tmh"},
	},
}
