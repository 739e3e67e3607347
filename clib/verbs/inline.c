/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that the header of this release defines inline, as functions. Releases differ in which
 * of them the library exports; the version script decides.
 */
#include "ctx.h"

int inline_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc) __asm__("ibv_poll_cq");
int inline_req_notify_cq(struct ibv_cq *cq, int solicited_only) __asm__("ibv_req_notify_cq");
int inline_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
	__asm__("ibv_post_send");
int inline_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
	__asm__("ibv_post_recv");
int inline_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
	__asm__("ibv_post_srq_recv");

VERBS_API int inline_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	return cq_poll(cq, max, wc);
}

VERBS_API int inline_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return cq_arm(cq, solicited_only);
}

VERBS_API int inline_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return post_send(qp, wr, bad);
}

VERBS_API int inline_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return post_recv(qp, wr, bad);
}

VERBS_API int inline_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
				   struct ibv_recv_wr **bad)
{
	return post_srq_recv(srq, wr, bad);
}
