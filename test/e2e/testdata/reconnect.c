/*
 * A client that connects again whenever its connection ends, and the server that it connects to.
 *
 *	reconnect PORT           accepts everybody, until it is killed
 *	reconnect PORT ADDRESS   connects; says "connected" each time; ends with its standard input
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <netdb.h>

#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Waits for an event of an id. Standard input's end ends the program. */
static enum rdma_cm_event_type next_event(struct rdma_cm_id **id)
{
	struct pollfd fds[2] = {
		{.fd = channel->fd, .events = POLLIN},
		{.fd = 0, .events = POLLIN},
	};
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	char c;

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			fail("poll");
		if (fds[1].revents && read(0, &c, 1) == 0)
			exit(0);
		if (fds[0].revents)
			break;
	}
	if (rdma_get_cm_event(channel, &event))
		fail("rdma_get_cm_event");
	type = event->event;
	*id = event->id;
	if (rdma_ack_cm_event(event))
		fail("rdma_ack_cm_event");
	return type;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	if (rdma_create_qp(id, NULL, &attr))
		fail("rdma_create_qp");
}

static void destroy(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	if (rdma_destroy_id(id))
		fail("rdma_destroy_id");
}

static void serve(const char *port)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *info;
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_id *listener, *id;

	if (rdma_getaddrinfo(NULL, port, &hints, &info))
		fail("rdma_getaddrinfo");
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, info->ai_src_addr) || rdma_listen(listener, 8))
		fail("listen");
	rdma_freeaddrinfo(info);
	for (;;) {
		switch (next_event(&id)) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			create_qp(id);
			if (rdma_accept(id, &param))
				fail("rdma_accept");
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
		case RDMA_CM_EVENT_REJECTED:
		case RDMA_CM_EVENT_CONNECT_ERROR:
		case RDMA_CM_EVENT_UNREACHABLE:
			destroy(id);
			break;
		default:
			break;
		}
	}
}

/* Lives through one connection, or an attempt at one. */
static void connect_once(const struct rdma_addrinfo *info)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct rdma_cm_id *id, *of;

	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, info->ai_dst_addr, 2000))
		fail("rdma_resolve_addr");
	for (;;) {
		switch (next_event(&of)) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			if (rdma_resolve_route(id, 2000))
				fail("rdma_resolve_route");
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			create_qp(id);
			if (rdma_connect(id, &param))
				fail("rdma_connect");
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			puts("connected");
			fflush(stdout);
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id); /* the answer; the peer may be gone */
			destroy(id);
			return;
		case RDMA_CM_EVENT_REJECTED:
		case RDMA_CM_EVENT_UNREACHABLE:
		case RDMA_CM_EVENT_CONNECT_ERROR:
			destroy(id);
			usleep(2000); /* nobody is there yet */
			return;
		default:
			fprintf(stderr, "an unexpected event\n");
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;

	channel = rdma_create_event_channel();
	if (!channel)
		fail("rdma_create_event_channel");
	if (argc == 2)
		serve(argv[1]);
	if (rdma_getaddrinfo(argv[2], argv[1], &hints, &info))
		fail("rdma_getaddrinfo");
	for (;;)
		connect_once(info);
}
