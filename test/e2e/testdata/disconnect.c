/*
 * Connects to itself, at the address and port given, disconnects, and looks at what becomes of the
 * receives that are posted on both sides.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netdb.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define RECEIVES 3
#define PATIENCE_MS 10000

#define CHECK(condition)                                                                          \
	do {                                                                                          \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));          \
			exit(1);                                                                              \
		}                                                                                         \
	} while (0)

static struct rdma_event_channel *channel;
static char memory[RECEIVES];

/* Waits for an event and checks that it is the one that is due. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type want)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(poll(&fd, 1, PATIENCE_MS) == 1);
	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != want || event->status) {
		fprintf(stderr, "%s, status %d, instead of %s\n", rdma_event_str(event->event),
			event->status, rdma_event_str(want));
		exit(1);
	}
	id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_mr *mr;

	CHECK(rdma_create_qp(id, NULL, &attr) == 0);
	mr = rdma_reg_msgs(id, memory, sizeof(memory));
	CHECK(mr);
	for (uintptr_t i = 0; i < RECEIVES; i++)
		CHECK(rdma_post_recv(id, (void *)i, memory + i, 1, mr) == 0);
	id->context = mr;
}

static enum ibv_qp_state state_of(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init) == 0);
	return attr.qp_state;
}

/* Every receive comes back once, in order, and nothing else does. */
static void check_flushed(struct rdma_cm_id *id)
{
	struct ibv_wc wc;

	CHECK(state_of(id) == IBV_QPS_ERR);
	for (uint64_t i = 0; i < RECEIVES; i++) {
		for (int ms = 0; !ibv_poll_cq(id->recv_cq, 1, &wc); ms++) {
			CHECK(ms < PATIENCE_MS);
			usleep(1000);
		}
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i && wc.qp_num == id->qp->qp_num);
	}
	usleep(20000);
	CHECK(ibv_poll_cq(id->recv_cq, 1, &wc) == 0 && ibv_poll_cq(id->send_cq, 1, &wc) == 0);
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *listener, *client, *server, *first, *second;

	CHECK(argc == 3);
	channel = rdma_create_event_channel();
	CHECK(channel && rdma_getaddrinfo(argv[1], argv[2], &hints, &info) == 0);
	CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, info->ai_dst_addr) == 0 && rdma_listen(listener, 1) == 0);
	CHECK(rdma_create_id(channel, &client, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(client, NULL, info->ai_dst_addr, 2000) == 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 2000) == 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	create_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	server = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
	create_qp(server);
	CHECK(rdma_accept(server, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(state_of(client) == IBV_QPS_RTS && state_of(server) == IBV_QPS_RTS);

	CHECK(rdma_disconnect(client) == 0);
	check_flushed(client);
	CHECK(expect(RDMA_CM_EVENT_DISCONNECTED) == server);
	CHECK(rdma_disconnect(server) == 0);
	check_flushed(server);
	CHECK(expect(RDMA_CM_EVENT_DISCONNECTED) == client);
	first = expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
	second = expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
	CHECK((first == client && second == server) || (first == server && second == client));

	for (int i = 0; i < 2; i++) {
		struct rdma_cm_id *id = i ? client : server;

		CHECK(rdma_dereg_mr(id->context) == 0);
		rdma_destroy_qp(id);
		CHECK(rdma_destroy_id(id) == 0);
	}
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_freeaddrinfo(info);
	rdma_destroy_event_channel(channel);
	return 0;
}
