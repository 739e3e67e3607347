/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: a memfd of the NIC that the application maps as well. It is reached by the
 * functions of the buffer, as that of adapters, which can be written by whole words only.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctl.h"
#include "ctx.h"
#include "mr.h"

#define DM_WORD 4u

static bool dm_has(const struct rnic_dm *dm, uint64_t offset, size_t length)
{
	return offset % DM_WORD == 0 && length % DM_WORD == 0 && offset <= dm->length &&
	       length <= dm->length - offset;
}

static int dm_copy_in(struct ibv_dm *ibdm, uint64_t offset, const void *from, size_t length)
{
	struct rnic_dm *dm = dm_of(ibdm);

	if (!dm_has(dm, offset, length))
		return rnic_fail(EINVAL);
	if (length)
		memcpy(dm->map + offset, from, length);
	return 0;
}

static int dm_copy_out(void *to, struct ibv_dm *ibdm, uint64_t offset, size_t length)
{
	struct rnic_dm *dm = dm_of(ibdm);

	if (!dm_has(dm, offset, length))
		return rnic_fail(EINVAL);
	if (length)
		memcpy(to, dm->map + offset, length);
	return 0;
}

static struct ctl_conn *dm_conn(struct rnic_dm *dm)
{
	return dm->own ? dm->own : &ctx_of(dm->base.context)->ctl;
}

static void dm_disconnect(struct rnic_dm *dm)
{
	if (!dm->own)
		return;
	ctl_conn_close(dm->own);
	free(dm->own);
	dm->own = NULL;
}

/*
 * Device memory needs no other object, so a child of fork can have some although the contexts that
 * it has inherited are dead.
 */
static int dm_connect(struct rnic_dm *dm)
{
	struct rnic_context *ctx = ctx_of(dm->base.context);
	int error;

	dm->owner = getpid();
	if (!ctx->inherited)
		return 0;
	dm->own = calloc(1, sizeof(*dm->own));
	if (!dm->own)
		return ENOMEM;
	error = ctx_conn_open_own(ctx, dm->own);
	if (error) {
		free(dm->own);
		dm->own = NULL;
	}
	return error;
}

static int dm_request(struct rnic_dm *dm, const struct rnic_alloc_dm_req *req)
{
	struct rnic_alloc_dm_rsp rsp;
	int fd;
	struct ctl_call call = {
		.op = RNIC_OP_ALLOC_DM,
		.req = req,
		.req_bytes = sizeof(*req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};
	struct ctl_conn *conn = dm_conn(dm);
	struct rnic_handle_msg end;
	int error = ctl_conn_query(conn, &call, &rsp, sizeof(rsp));

	if (error)
		return error;
	dm->base.handle = rsp.handle;
	dm->map_bytes = rsp.length;
	if (rsp.length >= req->length) {
		dm->map = ctx_map_fd(fd, rsp.length, PROT_READ | PROT_WRITE);
		error = dm->map ? 0 : errno;
	} else { /* no reply of a NIC of ours */
		close(fd);
		error = EIO;
	}
	if (error) {
		end = (struct rnic_handle_msg){.handle = rsp.handle};
		ctl_conn_ask(conn, RNIC_OP_FREE_DM, &end, sizeof(end));
	}
	return error;
}

void dm_fill(struct rnic_dm *dm, struct ibv_context *context, size_t length)
{
	dm->base.context = context;
	dm->base.memcpy_to_dm = dm_copy_in;
	dm->base.memcpy_from_dm = dm_copy_out;
	dm->base.comp_mask = IBV_DM_MASK_HANDLE;
	dm->length = length;
}

struct ibv_dm *dm_alloc(struct ibv_context *context, struct ibv_alloc_dm_attr *attr)
{
	struct rnic_dm *dm = calloc(1, sizeof(*dm));
	struct rnic_alloc_dm_req req = {.length = attr->length, .align_log = attr->log_align_req};
	int error = EINVAL;

	if (!dm)
		return NULL;
	dm_fill(dm, context, attr->length);
	if (attr->comp_mask == 0)
		error = dm_connect(dm);
	if (!error)
		error = dm_request(dm, &req);
	if (error) {
		dm_disconnect(dm);
		free(dm);
		errno = error;
		return NULL;
	}
	return &dm->base;
}

int dm_free(struct ibv_dm *ibdm)
{
	struct rnic_dm *dm = dm_of(ibdm);
	struct ctl_conn *conn = dm_conn(dm);
	struct rnic_handle_msg req = {.handle = ibdm->handle};
	int error = 0;

	if (dm->owner == getpid()) /* else it is the parent's */
		error = ctl_conn_ask(conn, RNIC_OP_FREE_DM, &req, sizeof(req));
	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	dm_disconnect(dm);
	munmap(dm->map, dm->map_bytes);
	free(dm);
	return 0;
}

struct ibv_mr *dm_register(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
			   unsigned int access)
{
	struct rnic_reg_device_mr_req req = {
		.pd = pd->handle,
		.dm = dm->handle,
		.offset = offset,
		.length = length,
		.access = access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE,
	};
	struct ctl_call call = {
		.op = RNIC_OP_REG_DEVICE_MR,
		.req = &req,
		.req_bytes = sizeof(req),
	};
	struct ibv_mr *mr;

	if (dm->context != pd->context) {
		errno = EINVAL;
		return NULL;
	}
	mr = mr_make(pd, MR_DEVICE, &call);
	if (mr)
		mr->length = length; /* its addresses count from 0 */
	return mr;
}
