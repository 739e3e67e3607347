/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The direct path: between queue pairs of one NIC, of programs of one user, the initiator's library
 * carries RDMA READs, WRITEs and atomics out itself in the peer's memory, which the NIC has let it
 * map. It does so where it can be sure that the outcome is the NIC's: everything posted before is
 * complete, keys and rights are good, nobody waits for an event, and nothing is being watched.
 * Whatever is unusual goes to the NIC as ever, so that errors and events are its alone.
 *
 * The NIC takes a right back by clearing a word (the grant of a queue pair, the ticket of a region)
 * and looking whether the library is busy then; the library says that it is busy and looks at the
 * words then. So once a region is deregistered, nothing touches it any more.
 */
#ifndef RNIC_DIRECT_H
#define RNIC_DIRECT_H

#include "mr.h"
#include "queue.h"
#include "rnic.h"

/* In rnic_cqe.reserved of what the library completes itself; sq_index counts as polled does. */
#define DIRECT_CQE 1

/*
 * Does the work requests that are filled in from first on, all or none. Returns false when the NIC
 * is to do them. The caller holds sq.lock and has published none of them.
 */
bool direct_run(struct rnic_qp *qp, uint32_t first, uint32_t next);

/* Asks the NIC for memory that work requests to come will want. The caller holds sq.lock. */
void direct_learn(struct rnic_qp *qp);

/* Forgets the peer's memory: the QP was reset or destroyed, and nobody posts. */
void direct_forget(struct rnic_qp *qp);

/* Of a context that is closed. */
void direct_close(struct rnic_context *ctx);

/* Lets work requests find a region, whose addresses are those of this process; or no more. */
void direct_local_add(const struct rnic_mr *mr);
void direct_local_remove(const struct rnic_mr *mr);

/*
 * Returns where a region of this process may stand in the table, by its local key: in place 0 or 1,
 * so that two regions seldom keep one another out.
 */
static inline struct direct_local *direct_local_place(struct direct_context *direct, uint32_t lkey,
						      uint32_t which)
{
	return &direct->locals[((lkey >> 8) * 2 + which) % DIRECT_LOCALS];
}

/* Returns the entry of a CQ's own list at an index. */
static inline struct rnic_cqe *direct_list_entry(const struct rnic_cq *cq, uint32_t index)
{
	return &cq->direct.entries[index & cq->direct.mask];
}

static inline _Atomic uint32_t *direct_list_head(const struct rnic_cq *cq)
{
	return queue_word(cq->map, RNIC_OFF_CQ_LIST_HEAD);
}

static inline _Atomic uint32_t *direct_list_tail(const struct rnic_cq *cq)
{
	return queue_word(cq->map, RNIC_OFF_CQ_LIST_TAIL);
}

/* Reports whether all that waits to be polled would fit into a CQ of another size. */
bool direct_list_fits(struct rnic_cq *cq, uint32_t cqe);

/* Makes the list as long as the CQ, which has just been resized. The caller has both locks. */
void direct_list_resize(struct rnic_cq *cq);

#endif
