/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains, parent and thread domains, and XRC domains. */
#include "domain.h"

#include <fcntl.h>
#include <stdlib.h>

#include "ctl.h"
#include "ctx.h"

struct ibv_pd *domain_pd_query(struct ibv_context *context, struct ctl_call *call)
{
	struct rnic_handle_msg rsp;
	struct rnic_pd *pd = calloc(1, sizeof(*pd));
	int error;

	if (!pd)
		return NULL;
	error = ctl_conn_query(&ctx_of(context)->ctl, call, &rsp, sizeof(rsp));
	if (error) {
		free(pd);
		errno = error;
		return NULL;
	}
	pd->base.context = context;
	pd->base.handle = rsp.handle;
	return &pd->base;
}

VERBS_API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ctl_call call = {.op = RNIC_OP_ALLOC_PD};

	return domain_pd_query(context, &call);
}

static int parent_dealloc(struct rnic_pd *parent)
{
	if (atomic_load(&parent->users))
		return rnic_fail(EBUSY);
	if (parent->td)
		atomic_fetch_sub(&parent->td->users, 1);
	atomic_fetch_sub(&parent->protection->users, 1);
	free(parent);
	return 0;
}

VERBS_API int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct ctl_conn *conn = &ctx_of(pd->context)->ctl;
	struct rnic_handle_msg req = {.handle = pd->handle};
	int error;

	if (pd_of(pd)->protection)
		return parent_dealloc(pd_of(pd));
	if (atomic_load(&pd_of(pd)->users))
		return rnic_fail(EBUSY);
	error = ctl_conn_ask(conn, RNIC_OP_DEALLOC_PD, &req, sizeof(req));
	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	free(pd);
	return 0;
}

/*
 * A parent domain is its protection domain under another name: it has the same handle. The NIC
 * makes the memory of queues itself, so that the application's allocators have nothing to do, as
 * they have not for queues that hardware keeps in its own memory.
 */
struct ibv_pd *domain_parent_alloc(struct ibv_context *context,
				   struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			       IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct rnic_pd *parent;

	if (attr->comp_mask & ~known) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr->pd || attr->pd->context != context || pd_of(attr->pd)->protection ||
	    (attr->td && attr->td->context != context)) {
		errno = EINVAL;
		return NULL;
	}
	parent = calloc(1, sizeof(*parent));
	if (!parent)
		return NULL;
	parent->base.context = context;
	parent->base.handle = attr->pd->handle;
	parent->protection = pd_of(attr->pd);
	atomic_fetch_add(&parent->protection->users, 1);
	if (attr->td) {
		parent->td = td_of(attr->td);
		atomic_fetch_add(&parent->td->users, 1);
	}
	return &parent->base;
}

/* A promise that one thread uses what is made in it. Nothing here would be faster for it. */
struct ibv_td *domain_td_alloc(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct rnic_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->base.context = context;
	return &td->base;
}

int domain_td_dealloc(struct ibv_td *td)
{
	if (atomic_load(&td_of(td)->users))
		return EBUSY;
	free(td);
	return 0;
}

struct ibv_xrcd *domain_xrcd_open(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct rnic_open_xrcd_req req = {
		.flags = (attr->oflags & O_CREAT ? RNIC_XRCD_CREATE : 0) |
			 (attr->oflags & O_EXCL ? RNIC_XRCD_EXCLUSIVE : 0),
	};
	struct ctl_call call = {
		.op = RNIC_OP_OPEN_XRCD,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_out = &attr->fd,
		.num_fds_out = attr->fd >= 0,
	};
	struct rnic_handle_msg rsp;
	struct rnic_xrcd *xrcd;
	int error;

	if ((attr->comp_mask & needed) != needed || (attr->comp_mask & ~needed)) {
		errno = attr->comp_mask & ~needed ? EOPNOTSUPP : EINVAL;
		return NULL;
	}
	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;
	error = ctl_conn_query(&ctx_of(context)->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(xrcd);
		errno = error;
		return NULL;
	}
	xrcd->base.context = context;
	xrcd->handle = rsp.handle;
	return &xrcd->base;
}

int domain_xrcd_close(struct ibv_xrcd *xrcd)
{
	struct ctl_conn *conn = &ctx_of(xrcd->context)->ctl;
	struct rnic_handle_msg req = {.handle = xrcd_of(xrcd)->handle};
	int error = ctl_conn_ask(conn, RNIC_OP_CLOSE_XRCD, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	free(xrcd);
	return 0;
}
