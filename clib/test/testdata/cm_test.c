/* SPDX-License-Identifier: Apache-2.0 */
/* Connections, over a NIC that connects ids to each other. */
#include "cm.h"

/* Two ids of one program on one channel, connected. */
struct link {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *client, *server;
};

/* Has the client ask and returns the request, not yet acknowledged. */
static struct rdma_cm_event *link_ask(struct link *l, struct rdma_conn_param *param)
{
	struct rdma_cm_event *event;

	l->channel = rdma_create_event_channel();
	CHECK(l->channel);
	l->listener = cm_listen(l->channel, 7471, RDMA_PS_TCP);
	l->client = cm_resolve(l->channel, 7471, RDMA_PS_TCP);
	cm_make_qp(l->client, IBV_QPT_RC);
	CHECK(cm_state(l->client) == IBV_QPS_INIT);
	CHECK(rdma_connect(l->client, param) == 0);
	event = cm_expect(l->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == l->listener && event->status == 0);
	l->server = event->id;
	CHECK(l->server != l->listener && l->server->context == (void *)0x11);
	CHECK(l->server->verbs == l->client->verbs && l->server->channel == l->channel);
	return event;
}

static void link_make(struct link *l)
{
	CHECK(rdma_ack_cm_event(link_ask(l, NULL)) == 0);
	cm_make_qp(l->server, IBV_QPT_RC);
	CHECK(rdma_accept(l->server, NULL) == 0);
	CHECK(cm_state(l->server) == IBV_QPS_RTS);
	cm_skip(l->channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(cm_state(l->client) == IBV_QPS_RTS);
	cm_skip(l->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void link_end(struct link *l)
{
	cm_destroy(l->client);
	cm_destroy(l->server);
	CHECK(rdma_destroy_id(l->listener) == 0);
	CHECK(!cm_is_readable(l->channel));
	rdma_destroy_event_channel(l->channel);
}

static void test_connect(void)
{
	struct rdma_conn_param param = {
		.private_data = "hello",
		.private_data_len = 6,
		.responder_resources = 3,
		.initiator_depth = 4,
		.retry_count = 5,
		.rnr_retry_count = 6,
		.flow_control = 1,
	};
	struct rdma_cm_event *event;
	struct link l;

	event = link_ask(&l, &param);
	CHECK(event->param.conn.private_data_len == 6);
	CHECK(!memcmp(event->param.conn.private_data, "hello", 6));
	CHECK(event->param.conn.responder_resources == 4 && event->param.conn.retry_count == 5);
	CHECK(event->param.conn.initiator_depth == 3 && event->param.conn.rnr_retry_count == 6);
	CHECK(event->param.conn.qp_num == l.client->qp->qp_num && event->param.conn.flow_control);
	CHECK(rdma_get_dst_port(l.server) == rdma_get_src_port(l.client));
	cm_make_qp(l.server, IBV_QPT_RC);
	param.private_data = "you too";
	param.private_data_len = 8;
	CHECK(rdma_accept(l.server, &param) == 0);
	CHECK(rdma_ack_cm_event(event) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == l.client && !strcmp(event->param.conn.private_data, "you too"));
	CHECK(rdma_ack_cm_event(event) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == l.server && !event->param.conn.private_data);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_notify(l.server, IBV_EVENT_COMM_EST) == -1 && errno == EISCONN);
	CHECK(rdma_notify(l.server, IBV_EVENT_QP_FATAL) == -1 && errno == EINVAL);
	CHECK(rdma_establish(l.client) == -1 && errno == EINVAL);
	CHECK(rdma_disconnect(l.client) == 0 && cm_state(l.client) == IBV_QPS_ERR);
	cm_skip(l.channel, RDMA_CM_EVENT_DISCONNECTED);
	cm_skip(l.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
	cm_skip(l.channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(cm_state(l.server) == IBV_QPS_RTS);
	CHECK(rdma_disconnect(l.server) == 0);
	CHECK(cm_state(l.server) == IBV_QPS_ERR);
	link_end(&l); /* an event for the server is still there, and goes with it */
}

/* A program that looks after its QPs itself. */
static void test_external(void)
{
	struct rdma_conn_param param = {.qp_num = 0x1234, .srq = 1};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = cm_listen(channel, 7471, RDMA_PS_TCP), *server;
	struct rdma_cm_id *client = cm_resolve(channel, 7471, RDMA_PS_TCP);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct rdma_cm_event *event;
	struct ibv_ece ece = {0};
	int mask = 0;

	/* Options of its vendor travel with it. */
	CHECK(rdma_set_local_ece(client, &ece) == -1 && errno == EINVAL);
	CHECK(rdma_get_remote_ece(client, NULL) == -1 && errno == EINVAL);
	ece = (struct ibv_ece){.vendor_id = 0x15b3, .options = 0x10000001};
	CHECK(rdma_set_local_ece(client, &ece) == 0);
	CHECK(rdma_connect(client, &param) == 0);
	event = cm_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->param.conn.qp_num == 0x1234 && event->param.conn.srq == 1);
	server = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	ece = (struct ibv_ece){0};
	CHECK(rdma_get_remote_ece(server, &ece) == 0);
	CHECK(ece.vendor_id == 0x15b3 && ece.options == 0x10000001 && ece.comp_mask == 0);
	ece.options = 1;
	CHECK(rdma_set_local_ece(server, &ece) == 0);
	param.qp_num = 0x4321;
	CHECK(rdma_init_qp_attr(server, &attr, &mask) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTR && attr.dest_qp_num == 77 && (mask & IBV_QP_DEST_QPN));
	CHECK(rdma_accept(server, &param) == 0);
	event = cm_expect(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(event->id == client && event->param.conn.qp_num == 0x4321);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_get_remote_ece(client, &ece) == 0 && ece.options == 1);
	CHECK(rdma_establish(client) == 0);
	cm_skip(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_destroy_id(client) == 0);
	cm_skip(channel, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_destroy_id(server) == 0 && rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(channel);
}

static void test_refusals(void)
{
	struct rdma_conn_param param = {.initiator_depth = 200};
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct sockaddr_in in;
	struct ibv_qp_init_attr attr = cm_qp_attr(IBV_QPT_RC);
	struct link l;

	/* Turned down, with data; the QP fails. */
	CHECK(rdma_ack_cm_event(link_ask(&l, NULL)) == 0);
	CHECK(rdma_reject(l.server, "no", 3) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == l.client && event->status == 28);
	CHECK(!strcmp(event->param.conn.private_data, "no"));
	CHECK(rdma_ack_cm_event(event) == 0 && cm_state(l.client) == IBV_QPS_ERR);
	CHECK(rdma_destroy_id(l.server) == 0);
	/* By its vendor's options. */
	CHECK(rdma_connect(l.client, NULL) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	l.server = event->id;
	CHECK(rdma_reject_ece(l.server, NULL, 0) == 0 && rdma_ack_cm_event(event) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 35 && rdma_ack_cm_event(event) == 0);
	/* More than the device has. */
	CHECK(rdma_connect(l.client, &param) == -1 && errno == EINVAL);
	/* Twice. */
	CHECK(rdma_create_qp(l.client, NULL, &attr) == -1 && errno == EINVAL);
	link_end(&l);

	l.channel = rdma_create_event_channel();
	id = cm_resolve(l.channel, 9, RDMA_PS_TCP); /* nobody listens */
	CHECK(rdma_connect(id, NULL) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_REJECTED);
	CHECK(event->status == 8 && rdma_ack_cm_event(event) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(rdma_create_id(l.channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, cm_addr(&in, "192.0.2.99", 1), 1000) == 0);
	event = cm_expect(l.channel, RDMA_CM_EVENT_ADDR_ERROR);
	CHECK(event->status == -EHOSTUNREACH && rdma_ack_cm_event(event) == 0);
	in.sin_family = AF_UNIX;
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&in) == -1 && errno == EAFNOSUPPORT);
	/* Without a device there is nothing to make a QP on, nor to connect with. */
	CHECK(rdma_create_qp(id, NULL, &attr) == -1 && errno == EINVAL);
	CHECK(rdma_connect(id, NULL) == -1 && errno == EINVAL);
	CHECK(rdma_accept(id, NULL) == -1 && errno == EINVAL);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(l.channel);
}

static void test_options(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	uint8_t tos = 0x68, timeout = 17;
	int on = 1;
	char path[64];

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, 0, path, sizeof(path)) == -1 && errno == EINVAL);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, 0, NULL, 1) == -1 && errno == EINVAL);
	CHECK(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, path, sizeof(path)) == -1);
	CHECK(errno == EOPNOTSUPP);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static void test_devices(void)
{
	int count = -1;
	struct ibv_context **list = rdma_get_devices(&count), **again;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = cm_resolve(channel, 1, RDMA_PS_TCP);

	CHECK(list && count == 1 && list[0] && !list[1]);
	CHECK(!strcmp(ibv_get_device_name(list[0]->device), "rnic0"));
	again = rdma_get_devices(NULL);
	CHECK(again && again[0] == list[0] && id->verbs == list[0]);
	rdma_free_devices(list);
	rdma_free_devices(again);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	for (int type = 0; type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++)
		CHECK(!strncmp(rdma_event_str((enum rdma_cm_event_type)type), "RDMA_CM_EVENT_", 14));
	CHECK(!strcmp(rdma_event_str((enum rdma_cm_event_type)16), "UNKNOWN EVENT"));
}

/* Ids that insist on the second of two devices, which therefore is listed first. */
static void test_second_device(void)
{
	int count = -1;
	struct ibv_context **list = rdma_get_devices(&count);
	struct link l;

	CHECK(list && count == 2);
	CHECK(!strcmp(ibv_get_device_name(list[0]->device), "iwarp0"));
	link_make(&l);
	CHECK(l.client->verbs == list[0] && l.server->verbs == list[0]);
	CHECK(l.client->pd->context == list[0] && l.server->qp->context == list[0]);
	link_end(&l);
	rdma_free_devices(list);
}

static void test_wrong_device(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	for (int i = 0; i < 2; i++) {
		CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == -1);
		CHECK(errno == ENODEV);
	}
	rdma_destroy_event_channel(channel);
}

static void test_datagrams(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener = cm_listen(channel, 7174, RDMA_PS_UDP), *server;
	struct rdma_cm_id *client = cm_resolve(channel, 7174, RDMA_PS_UDP);
	struct rdma_conn_param param = {.private_data = "who", .private_data_len = 4};
	struct rdma_cm_event *event;
	struct ibv_ah *ah;

	cm_make_qp(client, IBV_QPT_UD);
	CHECK(cm_state(client) == IBV_QPS_RTS);
	CHECK(rdma_connect(client, &param) == 0);
	event = cm_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!strcmp(event->param.ud.private_data, "who"));
	server = event->id;
	CHECK(server->qp_type == IBV_QPT_UD && server->ps == RDMA_PS_UDP);
	cm_make_qp(server, IBV_QPT_UD);
	CHECK(rdma_accept(server, NULL) == 0 && rdma_ack_cm_event(event) == 0);
	event = cm_expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(event->id == client && event->param.ud.qp_num == server->qp->qp_num);
	CHECK(event->param.ud.qkey == RDMA_UDP_QKEY && !event->param.ud.private_data);
	ah = ibv_create_ah(client->pd, &event->param.ud.ah_attr);
	CHECK(ah && ibv_destroy_ah(ah) == 0 && rdma_ack_cm_event(event) == 0);
	cm_destroy(client);
	cm_destroy(server);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(channel);
}

static void test_multicast(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct sockaddr_in in, group, other;
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
		.addr = cm_addr(&other, "239.1.1.2", 0),
	};
	union ibv_gid gid;
	struct rdma_cm_event *event;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) == 0);
	CHECK(rdma_bind_addr(id, cm_addr(&in, "192.0.2.1", 0)) == 0 && id->verbs);
	cm_make_qp(id, IBV_QPT_UD);
	CHECK(rdma_join_multicast(id, cm_addr(&group, "239.1.1.1", 0), &gid) == 0);
	event = cm_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	CHECK(event->param.ud.private_data == &gid && event->param.ud.qp_num == 0xffffff);
	gid = event->param.ud.ah_attr.grh.dgid;
	CHECK(rdma_ack_cm_event(event) == 0);
	/* The QP has been attached. */
	CHECK(ibv_attach_mcast(id->qp, &gid, 0xc001) == EINVAL);
	CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group) == 0);
	CHECK(ibv_detach_mcast(id->qp, &gid, 0xc001) == EINVAL);
	CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group) == -1 && errno == EADDRNOTAVAIL);
	/* A sender only is not. */
	CHECK(rdma_join_multicast_ex(id, &attr, NULL) == 0);
	event = cm_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
	gid = event->param.ud.ah_attr.grh.dgid;
	CHECK(ibv_detach_mcast(id->qp, &gid, 0xc001) == EINVAL);
	CHECK(rdma_ack_cm_event(event) == 0);
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	CHECK(rdma_join_multicast_ex(id, &attr, NULL) == -1 && errno == EINVAL);
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_RESERVED;
	CHECK(rdma_join_multicast_ex(id, &attr, NULL) == -1 && errno == ENOTSUP);
	/* A QP goes although the id is still a member. */
	CHECK(rdma_join_multicast(id, (struct sockaddr *)&group, &gid) == 0);
	CHECK(rdma_ack_cm_event(cm_expect(channel, RDMA_CM_EVENT_MULTICAST_JOIN)) == 0);
	cm_destroy(id); /* leaves both groups */
	rdma_destroy_event_channel(channel);
}

/* Receives of an SRQ that the id got before its QP. */
static void test_srq(void)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq_init_attr_ex xrc = {
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_XRC,
	};
	struct rdma_cm_event *event;
	struct link l;
	char buf[64];
	struct ibv_mr *mr;

	event = link_ask(&l, NULL);
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(rdma_create_srq_ex(l.server, &xrc) == -1 && errno == EOPNOTSUPP);
	CHECK(rdma_create_srq(l.server, NULL, &srq) == 0 && l.server->srq);
	CHECK(rdma_create_srq(l.server, NULL, &srq) == -1 && errno == EINVAL);
	cm_make_qp(l.server, IBV_QPT_RC);
	CHECK(l.server->qp->srq == l.server->srq && l.server->recv_cq->cqe >= 16);
	mr = rdma_reg_msgs(l.server, buf, sizeof(buf));
	CHECK(mr && rdma_post_recv(l.server, NULL, buf, sizeof(buf), mr) == 0);
	CHECK(rdma_accept(l.server, NULL) == 0);
	cm_skip(l.channel, RDMA_CM_EVENT_ESTABLISHED);
	cm_skip(l.channel, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_dereg_mr(mr) == 0);
	rdma_destroy_qp(l.server);
	rdma_destroy_srq(l.server);
	CHECK(!l.server->srq);
	link_end(&l);
}

static void test_events(void);
static void test_walk(void);

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"connect", test_connect},
		{"external", test_external},
		{"refusals", test_refusals},
		{"options", test_options},
		{"devices", test_devices},
		{"second_device", test_second_device},
		{"wrong_device", test_wrong_device},
		{"datagrams", test_datagrams},
		{"multicast", test_multicast},
		{"srq", test_srq},
		{"events", test_events},
		{"walk", test_walk},
	};

	return RUN_CASES(cases, argc, argv);
}

/* What programs get wrong with events. */
static void test_events(void)
{
	struct link l;
	struct rdma_cm_event *event = NULL;

	link_make(&l);
	CHECK(rdma_get_cm_event(NULL, &event) == -1 && errno == EINVAL);
	CHECK(rdma_get_cm_event(l.channel, NULL) == -1 && errno == EINVAL);
	CHECK(rdma_ack_cm_event(NULL) == -1 && errno == EINVAL);
	CHECK(fcntl(l.channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rdma_get_cm_event(l.channel, &event) == -1 && errno == EAGAIN);
	CHECK(rdma_disconnect(l.server) == 0 && cm_is_readable(l.channel));
	cm_skip(l.channel, RDMA_CM_EVENT_DISCONNECTED);
	link_end(&l);
}

/* Everything once, with no regard to what comes of it: the NIC's answers are spoiled. */
static void test_walk(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = NULL, *listener = NULL, *child = NULL;
	struct rdma_cm_event *event;
	struct ibv_qp_init_attr attr = cm_qp_attr(IBV_QPT_UD);
	struct sockaddr_in in;
	int value = 1;

	if (!channel)
		return;
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	rdma_create_id(channel, &listener, NULL, RDMA_PS_UDP);
	if (listener) {
		rdma_bind_addr(listener, cm_addr(&in, "0.0.0.0", 7471));
		rdma_listen(listener, 1);
	}
	rdma_create_id(channel, &id, NULL, RDMA_PS_UDP);
	if (id) {
		rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value, 4);
		rdma_resolve_addr(id, NULL, cm_addr(&in, "192.0.2.1", 7471), 1);
		rdma_resolve_route(id, 1);
	}
	for (int i = 0; i < 2 && !rdma_get_cm_event(channel, &event); i++)
		rdma_ack_cm_event(event);
	if (id && !rdma_create_qp(id, NULL, &attr)) {
		rdma_join_multicast(id, cm_addr(&in, "239.1.1.1", 0), NULL);
		rdma_connect(id, NULL);
	}
	for (int i = 0; i < 4 && !rdma_get_cm_event(channel, &event); i++) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			child = event->id;
			rdma_accept(event->id, NULL);
			rdma_reject(event->id, NULL, 0);
		}
		rdma_ack_cm_event(event);
	}
	if (id) {
		rdma_leave_multicast(id, (struct sockaddr *)&in);
		rdma_migrate_id(id, NULL);
		rdma_disconnect(id);
		rdma_destroy_ep(id);
	}
	if (child)
		rdma_destroy_id(child);
	if (listener)
		rdma_destroy_id(listener);
	rdma_destroy_event_channel(channel);
}
