/*
 * Two processes with one connection between them, for direct.c: the second is a child of the first,
 * and what they have to tell each other stands on a board that they share.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND };

struct place {
	uint64_t addr;
	uint32_t rkey;
};

struct board {
	struct {
		atomic_uint round; /* of connecting */
		uint32_t qpn;
		union ibv_gid gid;
	} ends[2];
	uint16_t port; /* where the target listens, of devices that connect by rdma_cm */
	struct place place; /* of the target's memory */
	atomic_uint step;   /* what the two wait for, as a case has it */
	atomic_ulong count;
};

struct side {
	int which; /* 0 initiates */
	struct board *board;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq, *receives;
	struct ibv_qp *qp;
	uint32_t round;
	unsigned char *buffer; /* of LENGTH bytes, registered */
	struct ibv_mr *mr;
	struct rdma_cm_id *listener, *id; /* of devices that connect by rdma_cm */
};

enum { LENGTH = 1 << 20 };

#define require(good, ...) \
	do { \
		if (!(good)) { \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #good); \
			fprintf(stderr, __VA_ARGS__); \
			fprintf(stderr, "\n"); \
			exit(1); \
		} \
	} while (0)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Waits until a word that only grows has reached a value. */
static void await(atomic_uint *word, unsigned int value)
{
	const double end = now() + 30;

	while (atomic_load(word) < value) {
		require(now() < end, "waited for %u in vain, there is %u", value, atomic_load(word));
		sched_yield();
	}
}

static void *allocate(void)
{
	void *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	require(memory != MAP_FAILED, "mmap");
	memset(memory, 0, LENGTH);
	return memory;
}

static struct ibv_mr *expose(struct side *me, void *memory, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(me->pd, memory, length, ACCESS);

	require(mr, "ibv_reg_mr");
	return mr;
}

static void make(struct side *me, uint32_t depth, uint32_t cqe)
{
	struct ibv_qp_init_attr init = {
		.cap = {.max_send_wr = depth, .max_recv_wr = 512, .max_send_sge = 4,
			.max_recv_sge = 1, .max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_device **list = ibv_get_device_list(NULL);

	require(list && list[0], "no device");
	me->context = ibv_open_device(list[0]);
	require(me->context, "ibv_open_device");
	me->pd = ibv_alloc_pd(me->context);
	me->cq = ibv_create_cq(me->context, (int)cqe, NULL, NULL, 0);
	me->receives = ibv_create_cq(me->context, 1024, NULL, NULL, 0);
	require(me->pd && me->cq && me->receives, "objects");
	init.send_cq = me->cq;
	init.recv_cq = me->receives;
	me->qp = ibv_create_qp(me->pd, &init);
	require(me->qp, "ibv_create_qp");
	me->buffer = allocate();
	me->mr = expose(me, me->buffer, LENGTH);
	if (me->which == 1)
		me->board->place = (struct place){(uintptr_t)me->buffer, me->mr->rkey};
}

static void modify(struct side *me, struct ibv_qp_attr attr, int mask)
{
	require(!ibv_modify_qp(me->qp, &attr, mask | IBV_QP_STATE), "to state %d", attr.qp_state);
}

static bool is_iwarp(const struct side *me)
{
	return me->context->device->transport_type == IBV_TRANSPORT_IWARP;
}

#include "direct_cm.h"

/* Connects the two, anew if need be. Both have to call it. */
static void join(struct side *me)
{
	struct board *board = me->board;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = ACCESS & ~IBV_ACCESS_MW_BIND,
		.path_mtu = IBV_MTU_4096, .max_dest_rd_atomic = 16, .max_rd_atomic = 16,
		.min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
	};

	modify(me, (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, 0);
	board->ends[me->which].qpn = me->qp->qp_num;
	require(!ibv_query_gid(me->context, 1, 0, &board->ends[me->which].gid), "gid");
	modify(me, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	me->round++;
	if (is_iwarp(me) && me->which == 1)
		listen_for_peer(me);
	atomic_store(&board->ends[me->which].round, 2 * me->round - 1);
	await(&board->ends[!me->which].round, 2 * me->round - 1);
	if (is_iwarp(me)) {
		connect_by_cm(me);
		return;
	}
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = board->ends[!me->which].qpn;
	attr.ah_attr.grh.dgid = board->ends[!me->which].gid;
	modify(me, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	modify(me, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				 IBV_QP_MAX_QP_RD_ATOMIC);
	atomic_store(&board->ends[me->which].round, 2 * me->round);
	await(&board->ends[!me->which].round, 2 * me->round);
}

/* What to post: by default a signaled WRITE of length bytes to offset. */
struct request {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	uint64_t offset;
	uint64_t from; /* in this side's memory; 0 for the same offset */
	uint32_t length;
	bool quiet;
	uint32_t imm;
	uint64_t add, swap;
};

static int post(struct side *me, struct request r)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)me->buffer + (r.from ? r.from : r.offset),
		.length = r.length,
		.lkey = me->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = r.id, .sg_list = &sge, .num_sge = 1, .opcode = r.opcode,
		.send_flags = r.quiet ? 0 : IBV_SEND_SIGNALED, .imm_data = r.imm,
	}, *bad;
	const uint64_t remote = me->board->place.addr + r.offset;

	if (r.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || r.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = me->board->place.rkey;
		wr.wr.atomic.compare_add = r.add;
		wr.wr.atomic.swap = r.swap;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = me->board->place.rkey;
	}
	return ibv_post_send(me->qp, &wr, &bad);
}

/* Waits for the next completion. */
static struct ibv_wc next(struct ibv_cq *cq)
{
	const double end = now() + 30;
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		require(now() < end, "no completion");
	require(got == 1, "ibv_poll_cq");
	return wc;
}

static enum ibv_wc_status complete(struct side *me, struct request r)
{
	require(!post(me, r), "ibv_post_send");
	return next(me->cq).status;
}

/* Uses the key until the library knows it well enough to go direct. */
static void warm(struct side *me)
{
	for (int i = 0; i < 16; i++)
		require(complete(me, (struct request){.offset = LENGTH - 8, .length = 8}) ==
			IBV_WC_SUCCESS, "warming up");
}
