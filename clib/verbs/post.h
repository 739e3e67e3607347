/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ways of posting, lists and builder, have in common. */
#ifndef RNIC_POST_H
#define RNIC_POST_H

#include "rnic.h"

/* Opcodes that not every version of the header has. */
enum { POST_WR_FLUSH = 14, POST_WR_ATOMIC_WRITE = 15, POST_WR_NONE = 31 };

/* Returns 0 when a send may be posted now, else EIO, EINVAL; the caller holds sq.lock. */
int post_send_check(struct rnic_qp *qp);

/* Returns 0 when index next is free, ENOMEM when the ring is full, EIO when the NIC is gone. */
int post_ring_check(struct rnic_context *ctx, struct queue_ring *ring, uint32_t next);

/* Does the sends that are in their slots up to next, or shows them to the NIC. */
void post_send_start(struct rnic_qp *qp, uint32_t next);

/* Posts the bind of a window of type 1. */
int post_bind(struct ibv_qp *ibqp, struct ibv_send_wr *wr);

/* Access flags that a window may have. */
#define POST_WINDOW_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | \
	 POST_ACCESS_FLUSH | IBV_ACCESS_OPTIONAL_RANGE)
/* IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT, which older headers lack. */
#define POST_ACCESS_FLUSH (3u << 8)

/*
 * Returns 0 when a window, which has to be of a type, can be asked to become rkey by info, else
 * EINVAL or EPERM. cause_of_bind says why.
 */
int post_bind_check(const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info,
		    enum ibv_mw_type type);

/* Fills what is special to a bind into a work request. */
void post_wqe_bind(struct rnic_send_wqe *wqe, uint32_t rkey, const struct ibv_mw_bind_info *info);

/* Reports whether a QP of this type can do the operation. */
bool post_opcode_is_allowed(enum ibv_qp_type type, unsigned int opcode);

/* Reports whether an operation takes local data to the peer, which may be inline then. */
bool post_opcode_sends_data(unsigned int opcode);

static inline struct rnic_sge *post_wqe_sges(struct rnic_send_wqe *wqe)
{
	return (struct rnic_sge *)(void *)((unsigned char *)wqe + RNIC_SEND_WQE_BYTES);
}

/* Installs the builder's functions in a QP. */
void build_qp_init(struct rnic_qp *qp);

#endif
