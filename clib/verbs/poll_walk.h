/* SPDX-License-Identifier: Apache-2.0 */
/* Completions in the order in which they are polled: those of the NIC and those of the library. */
#ifndef RNIC_POLL_WALK_H
#define RNIC_POLL_WALK_H

#include "direct.h"
#include "queue.h"

static inline struct rnic_cqe *poll_slot(const struct rnic_cq *cq, uint32_t index)
{
	return (struct rnic_cqe *)(void *)cq->slots + (index & cq->mask);
}

static inline uint32_t poll_producer(const struct rnic_cq *cq)
{
	/* Acquire orders the reads of the entries after the index that covers them. */
	return atomic_load_explicit(queue_word(cq->map, RNIC_OFF_CQ_PRODUCER),
				    memory_order_acquire);
}

/* A walk over what can be polled: the queue that the NIC fills, and the library's own list. */
struct poll_walk {
	struct poll_place at;
	struct poll_place end;
};

static inline struct poll_walk poll_walk_begin(const struct rnic_cq *cq)
{
	struct poll_walk walk;

	walk.at.ring = cq->consumer;
	walk.at.own = atomic_load_explicit(direct_list_head(cq), memory_order_relaxed);
	/*
	 * In this order: what the library had done itself before the NIC completed what came next is
	 * seen too. An entry of the list that has to wait for more than is seen here waits.
	 */
	walk.end.ring = poll_producer(cq);
	walk.end.own = atomic_load_explicit(direct_list_tail(cq), memory_order_acquire);
	return walk;
}

/*
 * Returns the next entry that counts, or NULL. What the library did itself comes when everything
 * has that was in the queue before.
 */
static inline const struct rnic_cqe *poll_walk_next(const struct rnic_cq *cq,
						    struct poll_walk *walk)
{
	for (;;) {
		const struct rnic_cqe *cqe = NULL;

		if (walk->at.own != walk->end.own) {
			cqe = direct_list_entry(cq, walk->at.own);
			if ((int32_t)(cqe->reserved2 - walk->at.ring) > 0)
				cqe = NULL;
		}
		if (cqe)
			walk->at.own++;
		else if (walk->at.ring != walk->end.ring)
			cqe = poll_slot(cq, walk->at.ring++);
		else
			return NULL;
		if (cqe->opcode != RNIC_CQE_SKIP)
			return cqe;
	}
}

/* Gives the entries before a place back; release orders our reads of them before. */
static inline void poll_release(struct rnic_cq *cq, const struct poll_place *at)
{
	if (at->own != atomic_load_explicit(direct_list_head(cq), memory_order_relaxed))
		atomic_store_explicit(direct_list_head(cq), at->own, memory_order_release);
	if (at->ring == cq->consumer)
		return;
	cq->consumer = at->ring;
	atomic_store_explicit(queue_word(cq->map, RNIC_OFF_CQ_CONSUMER), at->ring,
			      memory_order_release);
}

/*
 * Returns how many work requests of a send queue a completion ends, in all and in the terms of
 * queue_ring.polled. The NIC counts slots; what the library had done itself before is noted in the
 * last of them, which is ours until its completion is polled.
 */
static inline uint32_t poll_sends_done(const struct queue_ring *ring, const struct rnic_cqe *cqe)
{
	struct rnic_send_wqe *last;

	if (cqe->reserved == DIRECT_CQE ||
	    !atomic_load_explicit(&ring->direct, memory_order_relaxed))
		return cqe->sq_index;
	last = (void *)queue_ring_slot(ring, cqe->sq_index - 1);
	return cqe->sq_index + atomic_load_explicit(queue_slot_direct(last), memory_order_relaxed);
}

#endif
