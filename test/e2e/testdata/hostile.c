/*
 * Calls verbs in any order with arguments that are right, nearly right or wrong: objects of other
 * contexts and domains, ranges that are not there, flags and states that do not exist. It wants
 * each to succeed or to fail with an errno that the manual pages and the Linux kernel know for it,
 * and at the end destroys everything, in any order that works. Pointers are always good: what
 * happens with others is nobody's promise.
 *
 *   hostile SEED STEPS
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY (1u << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum kind { PD, TD, PARENT, CHANNEL, CQ, CQ_EX, XRCD, SRQ, QP, MR, MW, DM, AH, FLOW_KINDS };

static struct pool {
	void *item[48];
	size_t count;
} pools[FLOW_KINDS];

static struct ibv_context *contexts[2];
static union ibv_gid gid;
static char *memory;
static uint64_t state;
static unsigned long granted, refused, failed;
static const char *verb;

static uint32_t roll(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % n;
}

#define ONE(...) one(COUNT(((const uint64_t[]){__VA_ARGS__})), (const uint64_t[]){__VA_ARGS__})

static uint64_t one(size_t n, const uint64_t *values)
{
	return values[roll((uint32_t)n)];
}

static struct ibv_context *context(void)
{
	return contexts[roll(8) == 0];
}

static void *any(enum kind kind)
{
	struct pool *p = &pools[kind];

	return p->count ? p->item[roll((uint32_t)p->count)] : NULL;
}

/* domain is a protection domain of any kind. */
static struct ibv_pd *domain(void)
{
	return roll(4) && pools[PD].count ? any(PD) : any(PARENT);
}

static struct ibv_cq *queue(void)
{
	struct ibv_cq_ex *ex = any(CQ_EX);

	return roll(2) && ex ? ibv_cq_ex_to_cq(ex) : any(CQ);
}

static int full(enum kind kind)
{
	return pools[kind].count == COUNT(pools[kind].item);
}

/* refuse notes an errno, which must be one of those given, up to 0. */
static void refuse(int error, ...)
{
	va_list list;
	int known;

	refused++;
	va_start(list, error);
	do {
		known = va_arg(list, int);
	} while (known && known != error);
	va_end(list);
	if (known)
		return;
	failed++;
	fprintf(stderr, "%s: errno %d (%s)\n", verb, error, strerror(error));
}

static void keep(enum kind kind, void *object)
{
	if (!object) {
		refuse(errno, EINVAL, ENOMEM, EOPNOTSUPP, EFAULT, EAGAIN, EBADF, EPERM, 0);
		return;
	}
	granted++;
	pools[kind].item[pools[kind].count++] = object;
}

static void told(int error)
{
	if (!error)
		granted++;
	else
		refuse(error < 0 ? errno : error, EINVAL, EOPNOTSUPP, ENOMEM, EPERM, EBUSY, EFAULT, ENOENT,
		       0);
}

static uint64_t address(void)
{
	const uint64_t base = (uintptr_t)memory;

	return ONE(base, base, base, base + 4096, base + 64 * roll(1000), base + MEMORY - 8, base - 8, 0,
		   1ull << 63, ~0ull, ~0ull - 4095);
}

static uint32_t key(void)
{
	struct ibv_mr *mr = any(MR);
	struct ibv_mw *mw = any(MW);

	if (mw && !roll(3))
		return mw->rkey;
	return mr && roll(8) ? (roll(2) ? mr->lkey : mr->rkey) : roll(1000);
}

static void make_pd(void)
{
	keep(PD, ibv_alloc_pd(context()));
}

static void make_td(void)
{
	struct ibv_td_init_attr attr = {.comp_mask = (uint32_t)ONE(0, 0, 1)};

	keep(TD, ibv_alloc_td(context(), &attr));
}

static void make_parent(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = any(PD), .td = roll(2) ? any(TD) : NULL, .comp_mask = (uint32_t)ONE(0, 0, 0, 64),
	};

	if (attr.pd)
		keep(PARENT, ibv_alloc_parent_domain(context(), &attr));
}

static void make_channel(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context());

	if (channel)
		fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	keep(CHANNEL, channel);
}

static void make_cq(void)
{
	keep(CQ, ibv_create_cq(context(), (int)ONE(1, 16, 300, 0, -1, 1 << 20, 1 << 30), NULL,
			       roll(2) ? any(CHANNEL) : NULL, (int)ONE(0, 0, 0, 0, 1, -1)));
}

static void make_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)ONE(1, 16, 300, 0, ~0u),
		.channel = roll(2) ? any(CHANNEL) : NULL,
		.comp_vector = (uint32_t)ONE(0, 0, 0, 5),
		.wc_flags = ONE(0, IBV_WC_STANDARD_FLAGS, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 1ull << 40),
		.comp_mask = (uint32_t)ONE(0, 0, 1, 2, 3, 128),
		.flags = (uint32_t)ONE(0, 1, 2, 3, 64),
		.parent_domain = domain(),
	};

	if (attr.parent_domain)
		keep(CQ_EX, ibv_create_cq_ex(context(), &attr));
}

static void make_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = (uint32_t)ONE(3, 3, 3, 3, 1, 0, 7),
		.fd = (int)ONE(-1, -1, -1, 0, 9999),
		.oflags = (int)ONE(O_CREAT, O_CREAT, O_CREAT | O_EXCL, 0, O_APPEND),
	};

	keep(XRCD, ibv_open_xrcd(context(), &attr));
}

static void make_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = {
			.max_wr = (uint32_t)ONE(1, 16, 16, 0, 1 << 20),
			.max_sge = (uint32_t)ONE(1, 2, 0, 100),
			.srq_limit = (uint32_t)ONE(0, 0, 4, 1000),
		},
		.comp_mask = (uint32_t)ONE(3, 3, 15, 15, 0, 64),
		.srq_type = (enum ibv_srq_type)ONE(0, 1, 1, 2, 9),
		.pd = domain(), .xrcd = any(XRCD), .cq = queue(),
	};
	struct ibv_srq_init_attr plain = {.attr = attr.attr};

	if (!attr.pd)
		return;
	if (roll(2))
		keep(SRQ, ibv_create_srq(attr.pd, &plain));
	else
		keep(SRQ, ibv_create_srq_ex(context(), &attr));
}

static void make_qp(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = queue(), .recv_cq = queue(), .srq = roll(3) ? NULL : any(SRQ),
		.cap = {
			.max_send_wr = (uint32_t)ONE(1, 8, 8, 0, 1 << 20),
			.max_recv_wr = (uint32_t)ONE(1, 8, 8, 0, ~0u),
			.max_send_sge = (uint32_t)ONE(1, 1, 4, 0, 99),
			.max_recv_sge = (uint32_t)ONE(1, 1, 4, 0, 99),
			.max_inline_data = (uint32_t)ONE(0, 0, 64, 1 << 16),
		},
		.qp_type = (enum ibv_qp_type)ONE(2, 2, 2, 3, 4, 4, 8, 9, 10, 255),
		.sq_sig_all = (int)roll(2),
		.comp_mask = (uint32_t)ONE(1, 1, 3, 3, 65, 0, 1u << 20),
		.pd = domain(), .xrcd = any(XRCD),
		.send_ops_flags = ONE(0, 0x3ff, 0xff, 1ull << 50),
	};
	struct ibv_qp_open_attr open = {
		.comp_mask = (uint32_t)ONE(7, 7, 7, 3, 0, 64), .xrcd = any(XRCD),
		.qp_type = (enum ibv_qp_type)ONE(10, 10, 2), .qp_num = roll(1 << 24),
	};
	struct ibv_qp *qp = any(QP);

	if (qp && open.xrcd && !roll(6)) {
		open.qp_num = roll(4) ? qp->qp_num : open.qp_num;
		keep(QP, ibv_open_qp(context(), &open));
	} else if (attr.pd && roll(2)) {
		keep(QP, ibv_create_qp(attr.pd, (struct ibv_qp_init_attr *)&attr));
	} else if (attr.pd && attr.xrcd) {
		keep(QP, ibv_create_qp_ex(context(), &attr));
	}
}

static void make_mr(void)
{
	const int access = (int)ONE(0, 1, 7, 15, 31, 31, 64 | 31, 32, 2, 1 << 20, 1 << 10, 1 << 30);
	struct ibv_pd *pd = domain();
	struct ibv_dm *dm = any(DM);
	uint64_t addr = address();
	size_t length = ONE(4096, 4096, MEMORY / 2, 0, 1, 100, ~0ull, 1ull << 50);

	if (!pd)
		return;
	switch (roll(6)) {
	case 0:
		keep(MR, ibv_reg_mr_iova(pd, (void *)addr, length, address(), access));
		break;
	case 1:
		keep(MR, ibv_reg_mr(pd, NULL, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND));
		break;
	case 2:
		if (dm)
			keep(MR, ibv_reg_dm_mr(pd, dm, ONE(0, 0, 64, 1 << 20), ONE(64, 4096, 0, ~0ull),
					       (unsigned int)(access | (int)ONE(32, 32, 0))));
		else
			keep(MR, ibv_alloc_null_mr(pd));
		break;
	default:
		keep(MR, ibv_reg_mr(pd, (void *)addr, length, access));
	}
}

static void make_mw(void)
{
	struct ibv_pd *pd = domain();

	if (pd)
		keep(MW, ibv_alloc_mw(pd, (enum ibv_mw_type)ONE(1, 2, 2, 0, 7)));
}

static void make_dm(void)
{
	struct ibv_alloc_dm_attr attr = {
		.length = ONE(64, 4096, 5000, 0, ~0ull), .log_align_req = (uint32_t)ONE(0, 3, 12, 40),
		.comp_mask = (uint32_t)ONE(0, 0, 0, 1),
	};

	keep(DM, ibv_alloc_dm(context(), &attr));
}

static struct ibv_ah_attr route(void)
{
	struct ibv_ah_attr attr = {
		.is_global = (uint8_t)ONE(1, 1, 1, 1, 0), .port_num = (uint8_t)ONE(1, 1, 1, 1, 0, 2),
		.sl = (uint8_t)ONE(0, 0, 15, 16),
		.grh = {.dgid = gid, .hop_limit = 64, .sgid_index = (uint8_t)ONE(0, 0, 0, 0, 255)},
	};

	if (!roll(8))
		memset(&attr.grh.dgid, (int)roll(256), sizeof(attr.grh.dgid));
	return attr;
}

static void make_ah(void)
{
	struct ibv_ah_attr attr = route();
	struct ibv_pd *pd = domain();

	if (pd)
		keep(AH, ibv_create_ah(pd, &attr));
}

static int destroy(enum kind kind, void *object)
{
	switch (kind) {
	case PD:
	case PARENT:
		return ibv_dealloc_pd(object);
	case TD:
		return ibv_dealloc_td(object);
	case CHANNEL:
		return ibv_destroy_comp_channel(object);
	case CQ:
		return ibv_destroy_cq(object);
	case CQ_EX:
		return ibv_destroy_cq(ibv_cq_ex_to_cq(object));
	case XRCD:
		return ibv_close_xrcd(object);
	case SRQ:
		return ibv_destroy_srq(object);
	case QP:
		return ibv_destroy_qp(object);
	case MR:
		return ibv_dereg_mr(object);
	case MW:
		return ibv_dealloc_mw(object);
	case DM:
		return ibv_free_dm(object);
	case AH:
		return ibv_destroy_ah(object);
	default:
		return ENOSYS;
	}
}

static void end(enum kind kind, size_t i)
{
	struct pool *p = &pools[kind];
	int error = destroy(kind, p->item[i]);

	verb = "destroy";
	if (error) {
		refuse(error, EBUSY, 0);
		return;
	}
	granted++;
	p->item[i] = p->item[--p->count];
}

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

static void multicast(void)
{
	const union ibv_gid group = {.raw = {(uint8_t)ONE(0xff, 0xff, 0xfe), 0x0e, [15] = 1}};
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

	if (argc != 3 || !list || !list[0])
		return 2;
	state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < COUNT(contexts); i++) {
		contexts[i] = ibv_open_device(list[0]);
		if (!contexts[i])
			return 2;
		fcntl(contexts[i]->async_fd, F_SETFL, O_NONBLOCK);
	}
	if (ibv_query_gid(contexts[0], 1, 0, &gid))
		return 2;
	for (unsigned long i = 0; i < strtoul(argv[2], NULL, 10); i++)
		step();
	clear();
	for (size_t i = 0; i < COUNT(contexts); i++) {
		if (ibv_close_device(contexts[i]))
			return 1;
	}
	printf("%lu granted, %lu refused\n", granted, refused);
	return failed > 0;
}
