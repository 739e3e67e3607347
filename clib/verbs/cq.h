/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_CQ_H
#define RNIC_CQ_H

#include "rnic.h"

/* Keeps others from polling, unless the application promised that there are none. */
static inline void cq_lock(struct rnic_cq *cq)
{
	if (!cq->unlocked)
		pthread_mutex_lock(&cq->lock);
}

static inline void cq_unlock(struct rnic_cq *cq)
{
	if (!cq->unlocked)
		pthread_mutex_unlock(&cq->lock);
}

/* Enters a QP's ring, whose completions come to the CQ from now on. */
void cq_join(struct rnic_cq *cq, struct queue_ring *ring);

/* Takes a ring out, after which no poll touches it. */
void cq_leave(struct rnic_cq *cq, struct queue_ring *ring);

/*
 * Cancels a QP's completions that nobody has polled, as a reset or destroy does. Their slots come
 * back.
 */
void cq_cancel(struct rnic_cq *cq, uint32_t qpn);

/* Installs the extended polling interface. */
void cq_poll_init(struct rnic_cq *cq, uint64_t wc_flags);

#endif
