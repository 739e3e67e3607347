/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two programs that talk to each other and the NIC's lane are three threads. On two processors it
 * is best when the lane has one of its own and the programs share the other: every message needs
 * the lane, and the programs take turns anyway. A relay of three such threads took 2.5 µs a
 * message this way, and 6 to 13 µs where a program shares with what plays the lane; on an
 * emulated processor, where a change of process is dear, 16 and 30 µs. The scheduler does not see
 * that, so a thread that finds itself on the lane's processor moves.
 */
#include <sched.h>

#include "clock.h"
#include "poll_aside.h"
#include "queue.h"

/* How long a thread stays where it has moved, even if the scheduler brings it back. */
enum { ASIDE_NS = 4000000 };

/*
 * Moves this thread to another of its processors, and leaves it as free to be moved on as it was.
 * Reports false when it was moved a short time ago, or has no other.
 */
static bool aside_move(struct rnic_cq *cq, int lane)
{
	const uint64_t now = clock_monotonic();
	cpu_set_t mine, others;

	if (now < cq->aside_until)
		return false;
	cq->aside_until = now + ASIDE_NS;
	if (sched_getaffinity(0, sizeof(mine), &mine))
		return false;
	others = mine;
	CPU_CLR(lane, &others);
	if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof(others), &others))
		return false;
	sched_setaffinity(0, sizeof(mine), &mine);
	return true;
}

int poll_aside_lane(const struct rnic_context *ctx)
{
	const _Atomic uint32_t *processor =
		(const _Atomic uint32_t *)(const void *)(ctx->lane + RNIC_OFF_LANE_PROCESSOR);

	return (int)atomic_load_explicit(processor, memory_order_relaxed) - 1;
}

bool poll_aside(struct rnic_cq *cq)
{
	const struct rnic_context *ctx = ctx_of(cq->ex.context);
	const _Atomic uint32_t *sleeping =
		(const _Atomic uint32_t *)(const void *)(ctx->lane + RNIC_OFF_LANE_SLEEPING);
	const int lane = poll_aside_lane(ctx);

	if (lane < 0 || atomic_load_explicit(sleeping, memory_order_relaxed) ||
	    lane != sched_getcpu())
		return false;
	if (!aside_move(cq, lane))
		sched_yield();
	return true;
}
