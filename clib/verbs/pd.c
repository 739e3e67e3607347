/* SPDX-License-Identifier: Apache-2.0 */
/* Protection domains. */
#include <stdlib.h>

#include "ctl.h"
#include "rnic.h"

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
