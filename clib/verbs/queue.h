/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared rings as the application's end sees them. Indices run freely; a slot is selected by
 * our own mask. The producer index lives in shared memory only, since a reset of the QP may
 * change it.
 */
#ifndef RNIC_QUEUE_H
#define RNIC_QUEUE_H

#include <sys/syscall.h>
#include <unistd.h>

#include "rnic.h"

static inline _Atomic uint32_t *queue_word(unsigned char *map, size_t offset)
{
	return (_Atomic uint32_t *)(void *)(map + offset);
}

static inline _Atomic uint64_t *queue_word64(unsigned char *map, size_t offset)
{
	return (_Atomic uint64_t *)(void *)(map + offset);
}

static inline void queue_ring_init(struct queue_ring *ring, unsigned char *slots,
				   _Atomic uint32_t *producer, _Atomic uint32_t *consumer)
{
	pthread_mutex_init(&ring->lock, NULL);
	ring->slots = slots;
	ring->producer = producer;
	ring->consumer = consumer;
	ring->seen = atomic_load_explicit(consumer, memory_order_acquire);
}

/* Makes a QP's ring: its slots come back by poll. */
static inline void queue_ring_init_polled(struct queue_ring *ring, unsigned char *slots,
					  _Atomic uint32_t *producer, _Atomic uint32_t *consumer)
{
	atomic_store(&ring->polled, atomic_load_explicit(consumer, memory_order_acquire));
	queue_ring_init(ring, slots, producer, &ring->polled);
	ring->taken = consumer;
}

static inline uint32_t queue_ring_next(const struct queue_ring *ring)
{
	return atomic_load_explicit(ring->producer, memory_order_relaxed);
}

/* Returns how many work requests were posted in all, those that have no slot among them. */
static inline uint32_t queue_ring_posted(const struct queue_ring *ring)
{
	return queue_ring_next(ring) +
	       atomic_load_explicit(&ring->direct, memory_order_relaxed);
}

/* Reports whether a slot is free at index next, which is the producer's or beyond. */
static inline bool queue_ring_has_room(struct queue_ring *ring, uint32_t next)
{
	next += atomic_load_explicit(&ring->direct, memory_order_relaxed);
	if (next - ring->seen < ring->entries)
		return true;
	/*
	 * The NIC has read a slot before it moves its index or writes the completion: acquire
	 * orders our writes after.
	 */
	ring->seen = atomic_load_explicit(ring->consumer, memory_order_acquire);
	return next - ring->seen < ring->entries;
}

static inline unsigned char *queue_ring_slot(const struct queue_ring *ring, uint32_t index)
{
	return ring->slots + (size_t)(index & (ring->entries - 1)) * ring->stride;
}

/*
 * Where a work request of RC, which has no address handle, notes how many the library had done
 * itself before. Atomic for tools that cannot see how the NIC orders the write before the read.
 */
static inline _Atomic uint32_t *queue_slot_direct(struct rnic_send_wqe *wqe)
{
	return (_Atomic uint32_t *)&wqe->ah;
}

/* Shows the slots below next to the NIC: release orders their contents before the index. */
static inline void queue_ring_publish(struct queue_ring *ring, uint32_t next)
{
	atomic_store_explicit(ring->producer, next, memory_order_release);
}

/*
 * Rings a doorbell slot: word, then summary, as the NIC clears them in the opposite order. The
 * fence keeps the look at the sleeping word behind both; the lane sets that word before its last
 * look at the doorbells, so one of the two sees the other.
 */
static inline void queue_ring_doorbell(struct rnic_context *ctx, uint32_t slot)
{
	_Atomic uint64_t *summary =
		(_Atomic uint64_t *)(void *)(ctx->doorbell + RNIC_OFF_DOORBELL_SUMMARY);
	_Atomic uint64_t *words =
		(_Atomic uint64_t *)(void *)(ctx->doorbell + RNIC_OFF_DOORBELL_WORDS);
	const uint32_t word = slot / 64;
	const _Atomic uint32_t *sleeping =
		(const _Atomic uint32_t *)(const void *)(ctx->lane + RNIC_OFF_LANE_SLEEPING);

	atomic_fetch_or_explicit(&words[word], 1ull << (slot % 64), memory_order_seq_cst);
	atomic_fetch_or_explicit(&summary[word / 64], 1ull << (word % 64), memory_order_seq_cst);
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(sleeping, memory_order_relaxed)) {
		const uint64_t one = 1;
		int saved = errno;

		/*
		 * Only a counter at its maximum would block or fail, and then the lane wakes too. Not by
		 * write, which cancels threads: the queue's lock is held.
		 */
		if (syscall(SYS_write, ctx->kick_fd, &one, sizeof(one)) < 0)
			errno = saved;
	}
}

#endif
