/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on the matching list of a shared receive queue. */
#include "cause.h"
#include "ctl.h"
#include "ctx.h"
#include "post.h"
#include "queue.h"

/*
 * Returns 0 when the list has room for one more buffer. The NIC counts a buffer that it gives back
 * before it shows the completion that says so, hence acquire.
 */
static int srq_tags_check(const struct rnic_srq *srq, uint32_t added)
{
	const uint32_t released = atomic_load_explicit(queue_word(srq->map, RNIC_OFF_TAGS_RELEASED),
						       memory_order_acquire);

	return added - released < srq->max_tags ? 0 : ENOMEM;
}

static int srq_op_add(const struct rnic_srq *srq, uint32_t added, struct rnic_tag_wqe *wqe,
		      const struct ibv_ops_wr *wr)
{
	const int num_sge = wr->tm.add.num_sge;

	if (num_sge < 0 || (uint32_t)num_sge > srq->ops.max_sge)
		return EINVAL;
	if (srq_tags_check(srq, added))
		return ENOMEM;
	wqe->recv_wr_id = wr->tm.add.recv_wr_id;
	wqe->tag = wr->tm.add.tag;
	wqe->mask = wr->tm.add.mask;
	wqe->num_sge = (uint16_t)num_sge;
	if (num_sge)
		memcpy((unsigned char *)wqe + RNIC_TAG_WQE_BYTES, wr->tm.add.sg_list,
		       (size_t)num_sge * sizeof(*wr->tm.add.sg_list));
	return 0;
}

/* Fills the slot at index next; added counts the buffers posted before. */
static int srq_op_fill(const struct rnic_srq *srq, uint32_t next, uint32_t *added,
		       struct ibv_ops_wr *wr)
{
	struct rnic_tag_wqe *wqe = (void *)queue_ring_slot(&srq->ops, next);
	int error = 0;

	if (wr->flags & ~(IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC))
		return EINVAL;
	memset(wqe, 0, sizeof(*wqe));
	switch (wr->opcode) {
	case IBV_WR_TAG_ADD:
		error = srq_op_add(srq, *added, wqe, wr);
		if (error)
			return error;
		wr->tm.handle = next;
		++*added;
		break;
	case IBV_WR_TAG_DEL:
		wqe->handle = wr->tm.handle;
		break;
	case IBV_WR_TAG_SYNC:
		break;
	default:
		return EINVAL;
	}
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->flags = (uint8_t)wr->flags;
	wqe->unexpected = wr->tm.unexpected_cnt;
	return 0;
}

int srq_post_ops(struct ibv_srq *ibsrq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad)
{
	struct rnic_srq *srq = srq_of(ibsrq);
	struct rnic_context *ctx = ctx_of(ibsrq->context);
	uint32_t first, next;
	int error = 0;

	if (!srq->ops.entries) {
		*bad = wr;
		return EINVAL;
	}
	pthread_mutex_lock(&srq->ops.lock);
	first = next = queue_ring_next(&srq->ops);
	if (ctl_conn_known_dead(&ctx->ctl))
		error = EIO;
	for (; wr && !error; wr = wr->next) {
		error = post_ring_check(ctx, &srq->ops, next);
		if (!error)
			error = srq_op_fill(srq, next, &srq->tags_added, wr);
		if (error)
			break;
		next++;
	}
	if (next != first) {
		queue_ring_publish(&srq->ops, next);
		queue_ring_doorbell(ctx, srq->doorbell_slot);
	}
	if (error) {
		cause_of_srq_op(srq, wr, error);
		*bad = wr;
	}
	pthread_mutex_unlock(&srq->ops.lock);
	return error;
}
