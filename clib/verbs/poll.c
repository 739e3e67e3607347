/* SPDX-License-Identifier: Apache-2.0 */
/* Polling completion queues, by array and by the extended interface, and arming them. */
#include <time.h>

#include "cause.h"
#include "cq.h"
#include "ctl.h"
#include "ctx.h"
#include "poll_aside.h"
#include "poll_rest.h"
#include "poll_walk.h"
#include "queue.h"

/*
 * Who polls in vain competes with the NIC, and with other programs, for the processor. After some
 * empty polls each further one yields; now and then one looks whether there still is a NIC.
 */
enum { POLL_YIELD_EARLY = 10, POLL_YIELD_AFTER = 100, POLL_CHECK_EVERY = 1000 };

/* Returns 0 for "nothing yet", or the reason why nothing will come. */
static int poll_empty(struct rnic_cq *cq)
{
	struct ctl_conn *conn = &ctx_of(cq->ex.context)->ctl;
	uint32_t polls = ++cq->empty_polls;

	if (ctl_conn_known_dead(conn) ||
	    (polls % POLL_CHECK_EVERY == 0 && ctl_conn_is_dead(conn)))
		return poll_producer(cq) == cq->consumer ? EIO : 0;
	if (atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_STATE), memory_order_relaxed))
		return poll_producer(cq) == cq->consumer ? EOVERFLOW : 0;
	if (poll_aside(cq))
		return 0;
	if (polls >= POLL_YIELD_AFTER)
		poll_rest(cq, polls == POLL_YIELD_AFTER);
	else if (polls >= POLL_YIELD_EARLY && poll_aside_lane(ctx_of(cq->ex.context)) >= 0)
		poll_rest_early(cq);
	return 0;
}

static struct queue_ring *_Atomic *poll_bucket(struct rnic_cq *cq, uint32_t qpn)
{
	return &cq->rings[qpn % CQ_BUCKETS];
}

/*
 * The table is read under the CQ's lock and changed under the context's as well, so that a QP can
 * be made while a thread that promised to be the only one polls.
 */
void cq_join(struct rnic_cq *cq, struct queue_ring *ring)
{
	struct rnic_context *ctx = ctx_of(cq->ex.context);
	struct queue_ring *_Atomic *bucket = poll_bucket(cq, ring->qpn);

	pthread_mutex_lock(&ctx->objects_lock);
	atomic_store_explicit(&ring->next, atomic_load(bucket), memory_order_relaxed);
	atomic_store_explicit(bucket, ring, memory_order_release);
	pthread_mutex_unlock(&ctx->objects_lock);
}

void cq_leave(struct rnic_cq *cq, struct queue_ring *ring)
{
	struct rnic_context *ctx = ctx_of(cq->ex.context);
	struct queue_ring *_Atomic *at = poll_bucket(cq, ring->qpn);

	cq_lock(cq);
	pthread_mutex_lock(&ctx->objects_lock);
	while (atomic_load(at) && atomic_load(at) != ring)
		at = &atomic_load(at)->next;
	if (atomic_load(at))
		atomic_store(at, atomic_load(&ring->next));
	pthread_mutex_unlock(&ctx->objects_lock);
	cq_unlock(cq);
}

/* Returns the ring that a completion comes from; NULL where it is an SRQ's. */
static struct queue_ring *poll_ring(struct rnic_cq *cq, const struct rnic_cqe *cqe)
{
	const bool receives = cqe->opcode & IBV_WC_RECV;
	struct queue_ring *ring =
		atomic_load_explicit(poll_bucket(cq, cqe->qp_num), memory_order_acquire);

	while (ring && (ring->qpn != cqe->qp_num || ring->receives != receives))
		ring = atomic_load_explicit(&ring->next, memory_order_acquire);
	return ring;
}

/* What completions of one ring, polled in a row, give back to it. */
struct poll_credit {
	struct queue_ring *ring;
	uint32_t index;
};

/*
 * Gives slots back. The entries of the CQ come first: whoever posts into these slots completes
 * into those entries. An index that is not between the old one and the producer's is of before a
 * reset, which has given everything back.
 */
static void poll_grant(const struct poll_credit *credit)
{
	struct queue_ring *ring = credit->ring;
	uint32_t polled;

	if (!ring)
		return;
	polled = atomic_load_explicit(&ring->polled, memory_order_relaxed);
	/* Release orders our reads of the CQ, and that it has room, before. */
	if (credit->index - polled <= queue_ring_posted(ring) - polled)
		atomic_store_explicit(&ring->polled, credit->index, memory_order_release);
}

/* Counts a completion; all before the place at have been polled. */
static void poll_credit(struct rnic_cq *cq, struct poll_credit *credit,
			const struct rnic_cqe *cqe, const struct poll_place *at)
{
	const bool receives = cqe->opcode & IBV_WC_RECV;
	struct queue_ring *ring = credit->ring;

	if (!ring || ring->qpn != cqe->qp_num || ring->receives != receives) {
		ring = poll_ring(cq, cqe);
		if (!ring)
			return;
		if (credit->ring) {
			poll_release(cq, at);
			poll_grant(credit);
		}
		credit->ring = ring;
		credit->index = atomic_load_explicit(&ring->polled, memory_order_relaxed);
	}
	/* Every receive of a QP's own queue completes with an entry; of sends not all do. */
	credit->index = receives ? credit->index + 1 : poll_sends_done(ring, cqe);
}

static void poll_fill(struct ibv_wc *wc, const struct rnic_cqe *cqe)
{
	wc->wr_id = cqe->wr_id;
	wc->status = (enum ibv_wc_status)cqe->status;
	wc->opcode = (enum ibv_wc_opcode)cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->invalidated_rkey = cqe->imm_or_rkey; /* shares its bytes with imm_data */
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	wc->wc_flags = cqe->wc_flags;
	wc->pkey_index = cqe->pkey_index;
	wc->slid = cqe->slid;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = cqe->dlid_path_bits;
}

int cq_poll(struct ibv_cq *ibcq, int max, struct ibv_wc *wc)
{
	struct rnic_cq *cq = cq_of(ibcq);
	struct poll_credit credit = {NULL, 0};
	struct poll_walk walk;
	int found = 0, error = 0;

	cq_lock(cq);
	walk = poll_walk_begin(cq);
	while (found < max) {
		const struct poll_place at = walk.at;
		const struct rnic_cqe *cqe = poll_walk_next(cq, &walk);

		if (!cqe)
			break;
		poll_fill(&wc[found++], cqe);
		poll_credit(cq, &credit, cqe, &at);
		if (cqe->status)
			cause_of_completion(cqe, credit.ring);
	}
	poll_release(cq, &walk.at);
	poll_grant(&credit);
	if (found)
		cq->empty_polls = 0;
	else if (max > 0)
		error = poll_empty(cq);
	cq_unlock(cq);
	if (error) {
		errno = error;
		return -1;
	}
	return found;
}

void cq_cancel(struct rnic_cq *cq, uint32_t qpn)
{
	uint32_t producer;

	cq_lock(cq);
	producer = poll_producer(cq);
	for (uint32_t at = cq->consumer; at != producer; at++) {
		struct rnic_cqe *cqe = poll_slot(cq, at);

		if (cqe->qp_num == qpn)
			cqe->opcode = RNIC_CQE_SKIP;
	}
	pthread_mutex_lock(&cq->direct.lock);
	for (uint32_t at = atomic_load(direct_list_head(cq));
	     at != atomic_load(direct_list_tail(cq)); at++) {
		struct rnic_cqe *cqe = direct_list_entry(cq, at);

		if (cqe->qp_num == qpn)
			cqe->opcode = RNIC_CQE_SKIP;
	}
	pthread_mutex_unlock(&cq->direct.lock);
	for (struct queue_ring *ring = atomic_load(poll_bucket(cq, qpn)); ring;
	     ring = atomic_load(&ring->next)) {
		if (ring->qpn == qpn)
			atomic_store(&ring->polled, queue_ring_posted(ring));
	}
	cq_unlock(cq);
}

int cq_arm(struct ibv_cq *ibcq, int solicited_only)
{
	struct rnic_cq *cq = cq_of(ibcq);
	_Atomic uint32_t *arm = queue_word(cq->map, RNIC_OFF_CQ_ARM);
	uint32_t none = RNIC_ARM_NONE;

	/*
	 * Sequentially consistent, as is what the NIC does after it has stored its producer index:
	 * either the NIC sees the arm, or the application's poll after this sees the entry. An arm
	 * for any completion is not weakened to one for solicited ones.
	 */
	/* What is done without the NIC sends no event: it is added before this, or goes to the NIC. */
	pthread_mutex_lock(&cq->direct.lock);
	if (solicited_only)
		atomic_compare_exchange_strong(arm, &none, RNIC_ARM_SOLICITED);
	else
		atomic_store(arm, RNIC_ARM_NEXT);
	pthread_mutex_unlock(&cq->direct.lock);
	return 0;
}

/* Gives back what the entry in hand holds, once its place in the CQ is free. */
static void poll_ex_grant(struct rnic_cq *cq)
{
	struct poll_credit credit = {NULL, 0};

	if (!cq->holding)
		return;
	poll_credit(cq, &credit, &cq->current, NULL);
	poll_grant(&credit);
}

/* Moves to the next entry that counts and copies it. Returns 0, or ENOENT at the end. */
static int poll_ex_take(struct rnic_cq *cq)
{
	struct poll_walk walk = poll_walk_begin(cq);
	struct poll_place before;
	const struct rnic_cqe *cqe;

	if (cq->holding)
		walk.at = cq->held;
	before = walk.at;
	cqe = poll_walk_next(cq, &walk);
	/* After the last entry the application may still read it: end_poll gives it back. */
	if (!cqe && cq->holding)
		return ENOENT;
	poll_release(cq, cqe ? &before : &walk.at);
	poll_ex_grant(cq);
	cq->holding = cqe != NULL;
	if (!cqe)
		return ENOENT;
	cq->held = walk.at;
	cq->current = *cqe;
	cq->ex.wr_id = cq->current.wr_id;
	cq->ex.status = (enum ibv_wc_status)cq->current.status;
	if (cq->current.status)
		cause_of_completion(&cq->current, poll_ring(cq, &cq->current));
	return 0;
}

static int poll_ex_start(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct rnic_cq *cq = cq_of_ex(ex);
	int error;

	if (attr && attr->comp_mask)
		return EINVAL;
	cq_lock(cq);
	error = poll_ex_take(cq);
	if (!error) {
		cq->empty_polls = 0;
		cq->wall_sampled = false;
		return 0; /* locked until end_poll */
	}
	error = poll_empty(cq);
	cq_unlock(cq);
	return error ? error : ENOENT;
}

static int poll_ex_next(struct ibv_cq_ex *ex)
{
	struct rnic_cq *cq = cq_of_ex(ex);

	return cq->holding ? poll_ex_take(cq) : ENOENT;
}

static void poll_ex_end(struct ibv_cq_ex *ex)
{
	struct rnic_cq *cq = cq_of_ex(ex);

	if (cq->holding)
		poll_release(cq, &cq->held);
	poll_ex_grant(cq);
	cq->holding = false;
	cq_unlock(cq);
}

static enum ibv_wc_opcode poll_ex_opcode(struct ibv_cq_ex *ex)
{
	return (enum ibv_wc_opcode)cq_of_ex(ex)->current.opcode;
}

static uint32_t poll_ex_vendor_err(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.vendor_err;
}

static uint32_t poll_ex_byte_len(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.byte_len;
}

static __be32 poll_ex_imm_data(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.imm_or_rkey;
}

static uint32_t poll_ex_qp_num(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.qp_num;
}

static uint32_t poll_ex_src_qp(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.src_qp;
}

static unsigned int poll_ex_wc_flags(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.wc_flags;
}

static uint32_t poll_ex_slid(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.slid;
}

static uint8_t poll_ex_sl(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.sl;
}

static uint8_t poll_ex_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.dlid_path_bits;
}

static uint64_t poll_ex_completion_ts(struct ibv_cq_ex *ex)
{
	return cq_of_ex(ex)->current.timestamp;
}

/* A match has tag and context where other completions have what it does not. */
static void poll_ex_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	const struct rnic_cqe *cqe = &cq_of_ex(ex)->current;
	const bool matched =
		cqe->opcode == IBV_WC_TM_RECV && (cqe->wc_flags & IBV_WC_TM_MATCH);

	info->tag = matched ? cqe->sq_index | (uint64_t)cqe->reserved2 << 32 : 0;
	info->priv = matched ? cqe->src_qp : 0;
}

/* Tells how far the wall clock is ahead of the NIC's, and how wrong that may be: at least 1. */
static uint64_t poll_compare(const struct rnic_context *ctx, uint64_t *error)
{
	const uint64_t before = ctx_clock(ctx);
	struct timespec wall;

	clock_gettime(CLOCK_REALTIME, &wall);
	*error = ctx_clock(ctx) - before + 1;
	return (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - before - *error / 2;
}

/*
 * Compares the two clocks. They run at one speed, so what was found first is kept, and times go on
 * as steadily as timestamps do, until the difference is more than the reading of two clocks one
 * after the other explains: then the wall clock was set.
 */
static void poll_sample(struct rnic_cq *cq)
{
	const struct rnic_context *ctx = ctx_of(cq->ex.context);
	uint64_t error, ahead = poll_compare(ctx, &error), apart = ahead - cq->wall_ahead;

	/* What is kept had better not be found by a thread that was interrupted meanwhile. */
	for (int i = 0; cq->wall_error == 0 && i < 8; i++) {
		uint64_t better, next = poll_compare(ctx, &better);

		ahead = better < error ? next : ahead;
		error = better < error ? better : error;
	}
	if ((int64_t)apart < 0)
		apart = -apart;
	if (cq->wall_error == 0 || apart > cq->wall_error + error) {
		cq->wall_ahead = ahead;
		cq->wall_error = error;
	}
	cq->wall_sampled = true;
}

/* The wall clock may be set; what it says now of the moment then is as good as can be told. */
static uint64_t poll_ex_wallclock(struct ibv_cq_ex *ex)
{
	struct rnic_cq *cq = cq_of_ex(ex);

	if (!cq->wall_sampled)
		poll_sample(cq);
	return cq->current.timestamp + cq->wall_ahead;
}

void cq_poll_init(struct rnic_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = poll_ex_start;
	ex->next_poll = poll_ex_next;
	ex->end_poll = poll_ex_end;
	ex->read_opcode = poll_ex_opcode;
	ex->read_vendor_err = poll_ex_vendor_err;
	ex->read_byte_len = poll_ex_byte_len;
	ex->read_imm_data = poll_ex_imm_data;
	ex->read_qp_num = poll_ex_qp_num;
	ex->read_src_qp = poll_ex_src_qp;
	ex->read_wc_flags = poll_ex_wc_flags;
	ex->read_slid = poll_ex_slid;
	ex->read_sl = poll_ex_sl;
	ex->read_dlid_path_bits = poll_ex_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_TM_INFO)
		ex->read_tm_info = poll_ex_tm_info;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ex->read_completion_ts = poll_ex_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		ex->read_completion_wallclock_ns = poll_ex_wallclock;
}
