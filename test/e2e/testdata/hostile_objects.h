/* The objects of hostile.c: how they are made, kept and destroyed. */
#ifndef HOSTILE_OBJECTS_H
#define HOSTILE_OBJECTS_H

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY (1u << 20)
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum kind { PD, TD, PARENT, CHANNEL, CQ, CQ_EX, XRCD, SRQ, QP, MR, MW, DM, AH, FLOW_KINDS };

static struct pool {
	void *item[48];
	size_t count;
} pools[FLOW_KINDS];

static struct ibv_context *contexts[2];
static struct ibv_pd *imported[8]; /* by contexts[1] of contexts[0] */
static size_t num_imported;
static union ibv_gid gid;
static char *memory;
static uint64_t state;
static unsigned long granted, refused, failed;
static int doomed; /* the NIC may be gone */
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
	if (num_imported && !roll(8))
		return imported[roll((uint32_t)num_imported)];
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
	if (known || (doomed && error == EIO))
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
		.comp_mask = (uint32_t)ONE(3, 3, 15, 15, 31, 31, 0, 64),
		.srq_type = (enum ibv_srq_type)ONE(0, 1, 1, 2, 2, 9),
		.pd = domain(), .xrcd = any(XRCD), .cq = queue(),
		.tm_cap = {(uint32_t)ONE(1, 8, 8, 0, ~0u), (uint32_t)ONE(1, 8, 64, 0, ~0u)},
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

#endif
