/* SPDX-License-Identifier: Apache-2.0 */
/* Memory regions. */
#include "mr.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attr.h"
#include "ctl.h"
#include "direct.h"

/* Linux 5.14; older kernels refuse them. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static bool mr_access_writes(unsigned int access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			 IBV_ACCESS_REMOTE_ATOMIC);
}

/*
 * Plans how the NIC reaches memory. What is paged on demand need not be there yet, and may be
 * replaced at any time, so it stays where it is.
 */
static int mr_plan(struct mem_plan *plan, const void *addr, size_t length, unsigned int access)
{
	const bool writes = mr_access_writes(access);

	if (access & IBV_ACCESS_ON_DEMAND)
		return mem_plan_remote(plan, addr, length);
	if (writes && (access & RNIC_ACCESS_UNSHARED))
		return mem_plan_make(plan, addr, length, true, MEM_MOVE_UNSHARED);
	return mem_plan_make(plan, addr, length, writes, writes ? MEM_MOVE : MEM_STAY);
}

static void mr_call_add_plan(struct ctl_call *call, const struct mem_plan *plan)
{
	call->tail = plan->segments;
	call->tail_bytes = plan->count * sizeof(plan->segments[0]);
	call->fds_out = &plan->fd;
	call->num_fds_out = plan->fd >= 0;
}

static int mr_request(struct rnic_mr *mr, struct ctl_call *call)
{
	struct rnic_reg_mr_rsp rsp;
	int error = ctl_conn_query(&ctx_of(mr->base.context)->ctl, call, &rsp, sizeof(rsp));

	if (error)
		return error;
	mr->base.handle = rsp.handle;
	mr->base.lkey = rsp.lkey;
	mr->base.rkey = rsp.rkey;
	return 0;
}

static struct rnic_mr *mr_new(struct ibv_pd *pd, enum mr_kind kind)
{
	struct rnic_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	mr->kind = kind;
	mr->base.context = pd->context;
	mr->base.pd = pd;
	return mr;
}

/* Reports a region whose addresses in work requests are those of this process. */
static bool mr_is_plain(const struct rnic_mr *mr)
{
	return mr->kind == MR_MEMORY && mr->has_own_addresses &&
	       !(mr->access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED));
}

static struct ibv_mr *mr_finish(struct rnic_mr *mr, int error)
{
	if (!error)
		return &mr->base;
	free(mr);
	errno = error;
	return NULL;
}

VERBS_API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, unsigned int access)
{
	struct rnic_mr *mr = mr_new(pd, MR_MEMORY);
	struct rnic_reg_mr_req req = {
		.pd = pd->handle,
		.access = access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE,
		.addr = (uintptr_t)addr,
		.length = length,
		.iova = iova,
	};
	struct ctl_call call = {.op = RNIC_OP_REG_MR, .req = &req, .req_bytes = sizeof(req)};
	int error;

	if (!mr)
		return NULL;
	mr->base.addr = addr;
	mr->base.length = length;
	mr->access = req.access;
	mr->plan = &mr->plans[0];
	error = mr_plan(mr->plan, addr, length, access);
	if (!error) {
		req.num_segments = mr->plan->count;
		mr_call_add_plan(&call, mr->plan);
		error = mr_request(mr, &call);
		if (error)
			mem_plan_release(mr->plan);
	}
	mr->has_own_addresses = iova == (uintptr_t)addr;
	if (!error && mr_is_plain(mr))
		direct_local_add(mr);
	return mr_finish(mr, error);
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

struct ibv_mr *mr_make(struct ibv_pd *pd, enum mr_kind kind, struct ctl_call *call)
{
	struct rnic_mr *mr = mr_new(pd, kind);

	return mr ? mr_finish(mr, mr_request(mr, call)) : NULL;
}

/* A region of no memory: it reads as zeros, and what is written there is gone. */
struct ibv_mr *mr_alloc_null(struct ibv_pd *pd)
{
	struct rnic_handle_msg req = {.handle = pd->handle};
	struct ctl_call call = {
		.op = RNIC_OP_ALLOC_NULL_MR,
		.req = &req,
		.req_bytes = sizeof(req),
	};
	struct ibv_mr *mr = mr_make(pd, MR_NULL, &call);

	if (mr)
		mr->length = SIZE_MAX;
	return mr;
}

/* Reports whether the arguments of a change make sense at all. */
static bool mr_change_is_sane(const struct rnic_mr *mr, int flags, const struct ibv_pd *pd,
			      const void *addr, size_t length, int access)
{
	if (mr->kind != MR_MEMORY || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		return false;
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
		return false;
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != mr->base.context))
		return false;
	return !access || (flags & IBV_REREG_MR_CHANGE_ACCESS);
}

/* Lets the NIC change the region; its plan becomes next, or stays when that is NULL. */
static int mr_change(struct rnic_mr *mr, struct rnic_rereg_mr_req *req, struct mem_plan *next)
{
	struct ctl_call call = {
		.op = RNIC_OP_REREG_MR,
		.req = req,
		.req_bytes = sizeof(*req),
	};
	int error;

	if (next) {
		error = mr_plan(next, (void *)(uintptr_t)req->addr, req->length, req->access);
		if (error)
			return error;
		req->num_segments = next->count;
		mr_call_add_plan(&call, next);
	}
	error = mr_request(mr, &call);
	if (error) {
		if (next)
			mem_plan_release(next);
		return error;
	}
	if (next) {
		mem_plan_release(mr->plan);
		mr->plan = next;
	}
	return 0;
}

/* The region stays as it was whatever error is returned. Its keys stay in any case. */
VERBS_API int ibv_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *pd, void *addr,
			   size_t length, int access)
{
	const int anew = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
	struct rnic_mr *mr = mr_of(ibmr);
	struct mem_plan *next = mr->plan == &mr->plans[0] ? &mr->plans[1] : &mr->plans[0];
	struct rnic_rereg_mr_req req = {
		.handle = ibmr->handle,
		.flags = (uint32_t)flags,
		.access = mr->access,
		.addr = (uintptr_t)ibmr->addr,
		.length = ibmr->length,
	};
	int error;

	if (!mr_change_is_sane(mr, flags, pd, addr, length, access)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		req.addr = req.iova = (uintptr_t)addr;
		req.length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		req.access = (unsigned int)access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE;
	if (flags & IBV_REREG_MR_CHANGE_PD)
		req.pd = pd->handle;
	direct_local_remove(mr);
	error = mr_change(mr, &req, flags & anew ? next : NULL);
	if (!error) {
		mr->access = req.access;
		mr->has_own_addresses |= (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
		ibmr->addr = (void *)(uintptr_t)req.addr;
		ibmr->length = req.length;
		if (flags & IBV_REREG_MR_CHANGE_PD)
			ibmr->pd = pd;
	}
	if (mr_is_plain(mr))
		direct_local_add(mr);
	if (error) {
		errno = error;
		return IBV_REREG_MR_ERR_CMD;
	}
	return 0;
}

/* Brings pages in: at once and for certain when told to wait, else as the system sees fit. */
static int mr_prefetch(const struct rnic_sge *range, enum ibv_advise_mr_advice advice, bool wait)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const uintptr_t start = range->addr & ~(page - 1);
	const size_t bytes = range->addr + range->length - start;
	int how = MADV_WILLNEED;

	if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || range->length == 0)
		return 0;
	if (wait)
		how = advice == IBV_ADVISE_MR_ADVICE_PREFETCH ? MADV_POPULATE_READ
							      : MADV_POPULATE_WRITE;
	if (madvise((void *)start, bytes, how) == 0 || !wait || errno == EINVAL)
		return 0;
	return errno == ENOMEM ? EFAULT : errno; /* ENOMEM: nothing is mapped there */
}

int mr_advise(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	      struct ibv_sge *list, uint32_t count)
{
	struct rnic_advise_mr_req req = {
		.pd = pd->handle,
		.advice = advice,
		.flags = flags,
		.num_sge = count,
	};
	struct ctl_call call = {
		.op = RNIC_OP_ADVISE_MR,
		.req = &req,
		.req_bytes = sizeof(req),
		.tail = list,
		.tail_bytes = count * sizeof(*list),
	};
	struct rnic_sge *ranges;
	int error = ENOMEM;

	static_assert(sizeof(struct rnic_sge) == sizeof(*list), "same layout");
	if (count > (RNIC_MAX_MESSAGE - sizeof(req)) / sizeof(*list) - 1)
		return EINVAL;
	ranges = malloc(call.tail_bytes + 1);
	if (ranges)
		error = ctl_conn_query(&ctx_of(pd->context)->ctl, &call, ranges, call.tail_bytes);
	for (uint32_t i = 0; !error && i < count; i++)
		error = mr_prefetch(&ranges[i], advice, flags & IBV_ADVISE_MR_FLAG_FLUSH);
	free(ranges);
	return error ? rnic_fail(error) : 0;
}

VERBS_API int ibv_dereg_mr(struct ibv_mr *ibmr)
{
	struct rnic_mr *mr = mr_of(ibmr);
	struct ctl_conn *conn = &ctx_of(ibmr->context)->ctl;
	struct rnic_handle_msg req = {.handle = ibmr->handle};
	int error;

	direct_local_remove(mr);
	error = ctl_conn_ask(conn, RNIC_OP_DEREG_MR, &req, sizeof(req));
	if (error && !ctl_conn_known_dead(conn)) {
		if (mr_is_plain(mr))
			direct_local_add(mr);
		return rnic_fail(error);
	}
	if (mr->plan)
		mem_plan_release(mr->plan);
	free(mr);
	return 0;
}
