/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queues, completion channels and their events. */
#include "cq.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "ctl.h"
#include "ctx.h"
#include "direct.h"
#include "domain.h"
#include "queue.h"

static struct rnic_channel *channel_of(struct ibv_comp_channel *channel)
{
	return (struct rnic_channel *)channel;
}

VERBS_API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct rnic_context *ctx = ctx_of(context);
	struct rnic_channel *channel = calloc(1, sizeof(*channel));
	struct rnic_handle_msg rsp;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_CREATE_COMP_CHANNEL,
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	if (!channel)
		return NULL;
	error = ctl_conn_query(&ctx->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(channel);
		errno = error;
		return NULL;
	}
	channel->base.context = context;
	channel->base.fd = fd;
	channel->handle = rsp.handle;
	pthread_mutex_lock(&ctx->objects_lock);
	channel->next = ctx->channels;
	ctx->channels = channel;
	pthread_mutex_unlock(&ctx->objects_lock);
	return &channel->base;
}

VERBS_API int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct rnic_context *ctx = ctx_of(channel->context);
	struct rnic_handle_msg req = {.handle = channel_of(channel)->handle};
	struct rnic_channel **at;
	bool busy;
	int error;

	pthread_mutex_lock(&channel->context->mutex);
	busy = channel->refcnt > 0;
	pthread_mutex_unlock(&channel->context->mutex);
	if (busy)
		return rnic_fail(EBUSY);
	error = ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_COMP_CHANNEL, &req, sizeof(req));
	if (error && !ctl_conn_known_dead(&ctx->ctl))
		return rnic_fail(error);
	pthread_mutex_lock(&ctx->objects_lock);
	for (at = &ctx->channels; *at != channel_of(channel); at = &(*at)->next)
		;
	*at = (*at)->next;
	pthread_mutex_unlock(&ctx->objects_lock);
	if (channel->fd >= 0)
		close(channel->fd);
	free(channel);
	return 0;
}

static void channel_count(struct ibv_comp_channel *channel, int change)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += change;
	pthread_mutex_unlock(&channel->context->mutex);
}

/* Asks the NIC for a queue and maps it. */
static int cq_request(struct rnic_context *ctx, struct rnic_cq *cq,
		      const struct rnic_create_cq_req *req)
{
	struct rnic_create_cq_rsp rsp;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_CREATE_CQ,
		.req = req,
		.req_bytes = sizeof(*req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	error = ctl_conn_query(&ctx->ctl, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	cq->ex.handle = rsp.handle;
	cq->ex.cqe = (int)rsp.entries;
	cq->mask = rsp.entries - 1;
	cq->map_bytes = RNIC_QUEUE_HEADER_BYTES + (size_t)rsp.entries * RNIC_CQE_BYTES;
	cq->map = ctx_map_fd(fd, cq->map_bytes, PROT_READ | PROT_WRITE);
	if (!cq->map) {
		struct rnic_handle_msg destroy = {.handle = rsp.handle};

		error = errno;
		ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_CQ, &destroy, sizeof(destroy));
		return error;
	}
	cq->slots = cq->map + RNIC_QUEUE_HEADER_BYTES;
	return 0;
}

static struct rnic_cq *cq_create(struct ibv_context *context,
				 const struct ibv_cq_init_attr_ex *attr)
{
	struct rnic_context *ctx = ctx_of(context);
	struct rnic_cq *cq = calloc(1, sizeof(*cq));
	struct rnic_create_cq_req req = {
		.entries = attr->cqe,
		.channel = attr->channel ? channel_of(attr->channel)->handle : 0,
		.comp_vector = attr->comp_vector,
		.flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0,
	};
	int error;

	if (!cq)
		return NULL;
	cq->ex.context = context;
	cq->ex.channel = attr->channel;
	cq->ex.cq_context = attr->cq_context;
	cq->unlocked = req.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq->stamped = attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	pthread_mutex_init(&cq->lock, NULL);
	pthread_mutex_init(&cq->direct.lock, NULL);
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	error = cq_request(ctx, cq, &req);
	if (error) {
		free(cq);
		errno = error;
		return NULL;
	}
	cq_poll_init(cq, attr->wc_flags);
	channel_count(attr->channel, 1);
	ctx_object_add(ctx, &cq->object, CTX_CQ, cq->ex.handle);
	return cq;
}

VERBS_API struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				       struct ibv_comp_channel *channel, int comp_vector)
{
	const struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)cqe,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)comp_vector,
	};

	if (cqe < 1 || comp_vector < 0 || comp_vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	return (struct ibv_cq *)cq_create(context, &attr);
}

struct ibv_cq_ex *cq_create_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t fields = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
				IBV_WC_EX_WITH_TM_INFO;
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
			       IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	struct rnic_pd *parent = NULL;
	struct rnic_cq *cq;

	if ((attr->wc_flags & ~fields) || (attr->comp_mask & ~known) ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~flags))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		parent = pd_of(attr->parent_domain);
	if (attr->cqe < 1 || attr->comp_vector >= (uint32_t)context->num_comp_vectors ||
	    (parent && (!parent->protection || parent->base.context != context))) {
		errno = EINVAL;
		return NULL;
	}
	cq = cq_create(context, attr);
	if (!cq)
		return NULL;
	cq->parent = parent;
	if (parent)
		atomic_fetch_add(&parent->users, 1);
	return &cq->ex;
}

VERBS_API int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct rnic_context *ctx = ctx_of(ibcq->context);
	struct rnic_cq *cq = cq_of(ibcq);
	struct rnic_handle_msg req = {.handle = ibcq->handle};
	int error;

	if (atomic_load(&cq->users))
		return rnic_fail(EBUSY);
	error = ctl_conn_ask(&ctx->ctl, RNIC_OP_DESTROY_CQ, &req, sizeof(req));
	if (error && !ctl_conn_known_dead(&ctx->ctl))
		return rnic_fail(error);
	ctx_object_remove(ctx, &cq->object);
	event_drain(ctx, &cq->object,
		    &(struct event_acks){
			    .call = "ibv_destroy_cq",
			    .mutex = &ibcq->mutex,
			    .cond = &ibcq->cond,
			    .async = &ibcq->async_events_completed,
			    .comp = &ibcq->comp_events_completed,
		    });
	channel_count(ibcq->channel, -1);
	if (cq->parent)
		atomic_fetch_sub(&cq->parent->users, 1);
	if (cq->slots_bytes)
		munmap(cq->slots, cq->slots_bytes);
	munmap(cq->map, cq->map_bytes);
	pthread_mutex_destroy(&cq->lock);
	pthread_mutex_destroy(&cq->direct.lock);
	free(cq->direct.entries);
	free(cq);
	return 0;
}

/* The rest of ibv_resize_cq while nobody polls. */
static int cq_resize(struct rnic_cq *cq, const struct rnic_resize_cq_req *req)
{
	struct rnic_create_cq_rsp rsp;
	size_t bytes;
	void *slots;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_RESIZE_CQ,
		.req = req,
		.req_bytes = sizeof(*req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};

	error = ctl_conn_query(&ctx_of(cq->ex.context)->ctl, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	bytes = (size_t)rsp.entries * RNIC_CQE_BYTES;
	slots = ctx_map_fd(fd, bytes, PROT_READ | PROT_WRITE);
	if (!slots) {
		/* The NIC writes where we cannot read: nothing more will come out of this CQ. */
		atomic_store(queue_word(cq->map, RNIC_OFF_CQ_STATE), 1);
		return errno;
	}
	if (cq->slots_bytes)
		munmap(cq->slots, cq->slots_bytes);
	cq->slots = slots;
	cq->slots_bytes = bytes;
	cq->mask = rsp.entries - 1;
	cq->ex.cqe = (int)rsp.entries;
	return 0;
}

VERBS_API int ibv_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct rnic_cq *cq = cq_of(ibcq);
	const struct rnic_resize_cq_req req = {.handle = ibcq->handle, .entries = (uint32_t)cqe};
	int error;

	if (cqe < 1)
		return rnic_fail(EINVAL);
	cq_lock(cq);
	pthread_mutex_lock(&cq->direct.lock);
	error = direct_list_fits(cq, (uint32_t)cqe) ? cq_resize(cq, &req) : EINVAL;
	if (!error)
		direct_list_resize(cq);
	pthread_mutex_unlock(&cq->direct.lock);
	cq_unlock(cq);
	return error ? rnic_fail(error) : 0;
}

int cq_modify(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr)
{
	const struct rnic_modify_cq_req req = {
		.handle = ibcq->handle,
		.count = attr->moderate.cq_count,
		.period_microseconds = attr->moderate.cq_period,
	};
	int error;

	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return rnic_fail(EOPNOTSUPP);
	if (!attr->attr_mask)
		return 0;
	error = ctl_conn_ask(&ctx_of(ibcq->context)->ctl, RNIC_OP_MODIFY_CQ, &req, sizeof(req));
	return error ? rnic_fail(error) : 0;
}

VERBS_API int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
			       void **cq_context)
{
	struct rnic_context *ctx = ctx_of(channel->context);
	struct ctx_object *object = NULL;
	struct rnic_comp_event record;
	int got;

	do {
		got = ctx_event_read(channel->fd, &record, sizeof(record));
		/* A record of a queue that has been destroyed is skipped. */
		if (got > 0)
			object = ctx_object_take_event(ctx, CTX_CQ, record.cq, NULL);
	} while (got > 0 && !object);
	if (got < 0)
		return -1;
	if (got == 0) {
		ctl_conn_is_dead(&ctx->ctl);
		errno = EIO;
		return -1;
	}
	*cq = (struct ibv_cq *)&container(object, struct rnic_cq, object)->ex;
	*cq_context = (*cq)->cq_context;
	return 0;
}

VERBS_API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	if (!count)
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
