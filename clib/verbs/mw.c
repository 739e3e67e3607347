/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows. They are bound by work requests, which post.c writes. */
#include <stdlib.h>

#include "cause.h"
#include "ctl.h"
#include "mr.h"
#include "post.h"

struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct rnic_alloc_mw_req req = {.pd = pd->handle, .type = type};
	struct ctl_call call = {.op = RNIC_OP_ALLOC_MW, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_alloc_mw_rsp rsp;
	struct ibv_mw *mw = calloc(1, sizeof(*mw));
	int error;

	if (!mw)
		return NULL;
	error = ctl_conn_query(&ctx_of(pd->context)->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(mw);
		errno = error;
		return NULL;
	}
	mw->context = pd->context;
	mw->pd = pd;
	mw->rkey = rsp.rkey;
	mw->handle = rsp.handle;
	mw->type = type;
	return mw;
}

int mw_free(struct ibv_mw *mw)
{
	struct ctl_conn *conn = &ctx_of(mw->context)->ctl;
	struct rnic_handle_msg req = {.handle = mw->handle};
	int error = ctl_conn_ask(conn, RNIC_OP_DEALLOC_MW, &req, sizeof(req));

	if (error && !ctl_conn_known_dead(conn))
		return rnic_fail(error);
	free(mw);
	return 0;
}

/* Binds a window of type 1, whose new key is told at once. */
int mw_bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = bind->bind_info},
	};
	int error;

	if (mw->pd != qp->pd) {
		pthread_mutex_lock(&qp_of(qp)->sq.lock);
		cause_of_send(qp_of(qp), &wr, EPERM);
		pthread_mutex_unlock(&qp_of(qp)->sq.lock);
		return EPERM;
	}
	error = post_bind(qp, &wr);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}
