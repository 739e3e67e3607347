/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs. */
#include <stdlib.h>
#include <sys/mman.h>

#include "attr.h"
#include "cq.h"
#include "ctl.h"
#include "ctx.h"
#include "direct.h"
#include "domain.h"
#include "log.h"
#include "post.h"
#include "queue.h"

static bool qp_ring_fits(uint32_t bytes, uint32_t offset, uint32_t entries, uint32_t stride)
{
	return (entries & (entries - 1)) == 0 &&
	       (uint64_t)offset + (uint64_t)entries * stride <= bytes;
}

/* Maps the queue pair's memory and places the rings in it. */
static int qp_map(struct rnic_qp *qp, int fd, const struct rnic_create_qp_rsp *rsp)
{
	if (!qp_ring_fits(rsp->bytes, rsp->sq_offset, rsp->sq_entries, rsp->sq_stride) ||
	    !qp_ring_fits(rsp->bytes, rsp->rq_offset, rsp->rq_entries, rsp->rq_stride) ||
	    rsp->bytes < RNIC_QUEUE_HEADER_BYTES || rsp->doorbell >= RNIC_DOORBELL_SLOTS) {
		close(fd);
		return EIO;
	}
	qp->map_bytes = rsp->bytes;
	qp->map = ctx_map_fd(fd, qp->map_bytes, PROT_READ | PROT_WRITE);
	if (!qp->map)
		return errno;
	qp->sq.entries = rsp->sq_entries;
	qp->sq.stride = rsp->sq_stride;
	qp->sq.max_sge = rsp->max_send_sge;
	qp->sq.qpn = rsp->qpn;
	queue_ring_init_polled(&qp->sq, qp->map + rsp->sq_offset,
			       queue_word(qp->map, RNIC_OFF_SQ_PRODUCER),
			       queue_word(qp->map, RNIC_OFF_SQ_CONSUMER));
	qp->rq.entries = rsp->rq_entries;
	qp->rq.stride = rsp->rq_stride;
	qp->rq.max_sge = rsp->max_recv_sge;
	qp->rq.qpn = rsp->qpn;
	qp->rq.receives = true;
	queue_ring_init_polled(&qp->rq, qp->map + rsp->rq_offset,
			       queue_word(qp->map, RNIC_OFF_RQ_PRODUCER),
			       queue_word(qp->map, RNIC_OFF_RQ_CONSUMER));
	qp->doorbell_slot = rsp->doorbell;
	qp->max_inline = rsp->max_inline;
	return 0;
}

static int qp_request(struct rnic_qp *qp, const struct rnic_create_qp_req *req)
{
	struct rnic_context *ctx = ctx_of(qp->base.context);
	struct rnic_create_qp_rsp rsp;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_CREATE_QP,
		.req = req,
		.req_bytes = sizeof(*req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	error = ctl_conn_query(&ctx->ctl, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	error = qp_map(qp, fd, &rsp);
	if (error) {
		struct rnic_handle_msg destroy = {.handle = rsp.handle};

		ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_QP, &destroy, sizeof(destroy));
		return error;
	}
	qp->base.handle = rsp.handle;
	qp->base.qp_num = rsp.qpn;
	return 0;
}

static void qp_set_base(struct rnic_qp *qp, struct ibv_context *context,
			const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *base = &qp->base;

	base->context = context;
	base->qp_context = attr->qp_context;
	base->pd = attr->pd;
	base->send_cq = attr->send_cq;
	base->recv_cq = attr->recv_cq;
	base->srq = attr->srq;
	base->state = IBV_QPS_RESET;
	base->qp_type = attr->qp_type;
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
}

/* Lets polls of the CQs give slots back. */
static void qp_join(struct rnic_qp *qp)
{
	if (qp->base.send_cq && qp->sq.entries)
		cq_join(cq_of(qp->base.send_cq), &qp->sq);
	if (qp->base.recv_cq && qp->rq.entries)
		cq_join(cq_of(qp->base.recv_cq), &qp->rq);
}

static void qp_leave(struct rnic_qp *qp)
{
	if (qp->base.send_cq)
		cq_leave(cq_of(qp->base.send_cq), &qp->sq);
	if (qp->base.recv_cq)
		cq_leave(cq_of(qp->base.recv_cq), &qp->rq);
}

/* Counts the QP's ends at its CQs, so that a CQ cannot go before them, not even without a NIC. */
static void qp_count_users(struct rnic_qp *qp, int change)
{
	if (qp->base.recv_cq)
		atomic_fetch_add(&cq_of(qp->base.recv_cq)->users, (unsigned int)change);
	if (qp->base.send_cq)
		atomic_fetch_add(&cq_of(qp->base.send_cq)->users, (unsigned int)change);
}

static struct ibv_qp *qp_create(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct rnic_qp *qp = calloc(1, sizeof(*qp));
	struct rnic_create_qp_req req = {
		.type = attr->qp_type,
		.pd = attr->pd ? attr->pd->handle : 0,
		.xrcd = attr->xrcd ? xrcd_of(attr->xrcd)->handle : 0,
		.send_cq = attr->send_cq ? attr->send_cq->handle : 0,
		.recv_cq = attr->recv_cq ? attr->recv_cq->handle : 0,
		.srq = attr->srq ? attr->srq->handle : 0,
		.max_send_wr = attr->cap.max_send_wr,
		.max_recv_wr = attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge,
		.max_recv_sge = attr->cap.max_recv_sge,
		.max_inline = attr->cap.max_inline_data,
		.signal_all = attr->sq_sig_all != 0,
	};
	int error;

	if (!qp)
		return NULL;
	qp_set_base(qp, context, attr);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		req.send_ops_flags = (uint32_t)attr->send_ops_flags;
		build_qp_init(qp);
	}
	error = qp_request(qp, &req);
	if (error) {
		free(qp);
		errno = error;
		return NULL;
	}
	attr->cap.max_send_wr = qp->sq.entries;
	attr->cap.max_recv_wr = qp->rq.entries;
	attr->cap.max_send_sge = qp->sq.max_sge;
	attr->cap.max_recv_sge = qp->rq.max_sge;
	attr->cap.max_inline_data = qp->max_inline;
	/* struct ibv_qp_init_attr is the beginning of its extended form. */
	memcpy(&qp->init, attr, sizeof(qp->init));
	qp_count_users(qp, 1);
	qp_join(qp);
	ctx_object_add(ctx_of(context), &qp->object, CTX_QP, qp->base.handle);
	return &qp->base;
}

/* Takes out what a QP of the type does not have; verbs ignore it. */
static void qp_take_parts(struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type == IBV_QPT_XRC_RECV) {
		attr->pd = NULL;
		attr->send_cq = NULL;
	} else {
		attr->xrcd = NULL;
	}
	if (attr->qp_type == IBV_QPT_XRC_RECV || attr->qp_type == IBV_QPT_XRC_SEND) {
		attr->recv_cq = NULL;
		attr->srq = NULL;
	}
}

VERBS_API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex;
	struct ibv_qp *qp;

	memset(&ex, 0, sizeof(ex));
	memcpy(&ex, attr, sizeof(*attr));
	ex.pd = pd;
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	if (attr->qp_type == IBV_QPT_XRC_RECV) { /* its domain has no place here */
		errno = EINVAL;
		return NULL;
	}
	qp_take_parts(&ex);
	qp = qp_create(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

/* The bits of the operations are the work request opcodes, but for two that came later. */
static unsigned int qp_opcode_of(unsigned int bit)
{
	enum { FLUSH_BIT = 11, ATOMIC_WRITE_BIT = 12 };

	if (bit == FLUSH_BIT)
		return POST_WR_FLUSH;
	if (bit == ATOMIC_WRITE_BIT)
		return POST_WR_ATOMIC_WRITE;
	return bit < FLUSH_BIT ? bit : POST_WR_NONE;
}

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_XRCD;
	const bool is_target = attr->qp_type == IBV_QPT_XRC_RECV;
	struct ibv_qp_init_attr_ex parts = *attr;
	struct ibv_qp *qp;

	if (!(attr->comp_mask & (is_target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD)) ||
	    (is_target ? attr->xrcd->context : attr->pd->context) != context) {
		errno = EINVAL;
		return NULL;
	}
	if ((attr->comp_mask & ~known) ||
	    ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		for (unsigned int i = 0; i < 64; i++) {
			if ((attr->send_ops_flags >> i & 1) &&
			    !post_opcode_is_allowed(attr->qp_type, qp_opcode_of(i))) {
				errno = EOPNOTSUPP;
				return NULL;
			}
		}
	}
	qp_take_parts(&parts);
	qp = qp_create(context, &parts);
	if (qp)
		attr->cap = parts.cap;
	return qp;
}

/* Takes a further handle of a receiving XRC QP, which another process may have made. */
struct ibv_qp *qp_open(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
				IBV_QP_OPEN_ATTR_TYPE;
	struct rnic_open_qp_req req = {.qpn = attr->qp_num, .type = attr->qp_type};
	struct ctl_call call = {.op = RNIC_OP_OPEN_QP, .req = &req, .req_bytes = sizeof(req)};
	struct ibv_qp_init_attr_ex init = {.qp_type = attr->qp_type};
	struct rnic_handle_msg rsp;
	struct rnic_qp *qp;
	int error = 0;

	if (attr->comp_mask & ~(needed | IBV_QP_OPEN_ATTR_CONTEXT))
		error = EOPNOTSUPP;
	else if ((attr->comp_mask & needed) != needed || attr->xrcd->context != context)
		error = EINVAL;
	qp = error ? NULL : calloc(1, sizeof(*qp));
	if (qp) {
		req.xrcd = xrcd_of(attr->xrcd)->handle;
		error = ctl_conn_query(&ctx_of(context)->ctl, &call, &rsp, sizeof(rsp));
	}
	if (error || !qp) {
		free(qp);
		errno = error ? error : ENOMEM;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		init.qp_context = attr->qp_context;
	qp_set_base(qp, context, &init);
	memcpy(&qp->init, &init, sizeof(qp->init));
	pthread_mutex_init(&qp->sq.lock, NULL);
	pthread_mutex_init(&qp->rq.lock, NULL);
	qp->is_shared = true;
	qp->base.handle = rsp.handle;
	qp->base.qp_num = attr->qp_num;
	ctx_object_add(ctx_of(context), &qp->object, CTX_QP, qp->base.handle);
	return &qp->base;
}

VERBS_API struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return qp_of(qp)->has_builder ? &qp_of(qp)->ex : NULL;
}

static void qp_cancel(struct rnic_qp *qp)
{
	if (qp->base.recv_cq)
		cq_cancel(cq_of(qp->base.recv_cq), qp->base.qp_num);
	if (qp->base.send_cq && qp->base.send_cq != qp->base.recv_cq)
		cq_cancel(cq_of(qp->base.send_cq), qp->base.qp_num);
}

/*
 * A program that connects by itself cannot know: it was written for another transport, and says no
 * more than that the call has failed.
 */
static void qp_say_refusal(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct ibv_device *device = qp->context->device;

	if (device->transport_type != IBV_TRANSPORT_IWARP || !(mask & IBV_QP_STATE) ||
	    (attr->qp_state != IBV_QPS_RTR && attr->qp_state != IBV_QPS_RTS))
		return;
	if (!rnic_log_is_wanted()) /* else the NIC's words are there already */
		rnic_warn("%s: iWARP connections are made by rdma_cm alone (perftest: -R); "
			  "or choose a device of RoCE",
			  device->name);
}

VERBS_API int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct rnic_qp *qp = qp_of(ibqp);
	struct rnic_modify_qp_req req = {.handle = ibqp->handle, .mask = (uint32_t)mask};
	struct ctl_call call = {.op = RNIC_OP_MODIFY_QP, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_query_qp_rsp rsp;
	int error;

	attr_qp_to_abi(&req.attr, attr);
	error = ctl_conn_query(&ctx_of(ibqp->context)->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		qp_say_refusal(ibqp, attr, mask);
		return rnic_fail(error);
	}
	ibqp->state = (enum ibv_qp_state)rsp.attr.state;
	/* The NIC writes nothing more for this QP, so what is left can be cancelled. */
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET) {
		qp_cancel(qp);
		direct_forget(qp);
	}
	return 0;
}

VERBS_API int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
			   struct ibv_qp_init_attr *init)
{
	struct rnic_handle_msg req = {.handle = ibqp->handle};
	struct ctl_call call = {.op = RNIC_OP_QUERY_QP, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_query_qp_rsp rsp;
	int error = ctl_conn_query(&ctx_of(ibqp->context)->ctl, &call, &rsp, sizeof(rsp));

	(void)mask; /* a hint; everything is as cheap as one */
	if (error)
		return rnic_fail(error);
	attr_qp_from_abi(attr, &rsp.attr);
	attr->cap = qp_of(ibqp)->init.cap;
	*init = qp_of(ibqp)->init;
	ibqp->state = attr->qp_state;
	return 0;
}

VERBS_API int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct rnic_context *ctx = ctx_of(ibqp->context);
	struct rnic_qp *qp = qp_of(ibqp);
	struct rnic_handle_msg req = {.handle = ibqp->handle};
	int error = ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_QP, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(&ctx->ctl))
		return rnic_fail(error);
	qp_cancel(qp);
	direct_forget(qp);
	qp_leave(qp);
	qp_count_users(qp, -1);
	ctx_object_remove(ctx, &qp->object);
	event_drain(ctx, &qp->object,
		    &(struct event_acks){
			    .call = "ibv_destroy_qp",
			    .mutex = &ibqp->mutex,
			    .cond = &ibqp->cond,
			    .async = &ibqp->events_completed,
		    });
	if (!qp->is_shared)
		munmap(qp->map, qp->map_bytes);
	pthread_mutex_destroy(&qp->sq.lock);
	pthread_mutex_destroy(&qp->rq.lock);
	free(qp);
	return 0;
}
