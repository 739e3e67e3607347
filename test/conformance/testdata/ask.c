/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for a feature by its verbs alone, whether the device has it or not. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "ends.h"

enum feature { ASK_UC, ASK_UD, ASK_XRC, ASK_GROUPS, ASK_AH, ASK_MANUAL };

static const union ibv_gid group = {.raw = {[0] = 0xff, [1] = 0x0e, [10] = 0xff, [11] = 0xff,
					    [12] = 239, [15] = 7}};

static struct ibv_qp *ask_qp(enum ibv_qp_type type, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};

	return ibv_create_qp(sides[0].pds[0], &init);
}

static int ask_xrc(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *domain = ibv_open_xrcd(sides[0].ctx, &attr);

	return domain ? ibv_close_xrcd(domain) : errno;
}

static int ask_ah(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid}};
	struct ibv_ah *ah = ibv_create_ah(sides[0].pds[0], &attr);

	return ah ? ibv_destroy_ah(ah) : errno;
}

static int ask_group(struct ibv_qp *qp)
{
	int error = ibv_attach_mcast(qp, &group, 0);

	return error ? error : ibv_detach_mcast(qp, &group, 0);
}

/* Connects a queue pair to itself. */
static int ask_manual(struct ibv_qp *qp, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}},
	};
	int error = ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	if (error)
		return error;
	attr.qp_state = IBV_QPS_RTR;
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int ask_of_qp(enum feature feature, enum ibv_qp_type type, const union ibv_gid *gid)
{
	struct ibv_cq *cq = ibv_create_cq(sides[0].ctx, 2, NULL, NULL, 0);
	struct ibv_qp *qp = cq ? ask_qp(type, cq) : NULL;
	int error = qp ? 0 : errno;

	if (qp && feature == ASK_GROUPS)
		error = ask_group(qp);
	if (qp && feature == ASK_MANUAL)
		error = ask_manual(qp, gid);
	if (qp && ibv_destroy_qp(qp))
		die("destroy a queue pair");
	if (cq && ibv_destroy_cq(cq))
		die("destroy a completion queue");
	return error;
}

static int ask(enum feature feature, enum ibv_qp_type type)
{
	union ibv_gid gid;

	if (ibv_query_gid(sides[0].ctx, 1, 0, &gid))
		return errno;
	switch (feature) {
	case ASK_XRC:
		return ask_xrc();
	case ASK_AH:
		return ask_ah(&gid);
	default:
		return ask_of_qp(feature, type, &gid);
	}
}

/* The feature, and the type of the queue pair to try it with. */
void do_ask(void)
{
	enum feature feature = (enum feature)number();
	int error = ask(feature, (enum ibv_qp_type)number());

	if (error)
		refuse(error, 0);
	else
		printf("ok\n");
}
