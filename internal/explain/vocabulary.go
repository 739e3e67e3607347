package explain

import "github.com/softrnic/softrnic/internal/rdma"

//tidy:table
var qpTypes = []Entry{
	{Code: uint32(rdma.QPTypeRC), Name: "IBV_QPT_RC", Words: "RC", Also: []string{"reliable connection"}, Means: "Reliable connection: one peer, in order, acknowledged, sent again after loss. Has all operations."},
	{Code: uint32(rdma.QPTypeUC), Name: "IBV_QPT_UC", Words: "UC", Also: []string{"unreliable connection"}, Means: "Unreliable connection: one peer, nothing is acknowledged; a message with a lost packet is dropped whole. SEND and WRITE."},
	{Code: uint32(rdma.QPTypeUD), Name: "IBV_QPT_UD", Words: "UD", Also: []string{"unreliable datagram"}, Means: "Unreliable datagram: any peer by address handle, one packet a message, Q_Key instead of a connection, multicast. SEND only; a receive needs 40 bytes more in front."},
	{Code: uint32(rdma.QPTypeXRCSend), Name: "IBV_QPT_XRC_SEND", Words: "XRC_SEND", Also: []string{"XRC initiator"}, Means: "Initiator of extended reliable connection: one connection to a host, each send names the shared receive queue of the process that it is for."},
	{Code: uint32(rdma.QPTypeXRCRecv), Name: "IBV_QPT_XRC_RECV", Words: "XRC_RECV", Also: []string{"XRC target"}, Means: "Target of extended reliable connection: takes messages for all XRC shared receive queues of its domain."},
}

//tidy:table
var accessFlags = []Entry{
	{Code: uint32(rdma.AccessLocalWrite), Name: "IBV_ACCESS_LOCAL_WRITE", Words: "local_write", Means: "The NIC may write the region for this program's own receives, READs and atomics. Remote write and atomic need it too."},
	{Code: uint32(rdma.AccessRemoteWrite), Name: "IBV_ACCESS_REMOTE_WRITE", Words: "remote_write", Means: "A peer with the rkey may write. The queue pair has to grant it as well (qp_access_flags)."},
	{Code: uint32(rdma.AccessRemoteRead), Name: "IBV_ACCESS_REMOTE_READ", Words: "remote_read", Means: "A peer with the rkey may READ. The queue pair has to grant it as well."},
	{Code: uint32(rdma.AccessRemoteAtomic), Name: "IBV_ACCESS_REMOTE_ATOMIC", Words: "remote_atomic", Means: "A peer with the rkey may do atomics. The queue pair has to grant it as well."},
	{Code: uint32(rdma.AccessMWBind), Name: "IBV_ACCESS_MW_BIND", Words: "mw_bind", Means: "Memory windows may be bound to the region."},
	{Code: uint32(rdma.AccessZeroBased), Name: "IBV_ACCESS_ZERO_BASED", Words: "zero_based", Means: "Addresses in work requests count from the start of the region instead of being virtual addresses."},
	{Code: uint32(rdma.AccessOnDemand), Name: "IBV_ACCESS_ON_DEMAND", Words: "on_demand", Also: []string{"ODP"}, Means: "On-demand paging: memory is not pinned. SoftRNIC never pins, so it costs nothing."},
	{Code: uint32(rdma.AccessHugeTLB), Name: "IBV_ACCESS_HUGETLB", Words: "hugetlb", Means: "The program promises huge pages. A hint."},
	{Code: uint32(rdma.AccessFlushGlobal), Name: "IBV_ACCESS_FLUSH_GLOBAL", Words: "flush_global", Means: "A peer may ask that its writes are visible to everybody (FLUSH)."},
	{Code: uint32(rdma.AccessFlushPersist), Name: "IBV_ACCESS_FLUSH_PERSISTENT", Words: "flush_persistent", Means: "A peer may ask that its writes are on persistent memory (FLUSH)."},
	{Code: uint32(rdma.AccessRelaxedOrder), Name: "IBV_ACCESS_RELAXED_ORDERING", Words: "relaxed_ordering", Means: "Hardware may reorder its writes on the bus. A hint."},
}

//tidy:table
var opcodes = []Entry{
	{Code: uint32(rdma.WRWrite), Name: "IBV_WR_RDMA_WRITE", Words: "WRITE", Also: []string{"RDMA WRITE"}, Means: "Writes into the peer's memory; its program notices nothing. RC, UC."},
	{Code: uint32(rdma.WRWriteWithImm), Name: "IBV_WR_RDMA_WRITE_WITH_IMM", Words: "WRITE_WITH_IMM", Means: "Writes into the peer's memory, then uses up a receive there, whose completion carries 32 bits. RC, UC."},
	{Code: uint32(rdma.WRSend), Name: "IBV_WR_SEND", Words: "SEND", Means: "Sends a message into the next receive that the peer posted. All types."},
	{Code: uint32(rdma.WRSendWithImm), Name: "IBV_WR_SEND_WITH_IMM", Words: "SEND_WITH_IMM", Means: "A SEND whose completion at the peer carries 32 bits."},
	{Code: uint32(rdma.WRRead), Name: "IBV_WR_RDMA_READ", Words: "READ", Also: []string{"RDMA READ"}, Means: "Reads the peer's memory into this side's; at most max_rd_atomic at a time. RC."},
	{Code: uint32(rdma.WRCompareSwap), Name: "IBV_WR_ATOMIC_CMP_AND_SWP", Words: "CMP_SWAP", Also: []string{"compare and swap"}, Means: "Stores a new value in 8 aligned bytes of the peer if they equal another, and returns what was there. RC."},
	{Code: uint32(rdma.WRFetchAdd), Name: "IBV_WR_ATOMIC_FETCH_AND_ADD", Words: "FETCH_ADD", Also: []string{"fetch and add"}, Means: "Adds to 8 aligned bytes of the peer and returns what was there. RC."},
	{Code: uint32(rdma.WRLocalInvalidate), Name: "IBV_WR_LOCAL_INV", Words: "LOCAL_INV", Means: "Invalidates a key of this side, such as that of a memory window of type 2."},
	{Code: uint32(rdma.WRBindMW), Name: "IBV_WR_BIND_MW", Words: "BIND_MW", Means: "Binds a memory window of type 2 to a range of a region."},
	{Code: uint32(rdma.WRSendWithInv), Name: "IBV_WR_SEND_WITH_INV", Words: "SEND_WITH_INV", Means: "A SEND that invalidates a key of the peer when it has arrived. RC."},
	{Code: uint32(rdma.WRTSO), Name: "IBV_WR_TSO", Words: "TSO", Means: "TCP segmentation on raw queue pairs. SoftRNIC has none."},
	{Code: uint32(rdma.WRDriver1), Name: "IBV_WR_DRIVER1", Words: "DRIVER1", Means: "Left to vendors. SoftRNIC has none."},
	{Code: uint32(rdma.WRFlush), Name: "IBV_WR_FLUSH", Words: "FLUSH", Means: "Asks the peer's adapter to make earlier writes visible or persistent, and answers when they are. RC and XRC."},
	{Code: uint32(rdma.WRAtomicWrite), Name: "IBV_WR_ATOMIC_WRITE", Words: "ATOMIC_WRITE", Means: "Writes 8 aligned bytes of the peer in one piece. RC."},
}

//tidy:table
var completions = []Entry{
	{Code: uint32(rdma.WCOpSend), Name: "IBV_WC_SEND", Words: "send completed", Means: "One of the SEND operations is done."},
	{Code: uint32(rdma.WCOpWrite), Name: "IBV_WC_RDMA_WRITE", Words: "write completed", Means: "An RDMA WRITE, with or without immediate data, is done."},
	{Code: uint32(rdma.WCOpRead), Name: "IBV_WC_RDMA_READ", Words: "read completed", Means: "The data of an RDMA READ is here."},
	{Code: uint32(rdma.WCOpCompareSwap), Name: "IBV_WC_COMP_SWAP", Words: "compare and swap completed", Means: "The old value of a compare-and-swap is here, in the byte order of this host."},
	{Code: uint32(rdma.WCOpFetchAdd), Name: "IBV_WC_FETCH_ADD", Words: "fetch and add completed", Means: "The old value of a fetch-and-add is here, in the byte order of this host."},
	{Code: uint32(rdma.WCOpBindMW), Name: "IBV_WC_BIND_MW", Words: "window bound", Means: "A memory window is bound."},
	{Code: uint32(rdma.WCOpLocalInvalidate), Name: "IBV_WC_LOCAL_INV", Words: "key invalidated", Means: "A key of this side is invalid now."},
	{Code: uint32(rdma.WCOpTSO), Name: "IBV_WC_TSO", Words: "TSO completed", Means: "Raw queue pairs only; SoftRNIC has none."},
	{Code: uint32(rdma.WCOpFlush), Name: "IBV_WC_FLUSH", Words: "flush completed", Means: "What a FLUSH named is visible or persistent at the peer. Not to be confused with the status IBV_WC_WR_FLUSH_ERR."},
	{Code: uint32(rdma.WCOpAtomicWrite), Name: "IBV_WC_ATOMIC_WRITE", Words: "atomic write completed", Means: "An atomic write is done."},
	{Code: uint32(rdma.WCOpRecv), Name: "IBV_WC_RECV", Words: "receive completed", Means: "A message arrived in a posted receive; byte_len tells its length."},
	{Code: uint32(rdma.WCOpRecvWriteImm), Name: "IBV_WC_RECV_RDMA_WITH_IMM", Words: "write with immediate arrived", Means: "The peer wrote with immediate data: the data is at the address that it named, not in the receive."},
	{Code: uint32(rdma.WCOpTagAdd), Name: "IBV_WC_TM_ADD", Words: "tagged buffer added", Means: "IBV_WR_TAG_ADD was carried out."},
	{Code: uint32(rdma.WCOpTagDel), Name: "IBV_WC_TM_DEL", Words: "tagged buffer deleted", Means: "IBV_WR_TAG_DEL was carried out: the buffer is the program's again."},
	{Code: uint32(rdma.WCOpTagSync), Name: "IBV_WC_TM_SYNC", Words: "unexpected messages counted", Means: "IBV_WR_TAG_SYNC was carried out."},
	{Code: uint32(rdma.WCOpTagRecv), Name: "IBV_WC_TM_RECV", Words: "tagged message", Means: "A message with a tag. With IBV_WC_TM_MATCH it has found its buffer, with IBV_WC_TM_DATA_VALID its data are there; with neither it was unexpected, and an ordinary receive of the queue holds all of it."},
	{Code: uint32(rdma.WCOpTagNone), Name: "IBV_WC_TM_NO_TAG", Words: "message without a tag", Means: "A message without a tag, or a FIN; an ordinary receive of the queue holds all of it."},
}

//tidy:table
var sendFlags = []Entry{
	{Code: uint32(rdma.SendFence), Name: "IBV_SEND_FENCE", Words: "fence", Means: "Begin only after all READs and atomics before it are complete."},
	{Code: uint32(rdma.SendSignaled), Name: "IBV_SEND_SIGNALED", Words: "signaled", Means: "Make a completion also in case of success. Without it the slot comes back only with a later signaled request."},
	{Code: uint32(rdma.SendSolicited), Name: "IBV_SEND_SOLICITED", Words: "solicited", Means: "Raise the peer's completion event even if it asked for solicited ones only."},
	{Code: uint32(rdma.SendInline), Name: "IBV_SEND_INLINE", Words: "inline", Means: "Copy the data while posting, so that the buffer is free at once; at most max_inline_data bytes."},
}

//tidy:table
var wcFlags = []Entry{
	{Code: uint32(rdma.WCGRH), Name: "IBV_WC_GRH", Words: "GRH present", Means: "The first 40 bytes of the datagram's buffer hold its network header."},
	{Code: uint32(rdma.WCWithImm), Name: "IBV_WC_WITH_IMM", Words: "immediate data", Means: "imm_data is valid; it is in network byte order."},
	{Code: uint32(rdma.WCWithInv), Name: "IBV_WC_WITH_INV", Words: "key invalidated by the peer", Means: "invalidated_rkey is valid."},
	{Code: uint32(rdma.WCTagSyncWanted), Name: "IBV_WC_TM_SYNC_REQ", Words: "synchronization wanted", Means: "The program's count of unexpected messages is not the NIC's: buffers posted meanwhile are not matched until IBV_WR_TAG_SYNC brings it up to date."},
	{Code: uint32(rdma.WCTagMatch), Name: "IBV_WC_TM_MATCH", Words: "matched by tag", Means: "The message has found the tagged buffer of wr_id."},
	{Code: uint32(rdma.WCTagDataValid), Name: "IBV_WC_TM_DATA_VALID", Words: "data in the tagged buffer", Means: "All data of the message are in the tagged buffer, which is the program's again."},
}

//tidy:table
var attributes = []Entry{
	{Code: uint32(rdma.QPAttrState), Name: "IBV_QP_STATE", Words: "qp_state", Means: "The state to go to."},
	{Code: uint32(rdma.QPAttrCurState), Name: "IBV_QP_CUR_STATE", Words: "cur_qp_state", Means: "The state that the caller believes in; another one is EINVAL."},
	{Code: uint32(rdma.QPAttrEnSQDAsyncNotify), Name: "IBV_QP_EN_SQD_ASYNC_NOTIFY", Words: "en_sqd_async_notify", Means: "Raise IBV_EVENT_SQ_DRAINED when the queue is drained."},
	{Code: uint32(rdma.QPAttrAccessFlags), Name: "IBV_QP_ACCESS_FLAGS", Words: "qp_access_flags", Means: "What the peer may do at all, whatever regions grant. Without remote flags, RDMA from the peer is a remote invalid request error."},
	{Code: uint32(rdma.QPAttrPKeyIndex), Name: "IBV_QP_PKEY_INDEX", Words: "pkey_index", Means: "Index of the partition key; 0 on RoCE."},
	{Code: uint32(rdma.QPAttrPort), Name: "IBV_QP_PORT", Words: "port_num", Means: "The port; counts from 1."},
	{Code: uint32(rdma.QPAttrQKey), Name: "IBV_QP_QKEY", Words: "qkey", Means: "UD: datagrams with another Q_Key are dropped."},
	{Code: uint32(rdma.QPAttrAV), Name: "IBV_QP_AV", Words: "ah_attr", Means: "The path: is_global, dgid, sgid_index, hop limit. On RoCE is_global is 1."},
	{Code: uint32(rdma.QPAttrPathMTU), Name: "IBV_QP_PATH_MTU", Words: "path_mtu", Means: "Payload of a full packet; at most the port's active MTU, and the same at both ends."},
	{Code: uint32(rdma.QPAttrTimeout), Name: "IBV_QP_TIMEOUT", Words: "timeout", Means: "How long to wait for an acknowledge: 4.096 µs × 2^timeout; 14 is 67 ms, 0 is for ever."},
	{Code: uint32(rdma.QPAttrRetryCnt), Name: "IBV_QP_RETRY_CNT", Words: "retry_cnt", Means: "How often to send again for want of an acknowledge, 0 to 7, before IBV_WC_RETRY_EXC_ERR."},
	{Code: uint32(rdma.QPAttrRNRRetry), Name: "IBV_QP_RNR_RETRY", Words: "rnr_retry", Means: "How often to try again after receiver-not-ready, 0 to 6, before IBV_WC_RNR_RETRY_EXC_ERR; 7 is for ever."},
	{Code: uint32(rdma.QPAttrRQPSN), Name: "IBV_QP_RQ_PSN", Words: "rq_psn", Means: "The first packet sequence number expected: the peer's sq_psn."},
	{Code: uint32(rdma.QPAttrMaxQPRdAtomic), Name: "IBV_QP_MAX_QP_RD_ATOMIC", Words: "max_rd_atomic", Means: "READs and atomics in flight from here; at most the peer's max_dest_rd_atomic."},
	{Code: uint32(rdma.QPAttrAltPath), Name: "IBV_QP_ALT_PATH", Words: "alt_ah_attr", Means: "The alternate path of path migration. SoftRNIC has no path migration, and refuses it."},
	{Code: uint32(rdma.QPAttrMinRNRTimer), Name: "IBV_QP_MIN_RNR_TIMER", Words: "min_rnr_timer", Means: "How long this side's receiver-not-ready asks the peer to wait, as a code: 12 is 0.64 ms, 0 is 655 ms (the longest)."},
	{Code: uint32(rdma.QPAttrSQPSN), Name: "IBV_QP_SQ_PSN", Words: "sq_psn", Means: "The first packet sequence number sent: the peer's rq_psn."},
	{Code: uint32(rdma.QPAttrMaxDestRdAtomic), Name: "IBV_QP_MAX_DEST_RD_ATOMIC", Words: "max_dest_rd_atomic", Means: "READs and atomics that the peer may have in flight to here; more are an invalid request."},
	{Code: uint32(rdma.QPAttrPathMigState), Name: "IBV_QP_PATH_MIG_STATE", Words: "path_mig_state", Means: "State of path migration; only “migrated” here."},
	{Code: uint32(rdma.QPAttrCap), Name: "IBV_QP_CAP", Words: "cap", Means: "Other queue sizes. Few devices can; SoftRNIC cannot."},
	{Code: uint32(rdma.QPAttrDestQPN), Name: "IBV_QP_DEST_QPN", Words: "dest_qp_num", Means: "The peer's queue pair number, 24 bits."},
	{Code: uint32(rdma.QPAttrRateLimit), Name: "IBV_QP_RATE_LIMIT", Words: "rate_limit", Means: "Packet pacing of raw queue pairs. SoftRNIC has none."},
}

//tidy:table
var mtus = []Entry{
	{Code: uint32(rdma.MTU256), Name: "IBV_MTU_256", Words: "256 bytes", Means: "Path MTU of 256 bytes."},
	{Code: uint32(rdma.MTU512), Name: "IBV_MTU_512", Words: "512 bytes", Means: "Path MTU of 512 bytes."},
	{Code: uint32(rdma.MTU1024), Name: "IBV_MTU_1024", Words: "1024 bytes", Means: "Path MTU of 1024 bytes: the largest that an interface MTU of 1500 carries."},
	{Code: uint32(rdma.MTU2048), Name: "IBV_MTU_2048", Words: "2048 bytes", Means: "Path MTU of 2048 bytes."},
	{Code: uint32(rdma.MTU4096), Name: "IBV_MTU_4096", Words: "4096 bytes", Means: "Path MTU of 4096 bytes; the interface needs an MTU of about 4200 or more."},
}

//tidy:table
var gidTypes = []Entry{
	{Code: uint32(rdma.GIDTypeIB), Name: "IBV_GID_TYPE_IB", Words: "IB", Means: "A GID of an InfiniBand subnet."},
	{Code: uint32(rdma.GIDTypeRoCEv1), Name: "IBV_GID_TYPE_ROCE_V1", Words: "RoCE v1", Means: "Packets in Ethernet frames of type 0x8915, within one network segment."},
	{Code: uint32(rdma.GIDTypeRoCEv2), Name: "IBV_GID_TYPE_ROCE_V2", Words: "RoCE v2", Means: "Packets in UDP, port 4791, through any IP network. The GID is the IP address (IPv4 as ::ffff:a.b.c.d).", Source: "IBTA annex A17"},
}

//tidy:table
var migrations = []Entry{
	{Code: uint32(rdma.MigrationMigrated), Name: "IBV_MIG_MIGRATED", Words: "migrated", Means: "The connection uses its path, and no alternate is armed."},
	{Code: uint32(rdma.MigrationRearm), Name: "IBV_MIG_REARM", Words: "rearm", Means: "The alternate path is being armed. SoftRNIC has no path migration."},
	{Code: uint32(rdma.MigrationArmed), Name: "IBV_MIG_ARMED", Words: "armed", Means: "The alternate path is ready. SoftRNIC has no path migration."},
}

//tidy:table
var windows = []Entry{
	{Code: uint32(rdma.MWType1), Name: "IBV_MW_TYPE_1", Words: "memory window type 1", Means: "Bound by ibv_bind_mw; serves every queue pair of its protection domain."},
	{Code: uint32(rdma.MWType2), Name: "IBV_MW_TYPE_2", Words: "memory window type 2", Means: "Bound by a work request (IBV_WR_BIND_MW), with a key that the program chooses in part; serves the queue pair that bound it, until it is invalidated."},
}

//tidy:table
var advices = []Entry{
	{Code: uint32(rdma.AdvicePrefetch), Name: "IBV_ADVISE_MR_ADVICE_PREFETCH", Words: "prefetch", Means: "Get the pages ready for reading. A hint."},
	{Code: uint32(rdma.AdvicePrefetchWrite), Name: "IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE", Words: "prefetch for writing", Means: "Get the pages ready for writing. A hint."},
	{Code: uint32(rdma.AdvicePrefetchNoFault), Name: "IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT", Words: "prefetch without faults", Means: "Get those pages ready that are in memory; bring in no others. A hint."},
}

//tidy:table
var reregs = []Entry{
	{Code: uint32(rdma.ReregTranslation), Name: "IBV_REREG_MR_CHANGE_TRANSLATION", Words: "change translation", Means: "The region gets another address range."},
	{Code: uint32(rdma.ReregPD), Name: "IBV_REREG_MR_CHANGE_PD", Words: "change protection domain", Means: "The region moves to another protection domain."},
	{Code: uint32(rdma.ReregAccess), Name: "IBV_REREG_MR_CHANGE_ACCESS", Words: "change access", Means: "The region gets other access flags."},
}
