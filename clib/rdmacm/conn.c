/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: asked for, accepted, turned down, ended. */
#include "cm.h"

/* Reject reason of IBTA 12.6.7.2: the vendor's options are not supported. */
#define CONN_REJECT_VENDOR_OPTION 35

#define CONN_RETRIES 7 /* the most that a 3-bit field holds */

/* A depth that the device can have; the application's 255 is "as much as there is". */
static int conn_depth(uint8_t wanted, uint8_t max, uint8_t *depth)
{
	*depth = wanted == RDMA_MAX_RESP_RES ? max : wanted;
	return *depth > max ? EINVAL : 0;
}

static int conn_private_data(struct rnic_cm_param *out, const void *data, size_t bytes)
{
	if (out->private_data_len + bytes > UINT8_MAX || (bytes && !data))
		return EINVAL;
	if (bytes)
		memcpy(out->private_data + out->private_data_len, data, bytes);
	out->private_data_len = (uint8_t)(out->private_data_len + bytes);
	return 0;
}

/* Which QP it is about: the id's own, or one that the application looks after. */
static void conn_name_qp(struct cm_id *id, const struct rdma_conn_param *in,
			 struct rnic_cm_param *out)
{
	const struct ibv_qp *qp = id->base.qp;

	out->qp_type = (uint8_t)(qp ? qp->qp_type : id->base.qp_type);
	if (qp) {
		out->qpn = qp->qp_num;
		out->srq = qp->srq != NULL;
	} else if (in) {
		out->qpn = in->qp_num;
		out->srq = in->srq != 0;
	}
}

/* Fills in what both sides may ask for; in may be NULL, then max tells how much there is. */
static int conn_fill(struct cm_id *id, const struct rdma_conn_param *in,
		     const struct rdma_conn_param *defaults, struct rnic_cm_param *out)
{
	const struct cm_device *device = id->device;
	const struct rdma_conn_param *param = in ? in : defaults;
	int error = 0;

	conn_name_qp(id, in, out);
	out->ece_vendor = id->local_ece.vendor_id;
	out->ece_options = id->local_ece.options;
	out->flow_control = param->flow_control;
	out->retry_count = param->retry_count;
	out->rnr_retry_count = param->rnr_retry_count;
	if (id->base.qp_type != IBV_QPT_UD) {
		error = conn_depth(param->responder_resources, device->max_responder_resources,
				   &out->responder_resources);
		if (!error)
			error = conn_depth(param->initiator_depth, device->max_initiator_depth,
					   &out->initiator_depth);
	}
	if (!error)
		error = conn_private_data(out, param->private_data, param->private_data_len);
	return error;
}

static int conn_send(struct cm_id *id, uint16_t op, const struct rnic_cm_conn_req *req)
{
	return ctl_conn_ask(&id->session->ctl, op, req, sizeof(*req));
}

CM_API int rdma_connect(struct rdma_cm_id *base, struct rdma_conn_param *param)
{
	static const struct rdma_conn_param most = {
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = CONN_RETRIES,
		.rnr_retry_count = CONN_RETRIES,
	};
	struct cm_id *id = id_of(base);
	struct rnic_cm_conn_req req = {.id = id->handle};
	int error;

	if (!id->device)
		return cm_result(EINVAL);
	/* What rdma_getaddrinfo found to be necessary comes before the program's own data. */
	error = conn_private_data(&req.param, id->connect_data, id->connect_bytes);
	if (!error)
		error = conn_fill(id, param, &most, &req.param);
	if (!error)
		error = conn_send(id, RNIC_OP_CONNECT, &req);
	if (!error)
		error = event_complete(id, RDMA_CM_EVENT_ESTABLISHED);
	return cm_result(error);
}

static uint8_t conn_min(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static int conn_accept(struct cm_id *id, const struct rnic_cm_conn_req *req)
{
	const bool moves = id->base.qp && id->base.qp_type != IBV_QPT_UD;
	int error = 0;

	if (moves) {
		error = qp_to_rtr(id, req->param.responder_resources);
		if (!error)
			error = qp_to_rts(id, req->param.initiator_depth);
	}
	if (!error)
		error = conn_send(id, RNIC_OP_ACCEPT, req);
	if (error && moves)
		qp_to_error(id);
	return error;
}

CM_API int rdma_accept(struct rdma_cm_id *base, struct rdma_conn_param *param)
{
	struct cm_id *id = id_of(base);
	struct rnic_cm_conn_req req = {.id = id->handle};
	struct rdma_conn_param asked = {.rnr_retry_count = CONN_RETRIES};
	int error;

	if (!id->device)
		return cm_result(EINVAL);
	asked.responder_resources =
		conn_min(id->responder_resources, id->device->max_responder_resources);
	asked.initiator_depth = conn_min(id->initiator_depth, id->device->max_initiator_depth);
	error = conn_fill(id, param, &asked, &req.param);
	if (!error)
		error = conn_accept(id, &req);
	/* Nobody answers to an accepted lookup of a datagram service. */
	if (!error && base->qp_type != IBV_QPT_UD)
		error = event_complete(id, RDMA_CM_EVENT_ESTABLISHED);
	else if (!error && id->is_sync)
		event_ack(id);
	return cm_result(error);
}

static int conn_reject(struct rdma_cm_id *base, const void *data, uint8_t bytes, uint32_t reason)
{
	struct cm_id *id = id_of(base);
	struct rnic_cm_conn_req req = {.id = id->handle, .reason = reason};
	int error = conn_private_data(&req.param, data, bytes);

	if (!error)
		error = conn_send(id, RNIC_OP_REJECT, &req);
	if (!error && id->is_sync)
		event_ack(id);
	return cm_result(error);
}

CM_API int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
	return conn_reject(id, data, bytes, 0);
}

CM_API int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
	return conn_reject(id, data, bytes, CONN_REJECT_VENDOR_OPTION);
}

CM_API int rdma_establish(struct rdma_cm_id *base)
{
	struct cm_id *id = id_of(base);
	int error = base->qp ? EINVAL : id_ask(id, RNIC_OP_ESTABLISH);

	if (!error)
		id->is_connected = true;
	return cm_result(error);
}

CM_API int rdma_notify(struct rdma_cm_id *base, enum ibv_event_type event)
{
	struct cm_id *id = id_of(base);
	const struct rnic_cm_notify_req req = {.id = id->handle, .event = event};

	return cm_result(ctl_conn_ask(&id->session->ctl, RNIC_OP_NOTIFY, &req, sizeof(req)));
}

/*
 * First the QP fails, so that its receives are flushed before anybody hears of the end. On iWARP
 * what was posted is sent first: there it may be complete for the program and still be on its way.
 */
CM_API int rdma_disconnect(struct rdma_cm_id *base)
{
	struct cm_id *id = id_of(base);
	int error = 0;

	if (!id->base.verbs || id->base.verbs->device->transport_type != IBV_TRANSPORT_IWARP)
		error = qp_to_error(id);
	if (!error)
		error = id_ask(id, RNIC_OP_DISCONNECT);
	if (!error && id->is_connected)
		error = event_complete(id, RDMA_CM_EVENT_DISCONNECTED);
	return cm_result(error);
}

CM_API int rdma_set_option(struct rdma_cm_id *base, int level, int name, void *value, size_t bytes)
{
	struct cm_id *id = id_of(base);
	struct rnic_cm_option_req req = {
		.id = id->handle,
		.level = (uint32_t)level,
		.name = (uint32_t)name,
		.len = (uint32_t)bytes,
	};

	/* Paths of an InfiniBand fabric: there is none. */
	if (level == RDMA_OPTION_IB)
		return cm_result(EOPNOTSUPP);
	if (!value || bytes > sizeof(req.value))
		return cm_result(EINVAL);
	memcpy(&req.value, value, bytes);
	return cm_result(ctl_conn_ask(&id->session->ctl, RNIC_OP_SET_OPTION, &req, sizeof(req)));
}

/*
 * Enhanced connection establishment: options of a vendor that REQ and REP carry, for QPs that the
 * program looks after itself. Those of our devices have none, so that there is nothing to mask.
 */
CM_API int rdma_set_local_ece(struct rdma_cm_id *base, struct ibv_ece *ece)
{
	if (!base || base->qp || !ece || !ece->vendor_id || !ece->options)
		return cm_result(EINVAL);
	id_of(base)->local_ece = (struct ibv_ece){
		.vendor_id = ece->vendor_id,
		.options = ece->options,
	};
	return 0;
}

CM_API int rdma_get_remote_ece(struct rdma_cm_id *base, struct ibv_ece *ece)
{
	if (!base || base->qp || !ece)
		return cm_result(EINVAL);
	*ece = id_of(base)->remote_ece;
	return 0;
}
