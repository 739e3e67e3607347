/* SPDX-License-Identifier: Apache-2.0 */
/* Multicast groups of datagram queue pairs. Joining them is librdmacm's part. */
#include "ctl.h"
#include "rnic.h"

static int mcast_ask(struct ibv_qp *qp, uint16_t op, const union ibv_gid *gid, uint16_t lid)
{
	struct rnic_attach_multicast_req req = {.qp = qp->handle, .mlid = lid};
	int error;

	memcpy(req.gid, gid->raw, sizeof(req.gid));
	error = ctl_conn_ask(&ctx_of(qp->context)->ctl, op, &req, sizeof(req));
	return error ? rnic_fail(error) : 0;
}

VERBS_API int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return mcast_ask(qp, RNIC_OP_ATTACH_MULTICAST, gid, lid);
}

VERBS_API int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return mcast_ask(qp, RNIC_OP_DETACH_MULTICAST, gid, lid);
}
