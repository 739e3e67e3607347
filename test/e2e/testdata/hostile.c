/*
 * Calls verbs in any order with arguments that are right, nearly right or wrong: objects of other
 * contexts and domains, ranges that are not there, flags and states that do not exist. It wants
 * each to succeed or to fail with an errno that the manual pages and the Linux kernel know for it,
 * and at the end destroys everything, in any order that works. Pointers are always good: what
 * happens with others is nobody's promise.
 *
 *   hostile SEED STEPS [doomed]     doomed says that the NIC may vanish: then EIO is right
 */
#include "hostile_objects.h"

static void modify_qp(void)
{
	static const int masks[] = {
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC,
		IBV_QP_SQ_PSN, 0, IBV_QP_CUR_STATE, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE, 1 << 30,
	};
	struct ibv_qp *qp = any(QP), *peer = any(QP);
	struct ibv_qp_attr attr = {
		.cur_qp_state = (enum ibv_qp_state)roll(8), .path_mtu = (enum ibv_mtu)ONE(3, 3, 1, 0, 9),
		.port_num = (uint8_t)ONE(1, 1, 1, 2, 0), .timeout = (uint8_t)ONE(8, 8, 0, 40),
		.qp_access_flags = (unsigned int)ONE(7, 15, 0, 1 << 30), .qkey = 0x11111111,
		.max_rd_atomic = (uint8_t)ONE(1, 16, 0, 255), .pkey_index = (uint16_t)ONE(0, 0, 0, 9),
		.max_dest_rd_atomic = (uint8_t)ONE(1, 16, 0, 255), .ah_attr = route(),
		.retry_cnt = (uint8_t)ONE(1, 7, 8), .rnr_retry = (uint8_t)ONE(1, 7, 8),
		.min_rnr_timer = (uint8_t)ONE(1, 12, 40), .rq_psn = (uint32_t)ONE(0, 0, 1 << 24),
		.dest_qp_num = peer ? peer->qp_num : 0,
	};
	int datagram;
	uint32_t mask;

	if (!qp)
		return;
	datagram = qp->qp_type == IBV_QPT_UD;
	attr.qp_state = qp->state < IBV_QPS_RTS ? qp->state + 1 : IBV_QPS_ERR;
	if (qp->state == IBV_QPS_RESET)
		mask = (uint32_t)masks[datagram];
	else if (qp->state == IBV_QPS_INIT)
		mask = datagram ? 0 : (uint32_t)masks[qp->qp_type == IBV_QPT_RC ? 2 : 3];
	else if (qp->state == IBV_QPS_RTR)
		mask = (uint32_t)masks[qp->qp_type == IBV_QPT_RC ? 4 : 5];
	else
		mask = 0;
	if (!roll(4))
		attr.qp_state = (enum ibv_qp_state)ONE(0, 1, 2, 3, 4, 5, 6, 7, 128);
	if (!roll(4))
		mask = (uint32_t)masks[roll(COUNT(masks))];
	told(ibv_modify_qp(qp, &attr, (int)(mask | (roll(20) ? IBV_QP_STATE : 0))));
}

static void query(void)
{
	struct ibv_qp_attr qp_attr;
	struct ibv_qp_init_attr init;
	struct ibv_srq_attr srq_attr;
	struct ibv_port_attr port;
	struct ibv_device_attr device;
	union ibv_gid found;
	uint16_t pkey;
	uint32_t number;
	void *object;

	switch (roll(7)) {
	case 0:
		object = any(QP);
		if (object)
			told(ibv_query_qp(object, &qp_attr, (int)ONE(IBV_QP_STATE, ~0u, 0), &init));
		break;
	case 1:
		object = any(SRQ);
		if (object)
			told(ibv_query_srq(object, &srq_attr));
		break;
	case 2:
		told(ibv_query_port(context(), (uint8_t)ONE(1, 0, 2), &port));
		break;
	case 3:
		told(ibv_query_device(context(), &device));
		break;
	case 4:
		told(ibv_query_gid(context(), (uint8_t)ONE(1, 1, 2), (int)ONE(0, 255, -1, 5000), &found));
		break;
	case 5:
		told(ibv_query_pkey(context(), (uint8_t)ONE(1, 1, 2), (int)ONE(0, 1, -1), &pkey));
		break;
	default:
		object = any(SRQ);
		if (object)
			told(ibv_get_srq_num(object, &number));
	}
}

static void change(void)
{
	struct ibv_modify_cq_attr moderation = {
		.attr_mask = (uint32_t)ONE(1, 1, 0, 4),
		.moderate = {.cq_count = (uint16_t)ONE(0, 4, 60000), .cq_period = (uint16_t)ONE(0, 8, 9000)},
	};
	struct ibv_srq_attr limit = {
		.max_wr = (uint32_t)ONE(1, 100), .srq_limit = (uint32_t)ONE(0, 1, 4, 1 << 30),
	};
	struct ibv_srq *srq = any(SRQ);
	struct ibv_cq *cq = queue();
	struct ibv_mr *mr = any(MR);
	struct ibv_sge sge = {address(), (uint32_t)ONE(64, 4096, 0), key()};
	struct ibv_pd *pd = domain();

	switch (roll(5)) {
	case 0:
		if (cq)
			told(ibv_resize_cq(cq, (int)ONE(1, 40, 3000, 0, -1, 1 << 30)));
		break;
	case 1:
		if (cq)
			told(ibv_modify_cq(cq, &moderation));
		break;
	case 2:
		if (srq)
			told(ibv_modify_srq(srq, &limit, (int)ONE(2, 2, 1, 3, 0, 8)));
		break;
	case 3:
		if (pd)
			told(ibv_advise_mr(pd, (enum ibv_advise_mr_advice)ONE(0, 1, 2, 9),
					   (uint32_t)ONE(0, 1, 8), &sge, 1));
		break;
	default:
		if (mr && pd) {
			int error = ibv_rereg_mr(mr, (int)ONE(1, 2, 3, 4, 5, 6, 7, 0, 8), pd,
						 (void *)address(), ONE(4096, 64, 0, ~0ull),
						 (int)ONE(7, 31, 2, 1 << 10));

			told(error ? errno : 0);
		}
	}
}

/* import uses objects of the one context in the other; whose they are stays as it is. */
static void import(void)
{
	struct ibv_pd *pd = any(PD);
	struct ibv_mr *mr = any(MR), *copy;
	struct ibv_dm *dm = any(DM), *piece;
	const uint32_t handle = pd && roll(6) ? pd->handle : roll(300);

	if (num_imported < COUNT(imported)) {
		pd = ibv_import_pd(contexts[1], handle);
		told(pd ? 0 : errno);
		if (pd)
			imported[num_imported++] = pd;
	}
	if (num_imported && mr) {
		copy = ibv_import_mr(imported[roll((uint32_t)num_imported)], mr->handle);
		told(copy ? 0 : errno);
		if (copy)
			ibv_unimport_mr(copy);
	}
	if (dm) {
		piece = ibv_import_dm(contexts[1], dm->handle);
		told(piece ? 0 : errno);
		if (piece)
			ibv_unimport_dm(piece);
	}
}

static const union ibv_gid groups[] = {
	{.raw = {0xff, 0x0e, [15] = 1}}, {.raw = {0xfe, 0x0e, [15] = 1}}};

static void multicast(void)
{
	const union ibv_gid group = groups[ONE(0, 0, 1)];
	struct ibv_qp *qp = any(QP);

	if (qp)
		told(roll(2) ? ibv_attach_mcast(qp, &group, 0) : ibv_detach_mcast(qp, &group, 0));
}

static void post_send(void)
{
	struct ibv_qp *qp = any(QP), *peer = any(QP);
	struct ibv_sge sge[3] = {
		{address(), (uint32_t)ONE(8, 64, 0, 4096, ~0u), key()}, {address(), 8, key()}, {0, 0, 0},
	};
	struct ibv_send_wr wr = {
		.wr_id = state, .sg_list = sge, .num_sge = (int)ONE(1, 1, 1, 0, 2, 3, -1, 100),
		.opcode = (enum ibv_wr_opcode)ONE(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 15, 77),
		.send_flags = (unsigned int)ONE(2, 2, 2, 0, 1, 4, 1 << 10),
		.wr.rdma = {.remote_addr = address(), .rkey = key()},
	}, *bad = NULL;

	if (!qp)
		return;
	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = any(AH);
		wr.wr.ud.remote_qpn = peer->qp_num;
		if (!wr.wr.ud.ah)
			return;
	}
	if (wr.opcode == IBV_WR_BIND_MW) {
		wr.bind_mw.mw = any(MW);
		wr.bind_mw.rkey = wr.bind_mw.mw ? ibv_inc_rkey(wr.bind_mw.mw->rkey) : 0;
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
			any(MR), address(), ONE(64, 4096, 0), (unsigned int)ONE(2, 4, 6, 14, 32 | 6, 0),
		};
		if (!wr.bind_mw.mw || !wr.bind_mw.bind_info.mr)
			return;
	} else if (wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = key();
	}
	if (wr.opcode == IBV_WR_TSO || (wr.send_flags & IBV_SEND_INLINE))
		wr.num_sge = 0;
	wr.qp_type.xrc.remote_srqn = roll(64);
	told(ibv_post_send(qp, &wr, &bad));
}

static void bind(void)
{
	struct ibv_qp *qp = any(QP);
	struct ibv_mw *mw = any(MW);
	struct ibv_mw_bind info = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {any(MR), address(), ONE(64, 4096, 0), (unsigned int)ONE(2, 6, 14, 0)},
	};

	if (qp && mw && info.bind_info.mr)
		told(ibv_bind_mw(qp, mw, &info));
}

static void post_recv(void)
{
	struct ibv_sge sge = {address(), (uint32_t)ONE(64, 4096, 0), key()};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = (int)ONE(1, 1, 0, -1, 100)}, *bad = NULL;
	struct ibv_qp *qp = any(QP);
	struct ibv_srq *srq = any(SRQ);

	if (qp && roll(2))
		told(ibv_post_recv(qp, &wr, &bad));
	else if (srq)
		told(ibv_post_srq_recv(srq, &wr, &bad));
}

static void post_tags(void)
{
	struct ibv_sge sge[5] = {{address(), (uint32_t)ONE(64, 4096, 0), key()}};
	struct ibv_ops_wr next, wr = {
		.wr_id = state, .opcode = (enum ibv_ops_wr_opcode)ONE(0, 0, 0, 1, 2, 7),
		.flags = (int)ONE(0, 1, 1, 2, 3, 3, 4),
		.tm = {
			.unexpected_cnt = roll(4), .handle = roll(16),
			.add = {
				.recv_wr_id = state, .sg_list = sge, .num_sge = (int)ONE(1, 1, 0, 4, 5, -1),
				.tag = roll(2), .mask = roll(2),
			},
		},
	}, *bad = NULL;
	struct ibv_srq *srq = any(SRQ);

	next = wr;
	wr.next = roll(3) ? NULL : &next;
	if (srq)
		told(ibv_post_srq_ops(srq, &wr, &bad));
}

static void poll_some(void)
{
	struct ibv_poll_cq_attr attr = {.comp_mask = 0};
	struct ibv_comp_channel *channel = any(CHANNEL);
	struct ibv_async_event event;
	struct ibv_cq_ex *ex = any(CQ_EX);
	struct ibv_cq *cq = queue(), *from;
	struct ibv_wc wc[16];
	void *cookie;

	if (ex && !ibv_start_poll(ex, &attr)) {
		do {
			ibv_wc_read_opcode(ex);
		} while (!ibv_next_poll(ex));
		ibv_end_poll(ex);
	}
	if (cq && ibv_poll_cq(cq, 16, wc) < 0)
		refused++; /* it has overrun */
	if (cq && roll(2))
		told(ibv_req_notify_cq(cq, (int)roll(2)));
	if (channel && !ibv_get_cq_event(channel, &from, &cookie))
		ibv_ack_cq_events(from, 1);
	for (size_t i = 0; i < COUNT(contexts); i++) {
		if (!ibv_get_async_event(contexts[i], &event))
			ibv_ack_async_event(&event);
	}
}

static const struct {
	const char *name;
	void (*call)(void);
	int kind; /* what it makes, -1 for nothing */
} verbs[] = {
	{"alloc_pd", make_pd, PD}, {"alloc_td", make_td, TD},
	{"alloc_parent_domain", make_parent, PARENT}, {"create_comp_channel", make_channel, CHANNEL},
	{"create_cq", make_cq, CQ}, {"create_cq_ex", make_cq_ex, CQ_EX}, {"open_xrcd", make_xrcd, XRCD},
	{"create_srq", make_srq, SRQ}, {"create_qp", make_qp, QP}, {"create_qp", make_qp, QP},
	{"reg_mr", make_mr, MR}, {"alloc_mw", make_mw, MW}, {"alloc_dm", make_dm, DM},
	{"create_ah", make_ah, AH}, {"modify_qp", modify_qp, -1}, {"modify_qp", modify_qp, -1},
	{"modify_qp", modify_qp, -1}, {"query", query, -1}, {"modify, rereg, resize", change, -1},
	{"attach_mcast", multicast, -1}, {"post_send", post_send, -1}, {"post_send", post_send, -1},
	{"bind_mw", bind, -1}, {"post_recv", post_recv, -1}, {"poll_cq", poll_some, -1},
	{"import", import, -1}, {"post_srq_ops", post_tags, -1},
};

static void step(void)
{
	const size_t i = roll(COUNT(verbs) + 4);

	if (i >= COUNT(verbs)) {
		const enum kind kind = (enum kind)roll(FLOW_KINDS);

		if (pools[kind].count)
			end(kind, roll((uint32_t)pools[kind].count));
		return;
	}
	verb = verbs[i].name;
	if (verbs[i].kind >= 0 && full((enum kind)verbs[i].kind))
		end((enum kind)verbs[i].kind, 0);
	else
		verbs[i].call();
}

static size_t left(void)
{
	size_t sum = 0;

	for (size_t k = 0; k < FLOW_KINDS; k++)
		sum += pools[k].count;
	return sum;
}

static void clear(void)
{
	for (size_t i = 0; i < pools[QP].count; i++) /* one in a group stays */
		ibv_detach_mcast(pools[QP].item[i], &groups[0], 0);
	for (size_t before = left(); before > 0; before = left()) {
		poll_some();
		for (size_t k = 0; k < FLOW_KINDS; k++) {
			for (size_t i = pools[k].count; i-- > 0;)
				end((enum kind)k, i);
		}
		if (left() < before)
			continue;
		for (size_t k = 0; k < FLOW_KINDS; k++)
			fprintf(stderr, "kind %zu: %zu cannot be destroyed\n", k, pools[k].count);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	doomed = argc == 4;
	if (argc < 3 || !list || !list[0])
		return 2;
	state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < COUNT(contexts); i++) {
		contexts[i] = i && state & 2 ? ibv_import_device(dup(contexts[0]->cmd_fd))
					     : ibv_open_device(list[0]);
		if (!contexts[i])
			return 2;
		fcntl(contexts[i]->async_fd, F_SETFL, O_NONBLOCK);
	}
	ibv_free_device_list(list);
	if (ibv_query_gid(contexts[0], 1, 0, &gid))
		return 2;
	for (unsigned long i = 0; i < strtoul(argv[2], NULL, 10); i++)
		step();
	clear();
	while (num_imported)
		ibv_unimport_pd(imported[--num_imported]);
	for (size_t i = 0; i < COUNT(contexts); i++) {
		if (ibv_close_device(contexts[i]))
			return 1;
	}
	printf("%lu granted, %lu refused\n", granted, refused);
	return failed > 0;
}
