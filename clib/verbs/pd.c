/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains and memory regions. */
#include <stdlib.h>

#include "ctl.h"
#include "mem.h"

struct rnic_mr {
	struct ibv_mr base;
	struct mem_plan plan;
};

VERBS_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ctl_call call = {.op = RNIC_OP_ALLOC_PD};
	struct rnic_handle_msg rsp;
	struct ibv_pd *pd = calloc(1, sizeof(*pd));
	int error;

	if (!pd)
		return NULL;
	error = ctl_conn_query(&ctx_of(context)->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(pd);
		errno = error;
		return NULL;
	}
	pd->context = context;
	pd->handle = rsp.handle;
	return pd;
}

VERBS_API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct ctl_conn *conn = &ctx_of(pd->context)->ctl;
	struct rnic_handle_msg req = {.handle = pd->handle};
	int error = ctl_conn_ask(conn, RNIC_OP_DEALLOC_PD, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	free(pd);
	return 0;
}

static int mr_register(struct rnic_mr *mr, const struct rnic_reg_mr_req *req)
{
	struct rnic_reg_mr_rsp rsp;
	struct ctl_call call = {
		.op = RNIC_OP_REG_MR,
		.req = req,
		.req_bytes = sizeof(*req),
		.tail = mr->plan.segments,
		.tail_bytes = mr->plan.count * sizeof(mr->plan.segments[0]),
		.fds_out = &mr->plan.fd,
		.num_fds_out = mr->plan.fd >= 0,
	};
	int error = ctl_conn_query(&ctx_of(mr->base.context)->ctl, &call, &rsp, sizeof(rsp));

	if (error)
		return error;
	mr->base.handle = rsp.handle;
	mr->base.lkey = rsp.lkey;
	mr->base.rkey = rsp.rkey;
	return 0;
}

VERBS_API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, unsigned int access)
{
	const unsigned int writing = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_ATOMIC;
	struct rnic_mr *mr = calloc(1, sizeof(*mr));
	struct rnic_reg_mr_req req = {
		.pd = pd->handle,
		.access = access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE,
		.addr = (uintptr_t)addr,
		.length = length,
		.iova = iova,
	};
	int error;

	if (!mr)
		return NULL;
	mr->base.context = pd->context;
	mr->base.pd = pd;
	mr->base.addr = addr;
	mr->base.length = length;
	error = mem_plan_make(&mr->plan, addr, length, access & writing, access & writing);
	if (!error) {
		req.num_segments = mr->plan.count;
		error = mr_register(mr, &req);
		if (error)
			mem_plan_release(&mr->plan);
	}
	if (error) {
		free(mr);
		errno = error;
		return NULL;
	}
	return &mr->base;
}

VERBS_API struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					 uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

VERBS_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

VERBS_API int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct rnic_mr *mr = (struct rnic_mr *)ibmr;
	struct ctl_conn *conn = &ctx_of(ibmr->context)->ctl;
	struct rnic_handle_msg req = {.handle = ibmr->handle};
	int error = ctl_conn_ask(conn, RNIC_OP_DEREG_MR, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	mem_plan_release(&mr->plan);
	free(mr);
	return 0;
}
