/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: an id made from what rdma_getaddrinfo found, with its QP. */
#include "cm.h"

#define EP_RESOLVE_MS 2000

/* A listening endpoint keeps what the QPs of its requests are to be like. */
static int ep_keep(struct cm_id *id, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (!attr)
		return 0;
	id->ep_attr = malloc(sizeof(*attr));
	if (!id->ep_attr)
		return ENOMEM;
	*id->ep_attr = *attr;
	id->ep_attr->qp_type = id->base.qp_type;
	id->ep_pd = pd;
	return 0;
}

static int ep_listen(struct cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		     const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->base, res->ai_src_addr))
		return errno;
	return ep_keep(id, pd, attr);
}

static int ep_resolve(struct cm_id *id, const struct rdma_addrinfo *res, struct ibv_pd *pd,
		      struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->base, res->ai_src_addr, res->ai_dst_addr, EP_RESOLVE_MS) ||
	    rdma_resolve_route(&id->base, EP_RESOLVE_MS))
		return errno;
	if (attr) {
		attr->qp_type = id->base.qp_type;
		if (rdma_create_qp(&id->base, pd, attr))
			return errno;
	}
	if (res->ai_connect_len) {
		id->connect_data = malloc(res->ai_connect_len);
		if (!id->connect_data)
			return ENOMEM;
		memcpy(id->connect_data, res->ai_connect, res->ai_connect_len);
		id->connect_bytes = res->ai_connect_len;
	}
	return 0;
}

CM_API int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *base;
	struct cm_id *id;
	int error = id_new(NULL, &base, NULL, res);

	if (error)
		return cm_result(error);
	id = id_of(base);
	if (res->ai_flags & RAI_PASSIVE)
		error = ep_listen(id, res, pd, attr);
	else
		error = ep_resolve(id, res, pd, attr);
	if (error) {
		rdma_destroy_ep(base);
		return cm_result(error);
	}
	*out = base;
	return 0;
}

CM_API void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

CM_API int rdma_get_request(struct rdma_cm_id *base, struct rdma_cm_id **out)
{
	struct cm_id *listener = id_of(base);
	struct rdma_cm_event *event;
	int error;

	if (!listener->is_sync || !listener->is_listening)
		return cm_result(EINVAL);
	error = event_complete(listener, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (error)
		return cm_result(error);
	event = base->event;
	base->event = NULL;
	if (listener->ep_attr) {
		struct ibv_qp_init_attr attr = *listener->ep_attr;

		if (rdma_create_qp(event->id, listener->ep_pd, &attr)) {
			struct rdma_cm_id *child = event->id;

			error = errno;
			rdma_ack_cm_event(event);
			rdma_destroy_id(child);
			return cm_result(error);
		}
	}
	*out = event->id;
	(*out)->event = event;
	return 0;
}
