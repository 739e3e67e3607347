/* SPDX-License-Identifier: Apache-2.0 */
/* Connects pairs of ends: by hand, or by rdma_cm. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "ends.h"

static int end_count;
static struct rdma_event_channel *dialing, *listening;
static struct rdma_cm_id *listener;
static struct sockaddr_in address;

/* Waits for an event of rdma_cm. Those that tell of older connections are passed over. */
static struct rdma_cm_id *await(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	for (;;) {
		struct rdma_cm_id *id;
		enum rdma_cm_event_type got;

		if (rdma_get_cm_event(channel, &event))
			return NULL;
		id = event->id;
		got = event->event;
		rdma_ack_cm_event(event);
		if (got == type)
			return id;
		if (got != RDMA_CM_EVENT_DISCONNECTED && got != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			fprintf(stderr, "ends: %s\n", rdma_event_str(got));
			errno = EPROTO;
			return NULL;
		}
	}
}

static int make_qp(struct end *e, enum ibv_qp_type type, const struct wish *w)
{
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.srq = e->srq,
		.qp_type = type,
		.sq_sig_all = w->signals_all,
		.cap = {.max_send_wr = (uint32_t)(w->sends ? w->sends : 128),
			.max_recv_wr = 128,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
	};

	if (e->id) {
		if (rdma_create_qp(e->id, e->side->pds[0], &init))
			return -1;
		e->qp = e->id->qp;
		return 0;
	}
	e->qp = ibv_create_qp(e->side->pds[0], &init);
	return e->qp ? 0 : -1;
}

static int start_end(struct end *e, const struct wish *w)
{
	*e = (struct end){.side = &sides[w->side]};
	e->cq = ibv_create_cq(e->side->ctx, 1024, NULL, NULL, 0);
	if (!e->cq)
		return -1;
	if (w->srq >= 0)
		e->srq = e->side->srqs[w->srq];
	return ibv_query_gid(e->side->ctx, 1, 0, &e->gid);
}

static void aim(struct ibv_ah_attr *ah, const struct end *peer)
{
	*ah = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
	ah->grh.dgid = peer->gid;
	ah->grh.hop_limit = 64;
}

/* Takes a queue pair to RTS by hand. */
static int bring_up(struct end *e, const struct wish *w, const struct end *peer, uint32_t psn)
{
	enum ibv_qp_type type = e->qp->qp_type;
	struct ibv_qp_attr a = w->attr;
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	a.port_num = 1;
	a.qkey = w->qkey;
	a.dest_qp_num = peer->qp->qp_num;
	a.rq_psn = psn;
	a.sq_psn = w->psn;
	aim(&a.ah_attr, peer);
	init |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	a.qp_state = IBV_QPS_INIT;
	if (ibv_modify_qp(e->qp, &a, init))
		return -1;
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(e->qp, &a, rtr))
		return -1;
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(e->qp, &a, rts))
		return -1;
	if (type == IBV_QPT_UD) {
		e->ah = ibv_create_ah(e->side->pds[0], &a.ah_attr);
		return e->ah ? 0 : -1;
	}
	return 0;
}

static int connect_by_hand(struct end *a, struct end *b, enum ibv_qp_type type,
			   const struct wish w[2])
{
	if (make_qp(a, type, &w[0]) || make_qp(b, type, &w[1]))
		return -1;
	return bring_up(a, &w[0], b, w[1].psn) || bring_up(b, &w[1], a, w[0].psn) ? -1 : 0;
}

static int dial(struct end *e, const struct wish *w)
{
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16, .retry_count = 7, .rnr_retry_count = 7};

	if (rdma_create_id(dialing, &e->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&address, PATIENCE_MS) ||
	    !await(dialing, RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    rdma_resolve_route(e->id, PATIENCE_MS) ||
	    !await(dialing, RDMA_CM_EVENT_ROUTE_RESOLVED) || make_qp(e, IBV_QPT_RC, w))
		return -1;
	return rdma_connect(e->id, &param);
}

static int connect_by_cm(struct end *a, struct end *b, const struct wish w[2])
{
	struct rdma_conn_param param = {
		.responder_resources = 16, .initiator_depth = 16, .rnr_retry_count = 7};
	struct ibv_qp_attr grant[2] = {w[0].attr, w[1].attr};

	if (dial(a, &w[0]))
		return -1;
	b->id = await(listening, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!b->id || make_qp(b, IBV_QPT_RC, &w[1]) || rdma_accept(b->id, &param) ||
	    !await(listening, RDMA_CM_EVENT_ESTABLISHED) ||
	    !await(dialing, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	return ibv_modify_qp(a->qp, &grant[0], IBV_QP_ACCESS_FLAGS) ||
		       ibv_modify_qp(b->qp, &grant[1], IBV_QP_ACCESS_FLAGS)
		       ? -1
		       : 0;
}

static struct wish read_wish(int side)
{
	struct wish w = {.side = side};

	w.srq = (int)number() - 1;
	w.sends = (int)number();
	w.signals_all = number();
	w.psn = (uint32_t)number();
	w.qkey = (uint32_t)number();
	w.attr.qp_access_flags = (unsigned int)number();
	w.attr.path_mtu = (enum ibv_mtu)number();
	w.attr.max_rd_atomic = (uint8_t)number();
	w.attr.max_dest_rd_atomic = (uint8_t)number();
	w.attr.min_rnr_timer = (uint8_t)number();
	w.attr.timeout = (uint8_t)number();
	w.attr.retry_cnt = (uint8_t)number();
	w.attr.rnr_retry = (uint8_t)number();
	return w;
}

void do_connect(void)
{
	enum ibv_qp_type type = (enum ibv_qp_type)number();
	struct wish w[2];
	struct end *e = &ends[end_count];

	w[0] = read_wish(0);
	w[1] = read_wish(1);
	if (end_count + 2 > SLOTS || start_end(&e[0], &w[0]) || start_end(&e[1], &w[1]) ||
	    (listener ? connect_by_cm(&e[0], &e[1], w) : connect_by_hand(&e[0], &e[1], type, w))) {
		refuse(errno, 0);
		return;
	}
	printf("ok %d %u %u\n", end_count, e[0].qp->qp_num, e[1].qp->qp_num);
	end_count += 2;
}

struct ibv_context *listen_at(const char *where)
{
	address.sin_family = AF_INET;
	inet_pton(AF_INET, where, &address.sin_addr);
	dialing = rdma_create_event_channel();
	listening = rdma_create_event_channel();
	if (!dialing || !listening || rdma_create_id(listening, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, (struct sockaddr *)&address) || rdma_listen(listener, 64))
		die("listen");
	address.sin_port = rdma_get_src_port(listener);
	return listener->verbs;
}
