/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of another context, of this process or another, that are used here too. The descriptor
 * cmd_fd of that context is the proof that one may: the NIC finds the context by it.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ctl.h"
#include "ctx.h"
#include "domain.h"
#include "mr.h"

static int import_from(struct ibv_context *context, int cmd_fd)
{
	struct ctl_call call = {
		.op = RNIC_OP_IMPORT_CONTEXT,
		.fds_out = &cmd_fd,
		.num_fds_out = 1,
	};

	return ctl_conn_query(&ctx_of(context)->ctl, &call, NULL, 0);
}

/* The descriptor belongs to the context that is returned, which closes it. */
VERBS_API struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int error = ENODEV;

	for (int i = 0; list && list[i] && !context; i++) {
		context = ibv_open_device(list[i]);
		error = context ? import_from(context, cmd_fd) : errno;
		if (context && error) {
			ibv_close_device(context);
			context = NULL;
		}
	}
	if (list)
		ibv_free_device_list(list);
	if (!context) {
		errno = error;
		return NULL;
	}
	ctx_of(context)->imported_fd = cmd_fd;
	return context;
}

VERBS_API struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct rnic_handle_msg req = {.handle = handle};
	struct ctl_call call = {.op = RNIC_OP_IMPORT_PD, .req = &req, .req_bytes = sizeof(req)};

	return domain_pd_query(context, &call);
}

VERBS_API void ibv_unimport_pd(struct ibv_pd *pd)
{
	free(pd_of(pd));
}

/* The address is the other process's; here it is none. */
VERBS_API struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct rnic_import_mr_req req = {.pd = pd->handle, .handle = handle};
	struct ctl_call call = {.op = RNIC_OP_IMPORT_MR, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_import_mr_rsp rsp;
	struct rnic_mr *mr = calloc(1, sizeof(*mr));
	int error;

	if (!mr)
		return NULL;
	error = ctl_conn_query(&ctx_of(pd->context)->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	mr->kind = MR_IMPORTED;
	mr->base.context = pd->context;
	mr->base.pd = pd;
	mr->base.length = rsp.length;
	mr->base.handle = rsp.handle;
	mr->base.lkey = rsp.lkey;
	mr->base.rkey = rsp.rkey;
	return &mr->base;
}

VERBS_API void ibv_unimport_mr(struct ibv_mr *mr)
{
	free(mr_of(mr));
}

VERBS_API struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct rnic_handle_msg req = {.handle = handle};
	struct rnic_alloc_dm_rsp rsp;
	int fd, error;
	struct ctl_call call = {
		.op = RNIC_OP_IMPORT_DM,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = &fd,
		.num_fds_in = 1,
	};
	struct rnic_dm *dm = calloc(1, sizeof(*dm));

	if (!dm)
		return NULL;
	error = ctl_conn_query(&ctx_of(context)->ctl, &call, &rsp, sizeof(rsp));
	if (!error) {
		dm->map = ctx_map_fd(fd, rsp.length, PROT_READ | PROT_WRITE);
		error = dm->map ? 0 : errno;
	}
	if (error) {
		free(dm);
		errno = error;
		return NULL;
	}
	dm_fill(dm, context, rsp.length);
	dm->base.handle = rsp.handle;
	dm->map_bytes = rsp.length;
	return &dm->base;
}

VERBS_API void ibv_unimport_dm(struct ibv_dm *ibdm)
{
	struct rnic_dm *dm = dm_of(ibdm);

	munmap(dm->map, dm->map_bytes);
	free(dm);
}
