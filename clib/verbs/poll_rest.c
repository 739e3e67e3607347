/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who polls in vain competes with the NIC for the processor, so it yields. That is not enough where
 * a NIC has much to do for it: a thread that yields still looks to the scheduler as if it needed
 * its processor, so that two threads which could run side by side, such as the NIC and what
 * receives from it, share the other one.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "poll_rest.h"
#include "queue.h"

/*
 * With so many processors there is one for everybody. With fewer, a thread sleeps that has waited
 * for longer than any round trip takes, for sends that the NIC is still busy with: bulk data. Who
 * has nothing under way may be waiting for something else as well, and must not be held up.
 */
enum { REST_PROCESSORS = 4, REST_AFTER_NS = 200000, REST_NS = 30000 };

/* A yield that took so long went to somebody who computes: for a time there is no early one. */
enum { REST_LONG_NS = 300000, REST_DEAR_NS = 20000000 };

static bool rest_is_scarce(void)
{
	static atomic_int known; /* 1: yes, 2: no */
	int answer = atomic_load_explicit(&known, memory_order_relaxed);
	cpu_set_t set;

	if (!answer) {
		answer = 2;
		if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) < REST_PROCESSORS)
			answer = 1;
		atomic_store_explicit(&known, answer, memory_order_relaxed);
	}
	return answer == 1;
}

/* Reports whether the NIC has yet to finish sends that complete here. */
static bool rest_awaits_sends(struct rnic_cq *cq)
{
	for (size_t i = 0; i < CQ_BUCKETS; i++) {
		const struct queue_ring *ring =
			atomic_load_explicit(&cq->rings[i], memory_order_acquire);

		for (; ring; ring = atomic_load_explicit(&ring->next, memory_order_acquire)) {
			if (!ring->receives &&
			    atomic_load_explicit(ring->taken, memory_order_relaxed) !=
				    queue_ring_next(ring))
				return true;
		}
	}
	return false;
}

void poll_rest(struct rnic_cq *cq, bool first)
{
	const struct timespec rest = {.tv_nsec = REST_NS};

	if (!rest_is_scarce()) {
		sched_yield();
		return;
	}
	if (first)
		cq->empty_since = clock_monotonic();
	if (clock_monotonic() - cq->empty_since > REST_AFTER_NS && rest_awaits_sends(cq))
		/* Not by the C library's call: a thread that it cancels would keep the CQ's lock. */
		syscall(SYS_nanosleep, &rest, NULL);
	else
		sched_yield();
}

void poll_rest_early(struct rnic_cq *cq)
{
	uint64_t now, back;

	if (!rest_is_scarce())
		return;
	now = clock_monotonic();
	if (now < cq->dear_until)
		return;
	sched_yield();
	back = clock_monotonic();
	if (back - now > REST_LONG_NS)
		cq->dear_until = back + REST_DEAR_NS;
}
