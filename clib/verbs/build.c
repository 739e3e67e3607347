/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work request builder, ibv_wr_*(3): the application composes requests in place between
 * wr_start, which takes the send queue's lock, and wr_complete, which publishes all or none.
 */
#include "cause.h"

#include <stdarg.h>
#include <stdio.h>

#include "ctx.h"
#include "post.h"
#include "queue.h"

static struct rnic_qp *build_qp(struct ibv_qp_ex *qp)
{
	return qp_of(&qp->qp_base);
}

static void build_start(struct ibv_qp_ex *ex)
{
	struct rnic_qp *qp = build_qp(ex);

	pthread_mutex_lock(&qp->sq.lock);
	qp->build_next = queue_ring_next(&qp->sq);
	qp->build_wqe = NULL;
	qp->build_refusal.is_set = false;
	qp->build_error = post_send_check(qp);
}

/* Remembers the first request that cannot be posted. */
static void build_blame(struct rnic_qp *qp, uint64_t wr_id, uint32_t opcode)
{
	if (qp->build_refusal.is_set)
		return;
	qp->build_refusal.is_set = true;
	qp->build_refusal.wr_id = wr_id;
	qp->build_refusal.opcode = opcode;
	qp->build_refusal.text[0] = 0;
}

static void build_refuse(struct rnic_qp *qp, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Refuses the request that is being built, with what is wrong with it. wr_complete reports it. */
static void build_refuse(struct rnic_qp *qp, int error, const char *format, ...)
{
	struct build_refusal *to = &qp->build_refusal;
	va_list args;

	if (!qp->build_error) {
		qp->build_error = error;
		build_blame(qp, qp->build_wqe->wr_id, qp->build_wqe->opcode);
		va_start(args, format);
		vsnprintf(to->text, sizeof(to->text), format, args);
		va_end(args);
	}
	qp->build_wqe = NULL;
}

/* Ends the request that is being built. */
static void build_finish(struct rnic_qp *qp)
{
	if (qp->build_wqe && qp->base.qp_type == IBV_QPT_UD && !qp->build_wqe->ah)
		build_refuse(qp, EINVAL, "a datagram needs an address: ibv_wr_set_ud_addr");
	qp->build_wqe = NULL;
}

static int build_complete(struct ibv_qp_ex *ex)
{
	struct rnic_qp *qp = build_qp(ex);
	int error;

	build_finish(qp);
	error = qp->build_error;
	if (!error)
		post_send_start(qp, qp->build_next);
	if (error)
		cause_of_build(qp, error);
	pthread_mutex_unlock(&qp->sq.lock);
	return error;
}

static void build_abort(struct ibv_qp_ex *ex)
{
	struct rnic_qp *qp = build_qp(ex);

	qp->build_wqe = NULL;
	pthread_mutex_unlock(&qp->sq.lock);
}

/* Begins a request. Returns NULL after an error, which wr_complete reports. */
static struct rnic_send_wqe *build_begin(struct ibv_qp_ex *ex, unsigned int opcode)
{
	struct rnic_qp *qp = build_qp(ex);
	const unsigned int known = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
	struct rnic_send_wqe *wqe;

	build_finish(qp);
	if (!qp->build_error)
		qp->build_error =
			post_ring_check(ctx_of(ex->qp_base.context), &qp->sq, qp->build_next);
	if (qp->build_error) {
		build_blame(qp, ex->wr_id, opcode);
		return NULL;
	}
	wqe = (void *)queue_ring_slot(&qp->sq, qp->build_next++);
	/* Whether the data is inline is told by the setter that brings it. */
	*wqe = (struct rnic_send_wqe){
		.wr_id = ex->wr_id,
		.opcode = (uint8_t)opcode,
		.flags = (uint8_t)(ex->wr_flags & known),
	};
	qp->build_wqe = wqe;
	if (!post_opcode_is_allowed(ex->qp_base.qp_type, opcode))
		build_refuse(qp, EINVAL, "a QP of type %d has no operation %u",
			     ex->qp_base.qp_type, opcode);
	else if (ex->wr_flags & ~(known | IBV_SEND_INLINE))
		build_refuse(qp, EINVAL, "wr_flags %#x; only %#x are known", ex->wr_flags,
			     known | IBV_SEND_INLINE);
	return qp->build_wqe;
}

static void build_rdma(struct ibv_qp_ex *ex, unsigned int opcode, uint32_t rkey,
		       uint64_t remote_addr, uint32_t imm)
{
	struct rnic_send_wqe *wqe = build_begin(ex, opcode);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->remote_addr = remote_addr;
	wqe->imm_or_rkey = imm;
}

static void build_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	build_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void build_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	build_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void build_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				 __be32 imm)
{
	build_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm);
}

static void build_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			  uint64_t compare, uint64_t swap)
{
	struct rnic_send_wqe *wqe = build_begin(ex, IBV_WR_ATOMIC_CMP_AND_SWP);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->remote_addr = remote_addr;
	wqe->compare_add = compare;
	wqe->swap = swap;
}

static void build_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			    uint64_t add)
{
	struct rnic_send_wqe *wqe = build_begin(ex, IBV_WR_ATOMIC_FETCH_AND_ADD);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->remote_addr = remote_addr;
	wqe->compare_add = add;
}

static void build_plain(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t imm_or_rkey)
{
	struct rnic_send_wqe *wqe = build_begin(ex, opcode);

	if (wqe)
		wqe->imm_or_rkey = imm_or_rkey;
}

static void build_send(struct ibv_qp_ex *ex)
{
	build_plain(ex, IBV_WR_SEND, 0);
}

static void build_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	build_plain(ex, IBV_WR_SEND_WITH_IMM, imm);
}

static void build_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	build_plain(ex, IBV_WR_SEND_WITH_INV, rkey);
}

static void build_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	build_plain(ex, IBV_WR_LOCAL_INV, rkey);
	build_qp(ex)->build_wqe = NULL; /* it has no data to set */
}

static void build_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn,
			      uint32_t qkey)
{
	struct rnic_qp *qp = build_qp(ex);

	if (!qp->build_wqe)
		return;
	if (!ah) {
		build_refuse(qp, EINVAL, "a datagram needs an address handle");
		return;
	}
	qp->build_wqe->ah = ah->handle;
	qp->build_wqe->remote_qpn = qpn;
	qp->build_wqe->remote_qkey = qkey;
}

/* Appends inline bytes to the request that is being built. */
static void build_append(struct rnic_qp *qp, const void *from, size_t length)
{
	struct rnic_send_wqe *wqe = qp->build_wqe;

	if (!wqe)
		return;
	if (!post_opcode_sends_data(wqe->opcode)) {
		build_refuse(qp, EINVAL, "operation %u sends no data, so none can be inline",
			     wqe->opcode);
		return;
	}
	if (length > qp->max_inline - wqe->inline_len) {
		build_refuse(qp, EINVAL, "%zu bytes inline; the QP has room for %u",
			     wqe->inline_len + length, qp->max_inline);
		return;
	}
	wqe->flags |= IBV_SEND_INLINE;
	if (length)
		memcpy((unsigned char *)wqe + RNIC_SEND_WQE_BYTES + wqe->inline_len, from, length);
	wqe->inline_len += (uint32_t)length;
}

static void build_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			       const void *value)
{
	build_rdma(ex, POST_WR_ATOMIC_WRITE, rkey, remote_addr, 0);
	build_append(build_qp(ex), value, sizeof(uint64_t));
}

/* type and level are those of enum ib_placement_type and enum ib_selectivity_level. */
static void build_flush(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, size_t length,
			uint8_t type, uint8_t level)
{
	struct rnic_send_wqe *wqe;

	build_rdma(ex, POST_WR_FLUSH, rkey, remote_addr, 0);
	wqe = build_qp(ex)->build_wqe;
	if (!wqe)
		return;
	wqe->compare_add = (uint64_t)(type & 0xf) | (uint64_t)(level & 0xf) << 4;
	wqe->swap = length;
}

static void build_set_inline(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	build_append(build_qp(ex), addr, length);
}

static void build_set_inline_list(struct ibv_qp_ex *ex, size_t count,
				  const struct ibv_data_buf *list)
{
	for (size_t i = 0; i < count; i++)
		build_append(build_qp(ex), list[i].addr, list[i].length);
}

static void build_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct rnic_qp *qp = build_qp(ex);

	if (!qp->build_wqe)
		return;
	if (count > qp->sq.max_sge) {
		build_refuse(qp, EINVAL, "%zu scatter/gather entries; the QP has room for %u", count,
			     qp->sq.max_sge);
		return;
	}
	qp->build_wqe->num_sge = (uint16_t)count;
	if (count)
		memcpy(post_wqe_sges(qp->build_wqe), list, count * sizeof(*list));
}

static void build_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	const struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	build_set_sge_list(ex, 1, &sge);
}

static void build_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
			  const struct ibv_mw_bind_info *info)
{
	struct rnic_send_wqe *wqe = build_begin(ex, IBV_WR_BIND_MW);
	struct rnic_qp *qp = build_qp(ex);
	char why[RNIC_POST_REFUSAL_TEXT];
	int error;

	if (!wqe)
		return;
	error = post_bind_check(mw, rkey, info, IBV_MW_TYPE_2);
	if (error) {
		cause_of_bind(mw, rkey, info, why);
		build_refuse(qp, error, "%s", why);
		return;
	}
	post_wqe_bind(wqe, rkey, info);
	qp->build_wqe = NULL; /* no setter follows */
}

/* No QP of this device has the operation: the application cannot have asked for it. */
static void build_send_tso(struct ibv_qp_ex *ex, void *header, uint16_t bytes, uint16_t mss)
{
	struct rnic_qp *qp = build_qp(ex);

	(void)header, (void)bytes, (void)mss;
	build_finish(qp);
	if (!qp->build_error)
		qp->build_error = EOPNOTSUPP;
	build_blame(qp, ex->wr_id, IBV_WR_TSO);
}

static void build_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t number)
{
	if (build_qp(ex)->build_wqe)
		build_qp(ex)->build_wqe->extra = number;
}

void build_qp_init(struct rnic_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->has_builder = true;
	ex->wr_atomic_cmp_swp = build_cmp_swp;
	ex->wr_atomic_fetch_add = build_fetch_add;
	ex->wr_bind_mw = build_bind_mw;
	ex->wr_local_inv = build_local_inv;
	ex->wr_rdma_read = build_rdma_read;
	ex->wr_rdma_write = build_rdma_write;
	ex->wr_rdma_write_imm = build_rdma_write_imm;
	ex->wr_send = build_send;
	ex->wr_send_imm = build_send_imm;
	ex->wr_send_inv = build_send_inv;
	ex->wr_send_tso = build_send_tso;
	ex->wr_set_ud_addr = build_set_ud_addr;
	ex->wr_set_xrc_srqn = build_set_xrc_srqn;
	ex->wr_set_inline_data = build_set_inline;
	ex->wr_set_inline_data_list = build_set_inline_list;
	ex->wr_set_sge = build_set_sge;
	ex->wr_set_sge_list = build_set_sge_list;
	ex->wr_start = build_start;
	ex->wr_complete = build_complete;
	ex->wr_abort = build_abort;
	qp->later.wr_atomic_write = build_atomic_write;
	qp->later.wr_flush = build_flush;
}
