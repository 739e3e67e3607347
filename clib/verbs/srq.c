/* SPDX-License-Identifier: Apache-2.0 */
/* Shared receive queues. */
#include <stdlib.h>
#include <sys/mman.h>

#include "ctl.h"
#include "ctx.h"
#include "domain.h"
#include "queue.h"

/* Reports whether the NIC describes a ring that lies in its memory. */
static bool srq_fits(const struct rnic_create_srq_rsp *rsp)
{
	return rsp->entries && (rsp->entries & (rsp->entries - 1)) == 0 &&
	       (uint64_t)rsp->offset + (uint64_t)rsp->entries * rsp->stride <= rsp->bytes;
}

/* Sets up what a queue has that matches tags. */
static int srq_map_ops(struct rnic_srq *srq, const struct rnic_create_srq_rsp *rsp)
{
	const uint64_t end = (uint64_t)rsp->tag_offset + (uint64_t)rsp->tag_ops * rsp->tag_stride;

	if (!rsp->tag_ops)
		return 0;
	if ((rsp->tag_ops & (rsp->tag_ops - 1)) != 0 || end > rsp->bytes) {
		munmap(srq->map, srq->map_bytes);
		return EIO;
	}
	srq->ops.entries = rsp->tag_ops;
	srq->ops.stride = rsp->tag_stride;
	srq->ops.max_sge = rsp->max_tag_sge;
	srq->doorbell_slot = rsp->doorbell;
	srq->max_tags = rsp->max_tags;
	queue_ring_init(&srq->ops, srq->map + rsp->tag_offset,
			queue_word(srq->map, RNIC_OFF_SQ_PRODUCER),
			queue_word(srq->map, RNIC_OFF_SQ_CONSUMER));
	return 0;
}

static int srq_map(struct rnic_srq *srq, int fd, const struct rnic_create_srq_rsp *rsp)
{
	if (!srq_fits(rsp) || rsp->bytes < RNIC_QUEUE_HEADER_BYTES) {
		close(fd);
		return EIO;
	}
	srq->map_bytes = rsp->bytes;
	srq->map = ctx_map_fd(fd, srq->map_bytes, PROT_READ | PROT_WRITE);
	if (!srq->map)
		return errno;
	srq->rq.entries = rsp->entries;
	srq->rq.stride = rsp->stride;
	srq->rq.max_sge = rsp->max_sge;
	queue_ring_init(&srq->rq, srq->map + rsp->offset,
			queue_word(srq->map, RNIC_OFF_RQ_PRODUCER),
			queue_word(srq->map, RNIC_OFF_RQ_CONSUMER));
	return srq_map_ops(srq, rsp);
}

static int srq_request(struct rnic_srq *srq, const struct ibv_srq_init_attr_ex *init)
{
	struct rnic_context *ctx = ctx_of(srq->base.context);
	const bool is_xrc = init->srq_type == IBV_SRQT_XRC;
	const bool is_tm = init->srq_type == IBV_SRQT_TM;
	struct rnic_create_srq_req req = {
		.pd = srq->base.pd->handle,
		.max_wr = init->attr.max_wr,
		.max_sge = init->attr.max_sge,
		/* It need not mean anything here (ibv_create_srq(3)); what could be a limit is one. */
		.limit = init->attr.srq_limit > init->attr.max_wr ? 0 : init->attr.srq_limit,
		.type = init->srq_type,
		.xrcd = is_xrc ? xrcd_of(init->xrcd)->handle : 0,
		.cq = is_xrc || is_tm ? init->cq->handle : 0,
		.max_tags = is_tm ? init->tm_cap.max_num_tags : 0,
		.max_tag_ops = is_tm ? init->tm_cap.max_ops : 0,
	};
	struct rnic_create_srq_rsp rsp;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_CREATE_SRQ,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	error = ctl_conn_query(&ctx->ctl, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	error = srq_map(srq, fd, &rsp);
	if (error) {
		struct rnic_handle_msg destroy = {.handle = rsp.handle};

		ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_SRQ, &destroy, sizeof(destroy));
		return error;
	}
	srq->base.handle = rsp.handle;
	srq->number = rsp.srqn;
	return 0;
}

static struct ibv_srq *srq_create(struct ibv_srq_init_attr_ex *init)
{
	struct rnic_srq *srq = calloc(1, sizeof(*srq));
	int error;

	if (!srq)
		return NULL;
	srq->base.context = init->pd->context;
	srq->base.srq_context = init->srq_context;
	srq->base.pd = init->pd;
	pthread_mutex_init(&srq->base.mutex, NULL);
	pthread_cond_init(&srq->base.cond, NULL);
	error = srq_request(srq, init);
	if (error) {
		free(srq);
		errno = error;
		return NULL;
	}
	init->attr.max_wr = srq->rq.entries;
	init->attr.max_sge = srq->rq.max_sge;
	if (init->srq_type == IBV_SRQT_TM) {
		init->tm_cap.max_num_tags = srq->max_tags;
		init->tm_cap.max_ops = srq->ops.entries;
	}
	if (init->srq_type != IBV_SRQT_BASIC) {
		srq->cq = cq_of(init->cq);
		atomic_fetch_add(&srq->cq->users, 1);
	}
	ctx_object_add(ctx_of(init->pd->context), &srq->object, CTX_SRQ, srq->base.handle);
	return &srq->base;
}

VERBS_API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = init->srq_context,
		.attr = init->attr,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_srq *srq = srq_create(&ex);

	if (srq)
		init->attr = ex.attr;
	return srq;
}

/* Reports whether all is there that a queue of the type is made of, and of this context. */
static bool srq_has_parts(const struct ibv_context *context,
			  const struct ibv_srq_init_attr_ex *init)
{
	uint32_t parts = IBV_SRQ_INIT_ATTR_PD;

	if (init->srq_type == IBV_SRQT_XRC)
		parts |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	if (init->srq_type == IBV_SRQT_TM)
		parts |= IBV_SRQ_INIT_ATTR_TM | IBV_SRQ_INIT_ATTR_CQ;
	if ((init->comp_mask & parts) != parts || !init->pd || init->pd->context != context)
		return false;
	if ((parts & IBV_SRQ_INIT_ATTR_XRCD) &&
	    (!init->xrcd || init->xrcd->context != context))
		return false;
	return !(parts & IBV_SRQ_INIT_ATTR_CQ) || (init->cq && init->cq->context == context);
}

/* The header's wrapper handles the basic form itself, unless a program bypasses it. */
struct ibv_srq *srq_create_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_RESERVED - 1;
	struct ibv_srq_init_attr_ex init = *attr;
	struct ibv_srq *srq;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE))
		init.srq_type = IBV_SRQT_BASIC;
	if ((attr->comp_mask & ~known) || (unsigned int)init.srq_type > IBV_SRQT_TM) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!srq_has_parts(context, &init)) {
		errno = EINVAL;
		return NULL;
	}
	srq = srq_create(&init);
	if (srq) {
		attr->attr = init.attr;
		if (init.srq_type == IBV_SRQT_TM)
			attr->tm_cap = init.tm_cap;
	}
	return srq;
}

int srq_number(struct ibv_srq *ibsrq, uint32_t *number)
{
	*number = srq_of(ibsrq)->number;
	return 0;
}

/* Moves the receives that are posted into another ring; the ring's lock is held. */
static int srq_resize(struct rnic_srq *srq, const struct ibv_srq_attr *attr)
{
	const struct rnic_resize_srq_req req = {
		.handle = srq->base.handle,
		.entries = attr->max_wr,
		.max_sge = attr->max_sge,
	};
	struct rnic_create_srq_rsp rsp;
	void *slots;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_RESIZE_SRQ,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	error = ctl_conn_query(&ctx_of(srq->base.context)->ctl, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	slots = NULL;
	if (srq_fits(&rsp))
		slots = ctx_map_fd(fd, rsp.bytes, PROT_READ | PROT_WRITE);
	else
		close(fd);
	if (!slots) {
		error = srq_fits(&rsp) ? errno : EIO;
		srq->rq.entries = 0; /* the NIC reads where we cannot write: there is no room any more */
		return error;
	}
	if (srq->slots_bytes)
		munmap(srq->rq.slots, srq->slots_bytes);
	srq->rq.slots = slots;
	srq->slots_bytes = rsp.bytes;
	srq->rq.entries = rsp.entries;
	srq->rq.stride = rsp.stride;
	srq->rq.max_sge = rsp.max_sge;
	return 0;
}

VERBS_API int ibv_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct rnic_srq *srq = srq_of(ibsrq);
	const struct rnic_srq_attr req = {
		.handle = ibsrq->handle,
		.mask = (uint32_t)mask & ~(uint32_t)IBV_SRQ_MAX_WR,
		.max_wr = attr->max_wr,
		.max_sge = attr->max_sge,
		.limit = attr->srq_limit,
	};
	int error = 0;

	if (mask & IBV_SRQ_MAX_WR) {
		pthread_mutex_lock(&srq->rq.lock);
		error = srq_resize(srq, attr);
		pthread_mutex_unlock(&srq->rq.lock);
	}
	if (!error && req.mask)
		error = ctl_conn_ask(&ctx_of(ibsrq->context)->ctl, RNIC_OP_MODIFY_SRQ, &req,
				     sizeof(req));
	return error ? rnic_fail(error) : 0;
}

VERBS_API int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct rnic_handle_msg req = {.handle = srq->handle};
	struct ctl_call call = {.op = RNIC_OP_QUERY_SRQ, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_srq_attr rsp;
	int error = ctl_conn_query(&ctx_of(srq->context)->ctl, &call, &rsp, sizeof(rsp));

	if (error)
		return rnic_fail(error);
	attr->max_wr = rsp.max_wr;
	attr->max_sge = rsp.max_sge;
	attr->srq_limit = rsp.limit;
	return 0;
}

VERBS_API int ibv_destroy_srq(struct ibv_srq *ibsrq)
{
	struct rnic_context *ctx = ctx_of(ibsrq->context);
	struct rnic_srq *srq = srq_of(ibsrq);
	struct rnic_handle_msg req = {.handle = ibsrq->handle};
	int error = ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_SRQ, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(&ctx->ctl))
		return rnic_fail(error);
	if (srq->cq)
		atomic_fetch_sub(&srq->cq->users, 1);
	ctx_object_remove(ctx, &srq->object);
	event_drain(ctx, &srq->object,
		    &(struct event_acks){
			    .call = "ibv_destroy_srq",
			    .mutex = &ibsrq->mutex,
			    .cond = &ibsrq->cond,
			    .async = &ibsrq->events_completed,
		    });
	if (srq->slots_bytes)
		munmap(srq->rq.slots, srq->slots_bytes);
	munmap(srq->map, srq->map_bytes);
	pthread_mutex_destroy(&srq->rq.lock);
	if (srq->ops.entries)
		pthread_mutex_destroy(&srq->ops.lock);
	free(srq);
	return 0;
}
