/* SPDX-License-Identifier: Apache-2.0 */
/* Posting lists of work requests. No system call, unless the lane sleeps. */
#include "post.h"

#include "cause.h"
#include "ctl.h"
#include "ctx.h"
#include "direct.h"
#include "mr.h"
#include "queue.h"

#define POST_BIT(opcode) (1u << (opcode))

bool post_opcode_is_allowed(enum ibv_qp_type type, unsigned int opcode)
{
	const unsigned int ud = POST_BIT(IBV_WR_SEND) | POST_BIT(IBV_WR_SEND_WITH_IMM);
	const unsigned int uc =
		ud | POST_BIT(IBV_WR_RDMA_WRITE) | POST_BIT(IBV_WR_RDMA_WRITE_WITH_IMM) |
		POST_BIT(IBV_WR_LOCAL_INV) | POST_BIT(IBV_WR_BIND_MW);
	const unsigned int rc = uc | POST_BIT(IBV_WR_SEND_WITH_INV) |
				POST_BIT(IBV_WR_RDMA_READ) | POST_BIT(IBV_WR_ATOMIC_CMP_AND_SWP) |
				POST_BIT(IBV_WR_ATOMIC_FETCH_AND_ADD);
	unsigned int allowed = 0;

	if (type == IBV_QPT_RC)
		allowed = rc | POST_BIT(POST_WR_FLUSH) | POST_BIT(POST_WR_ATOMIC_WRITE);
	else if (type == IBV_QPT_XRC_SEND)
		allowed = rc | POST_BIT(POST_WR_FLUSH);
	else if (type == IBV_QPT_UC)
		allowed = uc;
	else if (type == IBV_QPT_UD)
		allowed = ud;
	return opcode < 32 && (allowed & POST_BIT(opcode));
}

bool post_opcode_sends_data(unsigned int opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case POST_WR_ATOMIC_WRITE:
		return true;
	default:
		return false;
	}
}

static uint32_t post_qp_state(struct rnic_qp *qp)
{
	return atomic_load_explicit(queue_word(qp->map, RNIC_OFF_QP_STATE), memory_order_acquire);
}

int post_send_check(struct rnic_qp *qp)
{
	uint32_t state;

	if (ctl_conn_known_dead(&ctx_of(qp->base.context)->ctl))
		return EIO;
	if (qp->sq.entries == 0)
		return EINVAL;
	state = post_qp_state(qp);
	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR)
		return EINVAL;
	return 0;
}

int post_ring_check(struct rnic_context *ctx, struct queue_ring *ring, uint32_t next)
{
	if (queue_ring_has_room(ring, next))
		return 0;
	return ctl_conn_is_dead(&ctx->ctl) ? EIO : ENOMEM;
}

/* Shows the work requests from first up to next to the NIC. */
static void post_send_publish(struct rnic_qp *qp, uint32_t first, uint32_t next)
{
	const uint32_t direct = atomic_load_explicit(&qp->sq.direct, memory_order_relaxed);

	/* Their completions come with indices of the ring; see poll_sends_done. */
	for (uint32_t at = first; direct && at != next; at++)
		atomic_store_explicit(
			queue_slot_direct((void *)queue_ring_slot(&qp->sq, at)), direct,
			memory_order_relaxed);
	queue_ring_publish(&qp->sq, next);
	queue_ring_doorbell(ctx_of(qp->base.context), qp->doorbell_slot);
}

void post_send_start(struct rnic_qp *qp, uint32_t next)
{
	const uint32_t first = queue_ring_next(&qp->sq);

	if (first == next || direct_run(qp, first, next))
		return;
	post_send_publish(qp, first, next);
	direct_learn(qp);
}

static int post_wqe_inline(const struct rnic_qp *qp, struct rnic_send_wqe *wqe,
			   const struct ibv_send_wr *wr)
{
	unsigned char *to = (unsigned char *)wqe + RNIC_SEND_WQE_BYTES;
	uint32_t total = 0;

	if (!post_opcode_sends_data(wr->opcode))
		return EINVAL; /* nothing goes there, or data comes back */
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->max_inline - total)
			return EINVAL;
		memcpy(to + total, (const void *)(uintptr_t)sge->addr, sge->length);
		total += sge->length;
	}
	wqe->num_sge = 0;
	wqe->inline_len = total;
	return 0;
}

static int post_wqe_data(const struct rnic_qp *qp, struct rnic_send_wqe *wqe,
			 const struct ibv_send_wr *wr)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->sq.max_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE)
		return post_wqe_inline(qp, wqe, wr);
	wqe->num_sge = (uint16_t)wr->num_sge;
	wqe->inline_len = 0;
	static_assert(sizeof(struct rnic_sge) == sizeof(struct ibv_sge), "same layout");
	if (wr->num_sge)
		memcpy(post_wqe_sges(wqe), wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
	return 0;
}

int post_bind_check(const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info,
		    enum ibv_mw_type type)
{
	if (!mw || mw->type != type || (mw->rkey ^ rkey) >> 8 ||
	    (info->mw_access_flags & ~POST_WINDOW_ACCESS))
		return EINVAL;
	if (!info->mr)
		return info->addr || info->length ? EINVAL : 0;
	if (mr_of(info->mr)->kind != MR_MEMORY)
		return EINVAL;
	return info->mr->pd == mw->pd ? 0 : EPERM;
}

void post_wqe_bind(struct rnic_send_wqe *wqe, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	wqe->num_sge = 0;
	wqe->inline_len = 0;
	wqe->rkey = rkey;
	wqe->remote_addr = info->addr;
	wqe->compare_add = info->length;
	wqe->swap = info->mw_access_flags;
	wqe->extra = info->mr ? info->mr->lkey : 0;
}

/* Reports operations that have no data: whatever list comes with them means nothing. */
static bool post_is_local(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

static int post_wqe_local(struct rnic_send_wqe *wqe, const struct ibv_send_wr *wr,
			  enum ibv_mw_type windows)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	int error;

	if (wr->send_flags & IBV_SEND_INLINE)
		return EINVAL;
	wqe->num_sge = 0;
	wqe->inline_len = 0;
	if (wr->opcode != IBV_WR_BIND_MW)
		return 0;
	error = post_bind_check(wr->bind_mw.mw, wr->bind_mw.rkey, info, windows);
	if (error)
		return error;
	post_wqe_bind(wqe, wr->bind_mw.rkey, info);
	return 0;
}

static void post_wqe_remote(struct rnic_send_wqe *wqe, const struct ibv_send_wr *wr)
{
	switch ((unsigned int)wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case POST_WR_ATOMIC_WRITE:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->remote_addr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->compare_add = wr->wr.atomic.compare_add;
		wqe->swap = wr->wr.atomic.swap;
		break;
	default:
		break;
	}
}

static int post_wqe_fill(const struct rnic_qp *qp, struct rnic_send_wqe *wqe,
			 const struct ibv_send_wr *wr, enum ibv_mw_type windows)
{
	const unsigned int known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
				   IBV_SEND_INLINE;
	int error;

	/* Work requests of lists have no place for what a FLUSH says. */
	if ((unsigned int)wr->opcode == POST_WR_FLUSH)
		return EINVAL;

	if (!post_opcode_is_allowed(qp->base.qp_type, wr->opcode) || (wr->send_flags & ~known))
		return EINVAL;
	error = post_is_local(wr->opcode) ? post_wqe_local(wqe, wr, windows)
					  : post_wqe_data(qp, wqe, wr);
	if (error)
		return error;
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->flags = (uint8_t)wr->send_flags;
	wqe->imm_or_rkey = wr->invalidate_rkey; /* shares its bytes with imm_data */
	post_wqe_remote(wqe, wr);
	if (qp->base.qp_type == IBV_QPT_XRC_SEND)
		wqe->extra = wr->qp_type.xrc.remote_srqn;
	if (qp->base.qp_type == IBV_QPT_UD) {
		if (!wr->wr.ud.ah)
			return EINVAL;
		wqe->ah = wr->wr.ud.ah->handle;
		wqe->remote_qpn = wr->wr.ud.remote_qpn;
		wqe->remote_qkey = wr->wr.ud.remote_qkey;
	}
	return 0;
}

/* Posts a list in which windows of one type may be bound. */
static int post_send_list(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad,
			  enum ibv_mw_type windows)
{
	struct rnic_qp *qp = qp_of(ibqp);
	struct rnic_context *ctx = ctx_of(ibqp->context);
	uint32_t next;
	int error;

	pthread_mutex_lock(&qp->sq.lock);
	next = queue_ring_next(&qp->sq);
	error = post_send_check(qp);
	for (; wr && !error; wr = wr->next) {
		error = post_ring_check(ctx, &qp->sq, next);
		if (!error)
			error = post_wqe_fill(qp, (void *)queue_ring_slot(&qp->sq, next), wr,
					      windows);
		if (error)
			break;
		next++;
	}
	post_send_start(qp, next);
	if (error)
		cause_of_send(qp, wr, error);
	pthread_mutex_unlock(&qp->sq.lock);
	if (error)
		*bad = wr;
	return error;
}

int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return post_send_list(ibqp, wr, bad, IBV_MW_TYPE_2);
}

int post_bind(struct ibv_qp *ibqp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return post_send_list(ibqp, wr, &bad, IBV_MW_TYPE_1);
}

static int post_wqe_recv(const struct queue_ring *ring, uint32_t next,
			 const struct ibv_recv_wr *wr)
{
	struct rnic_recv_wqe *wqe = (void *)queue_ring_slot(ring, next);

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > ring->max_sge)
		return EINVAL;
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = (uint32_t)wr->num_sge;
	wqe->reserved = 0;
	if (wr->num_sge)
		memcpy((unsigned char *)wqe + RNIC_RECV_WQE_BYTES, wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	return 0;
}

/* Posts receives and publishes those that were good; *bad is the one that was not. */
static int post_recv_list(struct rnic_context *ctx, struct queue_ring *ring,
			  struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	uint32_t first = queue_ring_next(ring), next = first;
	int error = 0;

	for (; wr; wr = wr->next) {
		error = post_ring_check(ctx, ring, next);
		if (!error)
			error = post_wqe_recv(ring, next, wr);
		if (error)
			break;
		next++;
	}
	if (next != first)
		queue_ring_publish(ring, next);
	if (error)
		*bad = wr;
	return error;
}

int post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rnic_qp *qp = qp_of(ibqp);
	struct rnic_context *ctx = ctx_of(ibqp->context);
	int error = 0;

	pthread_mutex_lock(&qp->rq.lock);
	if (ctl_conn_known_dead(&ctx->ctl))
		error = EIO;
	else if (qp->rq.entries == 0 || post_qp_state(qp) == IBV_QPS_RESET)
		error = EINVAL;
	if (error) {
		*bad = wr;
	} else {
		error = post_recv_list(ctx, &qp->rq, wr, bad);
		/*
		 * A QP in error flushes receives as they come, so it has to hear of them. It sets
		 * the word before it last looks at the ring; the fence keeps our look behind ours.
		 */
		atomic_thread_fence(memory_order_seq_cst);
		if (atomic_load_explicit(queue_word(qp->map, RNIC_OFF_RQ_DOORBELL),
					 memory_order_relaxed))
			queue_ring_doorbell(ctx, qp->doorbell_slot);
	}
	if (error)
		cause_of_recv(qp, *bad, error);
	pthread_mutex_unlock(&qp->rq.lock);
	return error;
}

int post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rnic_srq *srq = srq_of(ibsrq);
	struct rnic_context *ctx = ctx_of(ibsrq->context);
	int error = EIO;

	pthread_mutex_lock(&srq->rq.lock);
	if (ctl_conn_known_dead(&ctx->ctl))
		*bad = wr;
	else
		error = post_recv_list(ctx, &srq->rq, wr, bad);
	if (error)
		cause_of_srq_recv(srq, *bad, error);
	pthread_mutex_unlock(&srq->rq.lock);
	return error;
}
