/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs that test connection management share. */
#ifndef TEST_CM_H
#define TEST_CM_H

#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "setup.h"

static inline struct sockaddr *cm_addr(struct sockaddr_in *in, const char *text, uint16_t port)
{
	*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	CHECK(inet_pton(AF_INET, text, &in->sin_addr) == 1);
	return (struct sockaddr *)in;
}

/* Waits for an event and wants it to be of that type. */
static inline struct rdma_cm_event *cm_expect(struct rdma_event_channel *channel,
					      enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type) {
		fprintf(stderr, "%s (status %d) instead of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(type));
		exit(1);
	}
	return event;
}

static inline void cm_skip(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	CHECK(rdma_ack_cm_event(cm_expect(channel, type)) == 0);
}

static inline bool cm_is_readable(struct rdma_event_channel *channel)
{
	struct pollfd pfd = {.fd = channel->fd, .events = POLLIN};

	return poll(&pfd, 1, 0) == 1;
}

static inline struct rdma_cm_id *cm_listen(struct rdma_event_channel *channel, uint16_t port,
					   enum rdma_port_space ps)
{
	struct sockaddr_in in;
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, (void *)0x11, ps) == 0);
	CHECK(rdma_bind_addr(id, cm_addr(&in, "0.0.0.0", port)) == 0);
	CHECK(rdma_listen(id, 10) == 0 && !id->verbs);
	CHECK(rdma_get_src_port(id) == htons(port) || !port);
	return id;
}

static inline struct rdma_cm_id *cm_resolve(struct rdma_event_channel *channel, uint16_t port,
					    enum rdma_port_space ps)
{
	struct sockaddr_in in;
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, (void *)0x22, ps) == 0);
	CHECK(rdma_resolve_addr(id, NULL, cm_addr(&in, "192.0.2.1", port), 1000) == 0);
	cm_skip(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(id->verbs && id->pd && id->port_num == 1);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	cm_skip(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(id->route.num_paths == 1 && id->route.path_rec->mtu == IBV_MTU_1024);
	CHECK(rdma_get_dst_port(id) == htons(port));
	return id;
}

static inline struct ibv_qp_init_attr cm_qp_attr(enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.qp_type = type,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};
}

static inline void cm_make_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr attr = cm_qp_attr(type);

	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	CHECK(id->qp && id->qp->pd == id->pd && attr.send_cq == id->send_cq);
	CHECK(id->recv_cq->cq_context == id && id->recv_cq->channel == id->recv_cq_channel);
}

static inline enum ibv_qp_state cm_state(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

static inline void cm_destroy(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq_channel);
	CHECK(rdma_destroy_id(id) == 0);
}

#endif
