/* SPDX-License-Identifier: Apache-2.0 */
/* Doing one-sided operations without the NIC; see direct.h. */
#include "direct.h"

#include <stdlib.h>

#include "ctl.h"
#include "ctx.h"
#include "direct_map.h"
#include "post.h"
#include "queue.h"

enum {
	/* Work requests that are done, or not, together. */
	DIRECT_BATCH = 64,
	/*
	 * The most bytes of one, and of a batch. What is longer is no slower through the NIC, which
	 * copies while the program does something else.
	 */
	DIRECT_BYTES = 16384,
	DIRECT_BATCH_BYTES = 262144,
	/* How often we look whether there still is a NIC: some 5 ns for each operation. */
	DIRECT_CHECK_EVERY = 64,
	/* IBV_WC_ATOMIC_WRITE, which older headers lack. */
	DIRECT_WC_ATOMIC_WRITE = 9,
};

/* A work request that has been judged good. */
struct direct_step {
	const struct rnic_send_wqe *wqe;
	const struct direct_map *map;
	unsigned char *remote;
	uint32_t rights; /* that it needs */
	uint32_t length;
	bool signaled;
};

/* Work requests on their way. */
struct direct_batch {
	struct direct_step steps[DIRECT_BATCH];
	uint32_t count;
	uint32_t signaled;
	uint32_t rights;
	uint32_t bytes;
	uint32_t link; /* the connection */
};

/* Returns the rights that an operation needs; 0 for one that is not done here. */
static uint32_t direct_rights(unsigned int opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
		return RNIC_GRANT_WRITE;
	case POST_WR_ATOMIC_WRITE:
		return RNIC_GRANT_ATOMIC_WRITE;
	case IBV_WR_RDMA_READ:
		return RNIC_GRANT_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return RNIC_GRANT_ATOMIC;
	default:
		return 0;
	}
}

static bool direct_is_atomic(unsigned int opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       opcode == POST_WR_ATOMIC_WRITE;
}

/* Reports whether an entry names memory that the process has registered and may use like that. */
static bool direct_local_is_good(const struct rnic_qp *qp, const struct rnic_sge *sge, bool writes)
{
	struct direct_context *direct = &ctx_of(qp->base.context)->direct;

	for (uint32_t which = 0; which < 2; which++) {
		const struct direct_local *at = direct_local_place(direct, sge->lkey, which);
		const unsigned int version =
			atomic_load_explicit(&at->version, memory_order_acquire);
		uint64_t offset, length;
		uint32_t access, pd;

		if (atomic_load_explicit(&at->lkey, memory_order_relaxed) != sge->lkey)
			continue;
		offset = sge->addr - atomic_load_explicit(&at->addr, memory_order_relaxed);
		length = atomic_load_explicit(&at->length, memory_order_relaxed);
		access = atomic_load_explicit(&at->access, memory_order_relaxed);
		pd = atomic_load_explicit(&at->pd, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if ((version & 1) ||
		    atomic_load_explicit(&at->version, memory_order_relaxed) != version)
			return false;
		return pd == qp->base.pd->handle && offset <= length &&
		       sge->length <= length - offset &&
		       (!writes || (access & IBV_ACCESS_LOCAL_WRITE));
	}
	return false;
}

/* Adds up the local side and judges it. Returns false for what the NIC should see. */
static bool direct_measure(const struct rnic_qp *qp, const struct rnic_send_wqe *wqe,
			   uint32_t *length)
{
	const struct rnic_sge *sges = post_wqe_sges((struct rnic_send_wqe *)wqe);
	const bool writes = !post_opcode_sends_data(wqe->opcode);
	uint64_t total = 0;

	if (wqe->flags & IBV_SEND_INLINE) {
		*length = wqe->inline_len;
		return *length > 0;
	}
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		if (sges[i].length && !direct_local_is_good(qp, &sges[i], writes))
			return false;
		total += sges[i].length;
	}
	*length = (uint32_t)total;
	return total > 0 && total <= DIRECT_BYTES;
}

/* Judges one work request as far as that can be done before we are busy. */
static bool direct_judge(struct rnic_qp *qp, struct direct_step *step, uint32_t link)
{
	const struct rnic_send_wqe *wqe = step->wqe;
	uint64_t offset;

	step->rights = direct_rights(wqe->opcode);
	if (!step->rights || !direct_measure(qp, wqe, &step->length))
		return false;
	if (direct_is_atomic(wqe->opcode) &&
	    (step->length != sizeof(uint64_t) || wqe->remote_addr % sizeof(uint64_t) ||
	     (wqe->num_sge != 1 && !(wqe->flags & IBV_SEND_INLINE))))
		return false;
	step->map = direct_map_find(qp, wqe, step->length, link);
	if (!step->map)
		return false;
	offset = wqe->remote_addr - step->map->addr;
	if (offset > step->map->length || step->length > step->map->length - offset)
		return false;
	step->remote = step->map->bytes + offset;
	/* A word that is aligned by its IOVA alone is whole only for who does one after the other. */
	if (direct_is_atomic(wqe->opcode) && (uintptr_t)step->remote % sizeof(uint64_t))
		return false;
	step->signaled = qp->init.sq_sig_all || (wqe->flags & IBV_SEND_SIGNALED);
	return (step->map->rights & step->rights) != 0;
}

static bool direct_judge_all(struct rnic_qp *qp, struct direct_batch *batch, uint32_t first)
{
	batch->signaled = batch->rights = batch->bytes = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct direct_step *step = &batch->steps[i];

		step->wqe = (void *)queue_ring_slot(&qp->sq, first + i);
		if (!direct_judge(qp, step, batch->link))
			return false;
		batch->rights |= step->rights;
		batch->signaled += step->signaled;
		batch->bytes += step->length;
	}
	return batch->bytes <= DIRECT_BATCH_BYTES;
}

/*
 * Writes bytes so that the last of them show last, as many as fit into one store: who waits for a
 * message looks there.
 */
static void direct_write(unsigned char *to, const unsigned char *from, size_t length)
{
	const uintptr_t end = (uintptr_t)to + length;
	size_t last = sizeof(uint64_t);

	while (last > length || end % last)
		last /= 2;
	memcpy(to, from, length - last);
	to += length - last;
	from += length - last;
	switch (last) {
	case 8: {
		uint64_t value;

		memcpy(&value, from, sizeof(value));
		__atomic_store_n((uint64_t *)(void *)to, value, __ATOMIC_RELEASE);
		break;
	}
	case 4: {
		uint32_t value;

		memcpy(&value, from, sizeof(value));
		__atomic_store_n((uint32_t *)(void *)to, value, __ATOMIC_RELEASE);
		break;
	}
	case 2: {
		uint16_t value;

		memcpy(&value, from, sizeof(value));
		__atomic_store_n((uint16_t *)(void *)to, value, __ATOMIC_RELEASE);
		break;
	}
	default:
		__atomic_store_n(to, *from, __ATOMIC_RELEASE);
		break;
	}
}

static void direct_do_write(const struct direct_step *step)
{
	const struct rnic_send_wqe *wqe = step->wqe;
	const struct rnic_sge *sges = post_wqe_sges((struct rnic_send_wqe *)wqe);
	unsigned char *to = step->remote;

	if (wqe->flags & IBV_SEND_INLINE) {
		direct_write(to, (const unsigned char *)wqe + RNIC_SEND_WQE_BYTES, step->length);
		return;
	}
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		if (!sges[i].length)
			continue;
		direct_write(to, (const unsigned char *)(uintptr_t)sges[i].addr, sges[i].length);
		to += sges[i].length;
	}
}

static void direct_do_read(const struct direct_step *step)
{
	const struct rnic_sge *sges = post_wqe_sges((struct rnic_send_wqe *)step->wqe);
	const unsigned char *from = step->remote;

	for (uint32_t i = 0; i < step->wqe->num_sge; i++) {
		memcpy((void *)(uintptr_t)sges[i].addr, from, sges[i].length);
		from += sges[i].length;
	}
}

/* Atomic towards all who use the processor's atomics there: programs, their libraries, the NIC. */
static void direct_do_atomic(const struct direct_step *step)
{
	const struct rnic_send_wqe *wqe = step->wqe;
	const struct rnic_sge *sge = post_wqe_sges((struct rnic_send_wqe *)wqe);
	uint64_t *word = (uint64_t *)(void *)step->remote, old = wqe->compare_add;

	if (wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		old = __atomic_fetch_add(word, wqe->compare_add, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(word, &old, wqe->swap, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	memcpy((void *)(uintptr_t)sge->addr, &old, sizeof(old));
}

static enum ibv_wc_opcode direct_do(const struct direct_step *step)
{
	switch (step->wqe->opcode) {
	case IBV_WR_RDMA_READ:
		direct_do_read(step);
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		direct_do_atomic(step);
		return IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		direct_do_atomic(step);
		return IBV_WC_COMP_SWAP;
	case POST_WR_ATOMIC_WRITE:
		direct_do_write(step);
		return (enum ibv_wc_opcode)DIRECT_WC_ATOMIC_WRITE;
	default:
		direct_do_write(step);
		return IBV_WC_RDMA_WRITE;
	}
}

/* Makes the list at its first use. */
static bool direct_list_make(struct rnic_cq *cq)
{
	struct direct_list *list = &cq->direct;

	if (list->entries)
		return true;
	list->mask = cq->mask;
	list->entries = malloc(((size_t)cq->mask + 1) * sizeof(*list->entries));
	return list->entries != NULL;
}

/*
 * Reports whether completions may go into the list: there is room in a CQ of this size, and nobody
 * has asked for an event, which only the NIC sends. The caller has the list's lock, and so has who
 * asks for events.
 */
static bool direct_list_is_open(struct rnic_cq *cq, uint32_t count)
{
	struct direct_list *list = &cq->direct;
	uint32_t waiting;

	if (atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_ARM), memory_order_relaxed) !=
	    RNIC_ARM_NONE)
		return false;
	if (atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_STATE), memory_order_relaxed))
		return false;
	waiting = atomic_load_explicit(direct_list_tail(cq), memory_order_relaxed) -
		  /* Acquire orders what we write after the poller's reads. */
		  atomic_load_explicit(direct_list_head(cq), memory_order_acquire);
	waiting += atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_PRODUCER),
					memory_order_relaxed) -
		   atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_CONSUMER),
					memory_order_relaxed);
	return direct_list_make(cq) && count + waiting <= list->mask + 1;
}

/* Appends a completion; it is shown with the tail. */
static void direct_complete(struct rnic_qp *qp, const struct direct_step *step, uint32_t opcode,
			    uint32_t at, uint32_t index)
{
	struct rnic_cq *cq = cq_of(qp->base.send_cq);

	*direct_list_entry(cq, at) = (struct rnic_cqe){
		.wr_id = step->wqe->wr_id,
		.opcode = opcode,
		.byte_len = step->length,
		.qp_num = qp->base.qp_num,
		.reserved = DIRECT_CQE,
		.timestamp = cq->stamped ? ctx_clock(ctx_of(qp->base.context)) : 0,
		.sq_index = index,
		/* What the NIC has completed before, of this QP too, is polled before. */
		.reserved2 = atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_PRODUCER),
						  memory_order_relaxed),
	};
}

static void direct_count(struct rnic_qp *qp, const struct direct_batch *batch)
{
	struct direct_qp *direct = &qp->direct;

	for (uint32_t i = 0; i < batch->count; i++) {
		const struct direct_step *step = &batch->steps[i];

		if (post_opcode_sends_data(step->wqe->opcode))
			direct->sent += step->length;
		else
			direct->received += step->length;
	}
	direct->ops += batch->count;
	atomic_store_explicit(queue_word64(qp->map, RNIC_OFF_DIRECT_SENT), direct->sent,
			      memory_order_relaxed);
	atomic_store_explicit(queue_word64(qp->map, RNIC_OFF_DIRECT_RECEIVED), direct->received,
			      memory_order_relaxed);
	atomic_store_explicit(queue_word64(qp->map, RNIC_OFF_DIRECT_OPS), direct->ops,
			      memory_order_relaxed);
}

/* Reports whether the connection still is the one that the batch was judged by, with its rights. */
static bool direct_is_granted(const struct rnic_qp *qp, const struct direct_batch *batch)
{
	const uint32_t grant = atomic_load_explicit(queue_word(qp->map, RNIC_OFF_QP_GRANT),
						    memory_order_acquire);

	return grant >> RNIC_GRANT_LINK_SHIFT == batch->link && !(batch->rights & ~grant);
}

/* Carries a batch out, unless a right has gone. */
static bool direct_execute(struct rnic_qp *qp, struct direct_batch *batch, uint32_t first)
{
	_Atomic uint32_t *busy = queue_word(qp->map, RNIC_OFF_DIRECT_BUSY);
	const uint32_t turn = atomic_load_explicit(busy, memory_order_relaxed);
	struct rnic_cq *cq = cq_of(qp->base.send_cq);
	_Atomic uint32_t *tail = direct_list_tail(cq);
	_Atomic uint64_t *count = queue_word64(cq->map, RNIC_OFF_CQ_LIST_COUNT);
	uint32_t at = atomic_load_explicit(tail, memory_order_relaxed);
	uint32_t index = first + atomic_load_explicit(&qp->sq.direct, memory_order_relaxed);
	bool good;

	atomic_store_explicit(busy, turn + 1, memory_order_relaxed);
	/* The NIC clears a word, then looks at busy: one of the two sees the other. */
	atomic_thread_fence(memory_order_seq_cst);
	good = direct_is_granted(qp, batch);
	for (uint32_t i = 0; good && i < batch->count; i++)
		good = direct_map_is_good(ctx_of(qp->base.context), batch->steps[i].map);
	for (uint32_t i = 0; good && i < batch->count; i++) {
		const struct direct_step *step = &batch->steps[i];
		const enum ibv_wc_opcode opcode = direct_do(step);

		index++;
		if (step->signaled)
			direct_complete(qp, step, opcode, at++, index);
	}
	if (good)
		direct_count(qp, batch);
	atomic_store_explicit(busy, turn + 2, memory_order_release);
	if (!good)
		return false;
	atomic_store_explicit(&qp->sq.direct, index - first, memory_order_relaxed);
	if (batch->signaled) {
		atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) +
						     batch->signaled, memory_order_relaxed);
		atomic_store_explicit(tail, at, memory_order_release);
	}
	return true;
}

bool direct_run(struct rnic_qp *qp, uint32_t first, uint32_t next)
{
	const uint32_t grant = atomic_load_explicit(queue_word(qp->map, RNIC_OFF_QP_GRANT),
						    memory_order_relaxed);
	struct direct_batch batch;
	struct rnic_cq *cq;
	bool done;

	/* Acquire: what was posted before has been written and shown. */
	if (!grant || next - first > DIRECT_BATCH ||
	    atomic_load_explicit(queue_word(qp->map, RNIC_OFF_SQ_DONE), memory_order_acquire) !=
		    first)
		return false;
	batch.count = next - first;
	batch.link = grant >> RNIC_GRANT_LINK_SHIFT;
	if (!direct_judge_all(qp, &batch, first))
		return false;
	if (qp->direct.ops / DIRECT_CHECK_EVERY !=
		    (qp->direct.ops + batch.count) / DIRECT_CHECK_EVERY &&
	    ctl_conn_is_dead(&ctx_of(qp->base.context)->ctl))
		return false;
	cq = cq_of(qp->base.send_cq);
	if (!batch.signaled)
		return direct_execute(qp, &batch, first);
	pthread_mutex_lock(&cq->direct.lock);
	done = direct_list_is_open(cq, batch.signaled) && direct_execute(qp, &batch, first);
	pthread_mutex_unlock(&cq->direct.lock);
	return done;
}
