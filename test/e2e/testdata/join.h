/* How programs whose both ends are their own bring a reliable queue pair up. */
#ifndef JOIN_H
#define JOIN_H

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

/* The peer may do what access allows, and each has depth READs under way at most. */
static void join(struct ibv_qp *qp, uint32_t peer, unsigned int access, uint8_t depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = access,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = depth,
		.max_rd_atomic = depth,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
	};

	require(!ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid), "ibv_query_gid");
	require(!ibv_modify_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"to INIT");
	attr.qp_state = IBV_QPS_RTR;
	require(!ibv_modify_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				       IBV_QP_MIN_RNR_TIMER),
		"to RTR");
	attr.qp_state = IBV_QPS_RTS;
	require(!ibv_modify_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		"to RTS");
}

#endif
