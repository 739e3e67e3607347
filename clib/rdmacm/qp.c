/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pair of an id, its completion queues, and its shared receive queue. */
#include "attr.h"
#include "cm.h"

/* Attributes that only reliable transports have. */
#define QP_RELIABLE_ONLY \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | \
	 IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC)

int qp_attr_get(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	struct rnic_cm_init_qp_attr_req req = {.id = id->handle, .state = attr->qp_state};
	struct rnic_cm_init_qp_attr_rsp rsp;
	struct ctl_call call = {
		.op = RNIC_OP_INIT_QP_ATTR,
		.req = &req,
		.req_bytes = sizeof(req),
	};
	int error = ctl_conn_query(&id->session->ctl, &call, &rsp, sizeof(rsp));

	if (error)
		return error;
	attr_qp_from_abi(attr, &rsp.attr);
	*mask = (int)rsp.mask;
	return 0;
}

CM_API int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	if (!id || !attr || !mask)
		return cm_result(EINVAL);
	return cm_result(qp_attr_get(id_of(id), attr, mask));
}

/* Moves the QP with the attributes that the NIC has for the state. */
static int qp_move(struct cm_id *id, enum ibv_qp_state state, uint8_t depth)
{
	struct ibv_qp *qp = id->base.qp;
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask, error = qp_attr_get(id, &attr, &mask);

	if (error)
		return error;
	if (state == IBV_QPS_RTR && depth != RDMA_MAX_RESP_RES)
		attr.max_dest_rd_atomic = depth;
	if (state == IBV_QPS_RTS && depth != RDMA_MAX_INIT_DEPTH)
		attr.max_rd_atomic = depth;
	if (qp->qp_type == IBV_QPT_UC)
		mask &= ~QP_RELIABLE_ONLY;
	return ibv_modify_qp(qp, &attr, mask);
}

int qp_to_rtr(struct cm_id *id, uint8_t responder_resources)
{
	/* What the peer may do to our memory is known only now. */
	int error = qp_move(id, IBV_QPS_INIT, 0);

	return error ? error : qp_move(id, IBV_QPS_RTR, responder_resources);
}

int qp_to_rts(struct cm_id *id, uint8_t initiator_depth)
{
	return qp_move(id, IBV_QPS_RTS, initiator_depth);
}

int qp_to_error(struct cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return id->base.qp ? ibv_modify_qp(id->base.qp, &attr, IBV_QP_STATE) : 0;
}

/* A datagram QP needs no peer: it may send at once. */
static int qp_start_datagram(struct cm_id *id)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int error = qp_move(id, IBV_QPS_INIT, 0);

	if (!error)
		error = ibv_modify_qp(id->base.qp, &attr, IBV_QP_STATE);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	if (!error)
		error = ibv_modify_qp(id->base.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return error;
}

static int qp_create_cq(struct cm_id *id, uint32_t entries, struct ibv_comp_channel **channel,
			struct ibv_cq **cq)
{
	int error;

	*channel = ibv_create_comp_channel(id->base.verbs);
	if (!*channel)
		return errno;
	*cq = ibv_create_cq(id->base.verbs, entries ? (int)entries : 1, &id->base, *channel, 0);
	if (*cq)
		return 0;
	error = errno;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return error;
}

static void qp_destroy_cq(struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

/* Destroys the completion queues that are ours; the id names no others. */
static void qp_destroy_cqs(struct cm_id *id)
{
	qp_destroy_cq(&id->base.send_cq_channel, &id->base.send_cq);
	qp_destroy_cq(&id->base.recv_cq_channel, &id->base.recv_cq);
}

/* What may complete at once on the receiving side. */
static uint32_t qp_receives(const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_srq_attr srq;

	if (attr->srq && !ibv_query_srq(attr->srq, &srq))
		return srq.max_wr;
	return attr->cap.max_recv_wr;
}

/* Makes the completion queues that the program does not bring and the QP has. */
static int qp_create_cqs(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *base = &id->base;
	int error = 0;

	if (attr->qp_type == IBV_QPT_XRC_RECV)
		return 0;
	if (!attr->recv_cq && attr->qp_type != IBV_QPT_XRC_SEND) {
		error = qp_create_cq(id, qp_receives(attr), &base->recv_cq_channel, &base->recv_cq);
		attr->recv_cq = base->recv_cq;
	}
	if (!error && !attr->send_cq) {
		error = qp_create_cq(id, attr->cap.max_send_wr, &base->send_cq_channel,
				     &base->send_cq);
		attr->send_cq = base->send_cq;
	}
	if (error)
		qp_destroy_cqs(id);
	return error;
}

/* Completes the domain that the QP belongs to: of protection, or of XRC. */
static int qp_take_domain(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	if (attr->qp_type == IBV_QPT_XRC_RECV) {
		if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd) {
			attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
			attr->xrcd = session_device_xrcd(id->session, id->device);
		}
		return attr->xrcd ? 0 : errno;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->device->pd;
	}
	return attr->pd->context == id->base.verbs ? 0 : EINVAL;
}

static int qp_create(struct cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct rdma_cm_id *base = &id->base;
	int error;

	if (!base->verbs || base->qp)
		return EINVAL;
	error = qp_take_domain(id, attr);
	if (error)
		return error;
	if (!attr->srq && attr->qp_type != IBV_QPT_XRC_RECV && attr->qp_type != IBV_QPT_XRC_SEND)
		attr->srq = base->srq;
	error = qp_create_cqs(id, attr);
	if (error)
		return error;
	base->qp = ibv_create_qp_ex(base->verbs, attr);
	error = base->qp ? 0 : errno;
	if (!error && base->qp_type == IBV_QPT_UD)
		error = qp_start_datagram(id);
	else if (!error)
		error = qp_move(id, IBV_QPS_INIT, 0);
	if (error) {
		if (base->qp)
			ibv_destroy_qp(base->qp);
		base->qp = NULL;
		qp_destroy_cqs(id);
		return error;
	}
	if (attr->qp_type != IBV_QPT_XRC_RECV)
		base->pd = attr->pd;
	return 0;
}

CM_API int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	return cm_result(qp_create(id_of(id), attr));
}

CM_API int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex;
	int error;

	/* It is the beginning of its extended form. */
	memset(&ex, 0, sizeof(ex));
	memcpy(&ex, attr, sizeof(*attr));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD;
	ex.pd = pd;
	error = qp_create(id_of(id), &ex);
	if (!error)
		memcpy(attr, &ex, sizeof(*attr));
	return cm_result(error);
}

CM_API void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp) {
		mcast_detach_all(id_of(id));
		ibv_destroy_qp(id->qp);
	}
	id->qp = NULL;
	/* Those of an XRC SRQ go with it. */
	if (!id->srq || id->qp_type != IBV_QPT_XRC_RECV)
		qp_destroy_cqs(id_of(id));
}

/* Completes what an XRC SRQ is made of: the device's domain and a completion queue of the id's. */
static int srq_take_parts(struct cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	int error = 0;

	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
		attr->xrcd = session_device_xrcd(id->session, id->device);
		if (!attr->xrcd)
			return -1;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq) {
		if (!id->base.recv_cq)
			error = qp_create_cq(id, attr->attr.max_wr, &id->base.recv_cq_channel,
					     &id->base.recv_cq);
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
		attr->cq = id->base.recv_cq;
	}
	return cm_result(error);
}

CM_API int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq;

	if (!id->verbs || id->srq)
		return cm_result(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id_of(id)->device->pd;
	}
	if (attr->pd->context != id->verbs)
		return cm_result(EINVAL);
	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type == IBV_SRQT_XRC &&
	    srq_take_parts(id_of(id), attr) != 0)
		return -1;
	srq = ibv_create_srq_ex(id->verbs, attr);
	if (!srq) {
		int error = errno;

		if (attr->cq && attr->cq == id->recv_cq && !id->qp)
			qp_destroy_cqs(id_of(id));
		return cm_result(error);
	}
	id->srq = srq;
	id->pd = attr->pd;
	return 0;
}

CM_API int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
			   struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		/* An id that receives by XRC has no use for another kind. */
		.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.pd = pd,
	};
	int result = rdma_create_srq_ex(id, &ex);

	if (!result)
		attr->attr = ex.attr;
	return result;
}

CM_API void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (!id->qp)
		qp_destroy_cqs(id_of(id));
}
