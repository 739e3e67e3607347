/* SPDX-License-Identifier: Apache-2.0 */
/* Clear words for what fails: posts that were refused, completions with an error. */
#ifndef RNIC_CAUSE_H
#define RNIC_CAUSE_H

#include "rnic.h"

/*
 * Leaves word of a send that was not posted in the QP's memory, where "rnic ps --errors" finds it,
 * and on standard error when that is asked for. The caller holds sq.lock.
 */
void cause_of_send(struct rnic_qp *qp, const struct ibv_send_wr *wr, int error);

/* Says what post_bind_check has against a bind, in RNIC_POST_REFUSAL_TEXT bytes. */
void cause_of_bind(const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info,
		   char *text);

/* The same as cause_of_send of what the builder refused. */
void cause_of_build(struct rnic_qp *qp, int error);

/* The same of a receive; the caller holds rq.lock. */
void cause_of_recv(struct rnic_qp *qp, const struct ibv_recv_wr *wr, int error);

/* The same of a receive for a shared queue; the caller holds its lock. */
void cause_of_srq_recv(struct rnic_srq *srq, const struct ibv_recv_wr *wr, int error);

/* The same of an operation on its matching list; the caller holds the lock of those. */
void cause_of_srq_op(struct rnic_srq *srq, const struct ibv_ops_wr *wr, int error);

/* Says on standard error, when that is asked for, what stands behind an event about a QP. */
void cause_of_event(const struct ibv_async_event *event);

/*
 * Says on standard error, when that is asked for, why a work request failed. ring is where it was
 * posted, NULL where that is an SRQ.
 */
void cause_of_completion(const struct rnic_cqe *cqe, struct queue_ring *ring);

#endif
