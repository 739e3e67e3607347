/* SPDX-License-Identifier: Apache-2.0 */
#include "ctx.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "ctl.h"
#include "device.h"
#include "direct.h"
#include "domain.h"
#include "mem.h"
#include "mr.h"

const char rnic_library[] = "libibverbs";

static pthread_mutex_t ctx_open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rnic_context *ctx_open_list;

static struct ctx_object **ctx_bucket(struct rnic_context *ctx, uint32_t handle)
{
	return &ctx->objects[handle % CTX_BUCKETS];
}

void ctx_object_add(struct rnic_context *ctx, struct ctx_object *object, enum ctx_kind kind,
		    uint32_t handle)
{
	struct ctx_object **bucket = ctx_bucket(ctx, handle);

	object->kind = kind;
	object->handle = handle;
	pthread_mutex_lock(&ctx->objects_lock);
	object->next = *bucket;
	*bucket = object;
	pthread_mutex_unlock(&ctx->objects_lock);
}

void ctx_object_remove(struct rnic_context *ctx, struct ctx_object *object)
{
	struct ctx_object **at;

	pthread_mutex_lock(&ctx->objects_lock);
	for (at = ctx_bucket(ctx, object->handle); *at != object; at = &(*at)->next)
		;
	*at = object->next;
	pthread_mutex_unlock(&ctx->objects_lock);
}

struct ctx_object *ctx_object_take_event(struct rnic_context *ctx, enum ctx_kind kind,
					 uint32_t handle, const enum ibv_event_type *type)
{
	struct ctx_object *object;

	pthread_mutex_lock(&ctx->objects_lock);
	for (object = *ctx_bucket(ctx, handle); object; object = object->next) {
		if (object->kind == kind && object->handle == handle)
			break;
	}
	if (object && !type) {
		object->comp_taken++;
	} else if (object) {
		object->async_taken++;
		object->async_last = *type;
	}
	pthread_mutex_unlock(&ctx->objects_lock);
	return object;
}

int ctx_event_read(int fd, void *record, size_t bytes)
{
	ssize_t got = read(fd, record, bytes);

	if (got == (ssize_t)bytes)
		return 1;
	return got < 0 && errno != EBADF ? -1 : 0;
}

void *ctx_map_fd(int fd, size_t bytes, int prot)
{
	void *map = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
	int error = errno;

	close(fd);
	errno = error;
	return map == MAP_FAILED ? NULL : map;
}

uint64_t ctx_clock(const struct rnic_context *ctx)
{
	const uint64_t *origin =
		(const uint64_t *)(const void *)(ctx->lane + RNIC_OFF_LANE_ORIGIN);

	return clock_monotonic() - *origin;
}

int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	const uint32_t wanted = values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK;

	/* Ticks of hca_core_clock, which may be more than a second has nanoseconds. */
	if (wanted)
		values->raw_clock = (struct timespec){.tv_nsec = (long)ctx_clock(ctx_of(context))};
	values->comp_mask = wanted;
	return 0;
}

/*
 * A child must not speak on its parent's connection, nor share registered memory with it. Its
 * contexts are dead; what it destroys, it destroys locally.
 */
static void ctx_fork_child(void)
{
	for (struct rnic_context *ctx = ctx_open_list; ctx; ctx = ctx->next_open) {
		struct ibv_context *context = &ctx->vctx.context;

		atomic_store(&ctx->ctl.dead, true);
		ctx->inherited = true;
		close(ctx->ctl.fd);
		close(ctx->kick_fd);
		close(context->async_fd);
		if (ctx->imported_fd >= 0)
			close(ctx->imported_fd);
		ctx->imported_fd = -1;
		ctx->ctl.fd = ctx->kick_fd = context->cmd_fd = context->async_fd = -1;
		for (struct rnic_channel *c = ctx->channels; c; c = c->next) {
			close(c->base.fd); /* its events are the parent's */
			c->base.fd = -1;
		}
		/* A thread that is not in the child may have held it. */
		pthread_mutex_init(&ctx->ctl.lock, NULL);
		pthread_mutex_unlock(&ctx->objects_lock);
	}
	mem_fork_child();
	pthread_mutex_unlock(&ctx_open_lock);
}

static void ctx_fork_prepare(void)
{
	pthread_mutex_lock(&ctx_open_lock);
	for (struct rnic_context *ctx = ctx_open_list; ctx; ctx = ctx->next_open)
		pthread_mutex_lock(&ctx->objects_lock);
	mem_fork_prepare();
}

static void ctx_fork_parent(void)
{
	mem_fork_parent();
	for (struct rnic_context *ctx = ctx_open_list; ctx; ctx = ctx->next_open)
		pthread_mutex_unlock(&ctx->objects_lock);
	pthread_mutex_unlock(&ctx_open_lock);
}

__attribute__((constructor)) static void ctx_library_init(void)
{
	pthread_atfork(ctx_fork_prepare, ctx_fork_parent, ctx_fork_child);
}

static void ctx_fill(struct rnic_context *ctx)
{
	struct verbs_context *vctx = &ctx->vctx;
	struct ibv_context *context = &vctx->context;

	vctx->sz = sizeof(*vctx);
	vctx->query_port = query_port_ex;
	vctx->query_device_ex = query_device_ex;
	vctx->create_cq_ex = cq_create_ex;
	vctx->modify_cq = cq_modify;
	vctx->open_qp = qp_open;
	vctx->open_xrcd = domain_xrcd_open;
	vctx->close_xrcd = domain_xrcd_close;
	vctx->alloc_parent_domain = domain_parent_alloc;
	vctx->alloc_td = domain_td_alloc;
	vctx->dealloc_td = domain_td_dealloc;
	vctx->query_rt_values = query_rt_values;
	vctx->create_qp_ex = qp_create_ex;
	vctx->create_srq_ex = srq_create_ex;
	vctx->get_srq_num = srq_number;
	vctx->post_srq_ops = srq_post_ops;
	vctx->alloc_null_mr = mr_alloc_null;
	vctx->advise_mr = mr_advise;
	vctx->alloc_dm = dm_alloc;
	vctx->free_dm = dm_free;
	vctx->reg_dm_mr = dm_register;
	context->ops.alloc_mw = mw_alloc;
	context->ops.bind_mw = mw_bind;
	context->ops.dealloc_mw = mw_free;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->device = &ctx->device->base;
	context->cmd_fd = ctx->ctl.fd;
	context->num_comp_vectors = 1;
	context->ops._compat_query_device = ibv_query_device;
	context->ops._compat_query_port = ibv_query_port;
	context->ops.poll_cq = cq_poll;
	context->ops.req_notify_cq = cq_arm;
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.post_srq_recv = post_srq_recv;
	pthread_mutex_init(&context->mutex, NULL);
	pthread_mutex_init(&ctx->objects_lock, NULL);
	pthread_mutex_init(&ctx->direct.lock, NULL);
}

/* Opens the device on the connection and maps the pages that the NIC hands over. */
static int ctx_attach(struct rnic_context *ctx, int lane_fd)
{
	struct rnic_open_device_req req;
	struct rnic_open_device_rsp rsp;
	int fds[3], error;
	struct ctl_call call = {
		.op = RNIC_OP_OPEN_DEVICE,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = fds,
		.num_fds_in = 3,
	};

	memset(&req, 0, sizeof(req));
	memcpy(req.name, ctx->device->base.name, sizeof(req.name));
	ctx->lane = ctx_map_fd(lane_fd, RNIC_LANE_PAGE_BYTES, PROT_READ);
	if (!ctx->lane)
		return errno;
	/* Where Yama restricts ptrace, this lets the NIC reach the memory that is registered. */
	prctl(PR_SET_PTRACER, ctx->ctl.nic_pid, 0, 0, 0);
	error = ctl_conn_query(&ctx->ctl, &call, &rsp, sizeof(rsp));
	if (error)
		return error;
	ctx->kick_fd = fds[1];
	ctx->vctx.context.async_fd = fds[2];
	ctx->doorbell = ctx_map_fd(fds[0], RNIC_DOORBELL_PAGE_BYTES, PROT_READ | PROT_WRITE);
	return ctx->doorbell ? 0 : errno;
}

int ctx_conn_open_own(struct rnic_context *ctx, struct ctl_conn *conn)
{
	struct rnic_open_device_req req;
	struct rnic_open_device_rsp rsp;
	int fds[3], error;
	struct ctl_call call = {
		.op = RNIC_OP_OPEN_DEVICE,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = fds,
		.num_fds_in = 3,
	};

	error = ctl_conn_open(conn, NULL);
	if (error)
		return error;
	memset(&req, 0, sizeof(req));
	memcpy(req.name, ctx->device->base.name, sizeof(req.name));
	error = ctl_conn_query(conn, &call, &rsp, sizeof(rsp));
	if (error) {
		ctl_conn_close(conn);
		return error;
	}
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	return 0;
}

static void ctx_free(struct rnic_context *ctx)
{
	if (ctx->lane)
		munmap((void *)ctx->lane, RNIC_LANE_PAGE_BYTES);
	if (ctx->doorbell)
		munmap(ctx->doorbell, RNIC_DOORBELL_PAGE_BYTES);
	if (ctx->kick_fd >= 0)
		close(ctx->kick_fd);
	if (ctx->vctx.context.async_fd >= 0)
		close(ctx->vctx.context.async_fd);
	if (ctx->imported_fd >= 0)
		close(ctx->imported_fd);
	direct_close(ctx);
	ctl_conn_close(&ctx->ctl);
	device_drop(ctx->device);
	free(ctx);
}

VERBS_API struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct rnic_context *ctx = calloc(1, sizeof(*ctx));
	int lane_fd, error;

	if (!ctx)
		return NULL;
	error = ctl_conn_open(&ctx->ctl, &lane_fd);
	if (error) {
		free(ctx);
		errno = error;
		return NULL;
	}
	ctx->device = device_of(device);
	device_hold(ctx->device);
	ctx->kick_fd = ctx->vctx.context.async_fd = ctx->imported_fd = -1;
	error = ctx_attach(ctx, lane_fd);
	if (error) {
		ctx_free(ctx);
		errno = error;
		return NULL;
	}
	ctx_fill(ctx);
	pthread_mutex_lock(&ctx_open_lock);
	ctx->next_open = ctx_open_list;
	ctx_open_list = ctx;
	pthread_mutex_unlock(&ctx_open_lock);
	return &ctx->vctx.context;
}

VERBS_API int ibv_close_device(struct ibv_context *context)
{
	struct rnic_context *ctx = ctx_of(context);
	struct rnic_context **at;

	pthread_mutex_lock(&ctx_open_lock);
	for (at = &ctx_open_list; *at && *at != ctx; at = &(*at)->next_open)
		;
	if (*at)
		*at = ctx->next_open;
	pthread_mutex_unlock(&ctx_open_lock);
	pthread_mutex_destroy(&ctx->objects_lock);
	pthread_mutex_destroy(&context->mutex);
	ctx_free(ctx);
	return 0;
}
