/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: their lives, states and attributes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "world.h"

static const unsigned int all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

enum ibv_qp_state queue_pair_state(int slot)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {0};

	if (ibv_query_qp(world.qps[slot].qp, &attr, IBV_QP_STATE, &init))
		return IBV_QPS_UNKNOWN;
	return attr.qp_state;
}

static void create_qp(int i, enum ibv_qp_type type)
{
	struct qp_slot *q = &world.qps[i];
	struct ibv_qp_init_attr init = {.qp_type = type, .cap = q->asked};

	if (!world.cqs[q->send_cq] || !world.cqs[q->recv_cq] || !world.pds[q->pd])
		return;
	init.send_cq = world.cqs[q->send_cq];
	init.recv_cq = world.cqs[q->recv_cq];
	init.srq = q->srq >= 0 ? world.srqs[q->srq].srq : NULL;
	init.sq_sig_all = q->all_signaled;
	q->qp = ibv_create_qp(world.pds[q->pd], &init);
	tell("create_qp qp%d type %d pd%d cq%d cq%d srq%d wr %u %u sge %u %u inline %u: %s", i,
	     type, q->pd, q->send_cq, q->recv_cq, q->srq, q->asked.max_send_wr,
	     q->asked.max_recv_wr, q->asked.max_send_sge, q->asked.max_recv_sge,
	     q->asked.max_inline_data, outcome(q->qp ? 0 : errno));
	q->cap = init.cap;
	works_drop(&q->sends);
	works_drop(&q->receives);
	if (!q->qp)
		return;
	if (q->cap.max_send_wr < q->asked.max_send_wr ||
	    q->cap.max_send_sge < q->asked.max_send_sge ||
	    q->cap.max_inline_data < q->asked.max_inline_data ||
	    (!init.srq && q->cap.max_recv_wr < q->asked.max_recv_wr) ||
	    (!init.srq && q->cap.max_recv_sge < q->asked.max_recv_sge))
		tell("qp%d is too small", i);
}

static int modify(int i, struct ibv_qp_attr *attr, int mask)
{
	int error = ibv_modify_qp(world.qps[i].qp, attr, mask);

	if (!error && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET) {
		works_drop(&world.qps[i].sends);
		works_drop(&world.qps[i].receives);
	}
	return error;
}

static const int init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

static int right_mask(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
}

static int rtr_mask(enum ibv_qp_type type)
{
	if (type == IBV_QPT_UD)
		return IBV_QP_STATE;
	if (type == IBV_QPT_UC)
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static int rts_mask(enum ibv_qp_type type)
{
	if (type != IBV_QPT_RC)
		return IBV_QP_STATE | IBV_QP_SQ_PSN;
	return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

static struct ibv_qp_attr good_attr(int i)
{
	const struct qp_slot *q = &world.qps[i];
	const struct qp_slot *peer = &world.qps[q->peer];
	struct ibv_qp_attr attr = {
		.port_num = 1, .path_mtu = world.mtu, .qp_access_flags = q->access,
		.rq_psn = 1000 + q->peer, .sq_psn = 1000 + i, .max_rd_atomic = 4,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 17, .retry_cnt = 1,
		.rnr_retry = 1, .qkey = q->qkey,
		.dest_qp_num = peer->qp ? peer->qp->qp_num : 0xfffff0,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};

	attr.ah_attr.grh.sgid_index = world.gid_index;
	attr.ah_attr.grh.dgid = world.gid;
	return attr;
}

/* Takes a queue pair from wherever it is to RTS. */
static void raise(int i, struct ibv_qp_attr attr)
{
	enum ibv_qp_type type = world.qps[i].qp->qp_type;
	int reset, init, rtr = 0, rts = 0;

	attr.qp_state = IBV_QPS_RESET;
	reset = modify(i, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_INIT;
	init = modify(i, &attr,
		      init_mask | right_mask(type));
	attr.qp_state = IBV_QPS_RTR;
	rtr = modify(i, &attr, rtr_mask(type));
	attr.qp_state = IBV_QPS_RTS;
	rts = modify(i, &attr, rts_mask(type));
	if (reset || init || rtr || rts)
		tell("raise qp%d qp%d: %s %s %s %s", i, world.qps[i].peer, outcome(reset),
		     outcome(init), outcome(rtr), outcome(rts));
}

/* The last two may be of any type: a pair if they are of one, else each is its own peer. */
static void pair_last(void)
{
	struct qp_slot *a = &world.qps[QPS - 2], *b = &world.qps[QPS - 1];
	bool pair = a->qp && b->qp && a->qp->qp_type == b->qp->qp_type;

	a->peer = pair ? QPS - 1 : QPS - 2;
	b->peer = pair ? QPS - 2 : QPS - 1;
}

void queue_pairs_heal(void)
{
	world.mtu = CHANCE_OF(IBV_MTU_256, IBV_MTU_1024, IBV_MTU_1024);
	pair_last();
	for (int i = 0; i < QPS; i++) {
		world.qps[i].access = all_rights;
		if (world.qps[i].qp)
			raise(i, good_attr(i));
	}
}

/* Takes a queue pair from RTS to any other state but SQE. */
void queue_pair_change(int slot)
{
	struct ibv_qp_attr attr = good_attr(slot);
	enum ibv_qp_type type = world.qps[slot].qp->qp_type;
	int to = CHANCE_OF(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_SQD, IBV_QPS_ERR,
			   IBV_QPS_RTS, IBV_QPS_RTS);
	int errors[3] = {0};

	if (to == IBV_QPS_RTS) {
		attr.qp_access_flags = chance_below(8) << 1;
		errors[0] = modify(slot, &attr, right_mask(type));
		tell("change qp%d to rights %#x: %s", slot, attr.qp_access_flags,
		     outcome(errors[0]));
		return;
	}
	attr.qp_state = to == IBV_QPS_INIT || to == IBV_QPS_RTR ? IBV_QPS_RESET : to;
	errors[0] = modify(slot, &attr, IBV_QP_STATE);
	if (to == IBV_QPS_INIT || to == IBV_QPS_RTR) {
		attr.qp_state = IBV_QPS_INIT;
		errors[1] = modify(slot, &attr, init_mask | right_mask(type));
	}
	if (to == IBV_QPS_RTR) {
		attr.qp_state = IBV_QPS_RTR;
		errors[2] = modify(slot, &attr, rtr_mask(type));
	}
	tell("change qp%d to state %d: %s %s %s", slot, to, outcome(errors[0]), outcome(errors[1]),
	     outcome(errors[2]));
}

void step_qp_lifetime(void)
{
	int i = chance_percent(85) ? QPS - 1 - (int)chance_below(2) : (int)chance_below(QPS);
	struct qp_slot *q = &world.qps[i];
	enum ibv_qp_type type;
	int error;

	world.risky = true;
	if (q->qp) {
		error = ibv_destroy_qp(q->qp);
		tell("destroy_qp qp%d: %s", i, outcome(error));
		if (!error)
			q->qp = NULL;
		return;
	}
	type = i < 6 ? (enum ibv_qp_type)(IBV_QPT_RC + i / 2) : IBV_QPT_RC;
	if (i < 6 && i / 2 == 2)
		type = IBV_QPT_UD;
	else if (i >= 6)
		type = CHANCE_OF(IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, 1, 77);
	q->pd = 0;
	q->send_cq = chance_below(CQS);
	q->recv_cq = chance_below(CQS);
	q->srq = chance_percent(40) ? (int)chance_below(SRQS) : -1;
	/* UC takes none, as we have it: only where few things hang on it. */
	if (q->srq >= 0 && (!world.srqs[q->srq].srq || (type == IBV_QPT_UC && i < 6)))
		q->srq = -1;
	q->asked = (struct ibv_qp_cap){16, 16, 2, 2, 64};
	q->all_signaled = chance_percent(10);
	if (chance_percent(20))
		q->asked.max_send_wr = CHANCE_OF(0, 1 << 30);
	if (chance_percent(20))
		q->asked.max_recv_sge = CHANCE_OF(1, 5000);
	if (chance_percent(10))
		q->asked.max_inline_data = 1 << 20;
	create_qp(i, type);
}

/* Changes attributes at random; a mask that the transition wants has a bit too much or too few. */
void step_qp_modify(void)
{
	int i = chance_below(QPS);
	struct ibv_qp_attr attr = good_attr(i);
	enum ibv_qp_type type;
	int mask, error;

	if (!world.qps[i].qp)
		return;
	world.risky = true;
	type = world.qps[i].qp->qp_type;
	attr.qp_state = CHANCE_OF(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
				  IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR);
	mask = IBV_QP_STATE;
	if (attr.qp_state == IBV_QPS_INIT)
		mask = init_mask | right_mask(type);
	else if (attr.qp_state == IBV_QPS_RTR)
		mask = rtr_mask(type);
	else if (attr.qp_state == IBV_QPS_RTS && chance_percent(50))
		mask = rts_mask(type);
	if (chance_percent(30))
		mask ^= 1 << chance_below(21);
	switch (chance_below(14)) {
	case 0:
		attr.port_num = CHANCE_OF(0, 2);
		break;
	case 1:
		attr.path_mtu = CHANCE_OF(0, 5, 6, 77);
		break;
	case 2:
		attr.pkey_index = 1000;
		break;
	case 3:
		attr.max_rd_atomic = attr.max_dest_rd_atomic = 255;
		break;
	case 4:
		attr.ah_attr.grh.sgid_index = 200;
		break;
	case 5:
		attr.qp_access_flags = chance_below(16);
		break;
	}
	error = modify(i, &attr, mask);
	tell("modify_qp qp%d state %d mask %#x port %d mtu %d pkey %d rd %d gid %s: %s", i,
	     attr.qp_state, mask, attr.port_num, attr.path_mtu, attr.pkey_index,
	     attr.max_rd_atomic, attr.ah_attr.grh.sgid_index == 200 ? "bad" : "good",
	     outcome(error));
}

void step_qp_query(void)
{
	int i = chance_below(QPS);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = {0};
	int error;

	if (!world.qps[i].qp || queue_pair_state(i) != IBV_QPS_RTS)
		return;
	error = ibv_query_qp(world.qps[i].qp, &attr, (1 << 21) - 1, &init);
	tell("query_qp qp%d: %s state %d cur %d port %d pkey %d", i, outcome(error), attr.qp_state,
	     attr.cur_qp_state, attr.port_num, attr.pkey_index);
	tell("query_qp qp%d type %d all signaled %d sq draining %d", i, init.qp_type,
	     init.sq_sig_all, attr.sq_draining);
	if (init.qp_type == IBV_QPT_UD) {
		tell("query_qp qp%d qkey %#x", i, attr.qkey);
		return;
	}
	tell("query_qp qp%d access %#x mtu %d path %d%d%d%d hops %d", i, attr.qp_access_flags,
	     attr.path_mtu, attr.ah_attr.is_global, attr.ah_attr.port_num,
	     attr.ah_attr.grh.sgid_index == world.gid_index,
	     !memcmp(&attr.ah_attr.grh.dgid, &world.gid, sizeof(world.gid)),
	     attr.ah_attr.grh.hop_limit);
	tell("query_qp qp%d rq_psn %u sq_psn %u", i, attr.rq_psn, attr.sq_psn);
	if (init.qp_type == IBV_QPT_RC)
		tell("query_qp qp%d rd %d %d rnr %d timeout %d retry %d %d", i, attr.max_rd_atomic,
		     attr.max_dest_rd_atomic, attr.min_rnr_timer, attr.timeout, attr.retry_cnt,
		     attr.rnr_retry);
}

void queue_pairs_begin(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

	for (int i = 0; i < QPS; i++) {
		struct qp_slot *q = &world.qps[i];

		q->srq = -1;
		q->recv_cq = i % 2;
		q->peer = i ^ 1;
		q->qkey = 0x11111111;
		q->access = all_rights;
		q->asked = (struct ibv_qp_cap){16, 16, 2, 2, 64};
		if (i < 6)
			create_qp(i, types[i / 2]);
	}
	queue_pairs_heal();
}
