/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronous ids, endpoints and names. */
#include <netdb.h>

#include "cm.h"

static struct rdma_addrinfo *look_up(const char *node, int flags, int ps)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = ps}, *res;

	CHECK(rdma_getaddrinfo(node, "7471", &hints, &res) == 0);
	return res;
}

static void serve(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;
	struct rdma_conn_param param = {.private_data = "welcome", .private_data_len = 8};

	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(id->qp && id->qp->qp_type == IBV_QPT_RC && id->channel != listener->channel);
	CHECK(id->event && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!strcmp(id->event->param.conn.private_data, "before after"));
	CHECK(rdma_accept(id, &param) == 0);
	CHECK(id->event->event == RDMA_CM_EVENT_ESTABLISHED);
	/* Whoever ends it, it ends once; ending it again waits for nothing. */
	CHECK(rdma_disconnect(id) == 0 && id->event->event == RDMA_CM_EVENT_DISCONNECTED);
	CHECK(rdma_disconnect(id) == 0);
	rdma_destroy_ep(id);
}

static void *serve_all(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;

	serve(listener);
	serve(listener);
	CHECK(rdma_get_request(listener, &id) == 0);
	CHECK(rdma_reject(id, NULL, 0) == 0 && !id->event);
	rdma_destroy_ep(id);
	return NULL;
}

static void test_endpoints(void)
{
	struct ibv_qp_init_attr attr = cm_qp_attr(IBV_QPT_UD), again; /* the type follows the id's */
	struct rdma_addrinfo *passive = look_up(NULL, RAI_PASSIVE, RDMA_PS_TCP);
	struct rdma_addrinfo *active = look_up("192.0.2.1", RAI_NUMERICHOST, RDMA_PS_TCP);
	struct rdma_conn_param param = {.private_data = "after", .private_data_len = 6};
	struct rdma_cm_id *listener, *id;
	pthread_t thread;

	active->ai_connect = strdup("before ");
	active->ai_connect_len = 7;
	CHECK(rdma_create_ep(&listener, passive, NULL, &attr) == 0 && !listener->qp);
	CHECK(rdma_listen(listener, 0) == 0);
	again = attr;
	CHECK(rdma_create_ep(&id, active, NULL, &again) == 0);
	CHECK(id->qp && again.qp_type == IBV_QPT_RC && id->route.num_paths == 1);
	CHECK(rdma_get_request(id, &id) == -1 && errno == EINVAL); /* it does not listen */
	CHECK(pthread_create(&thread, NULL, serve_all, listener) == 0);
	CHECK(rdma_connect(id, &param) == 0);
	CHECK(!strcmp(id->event->param.conn.private_data, "welcome"));
	CHECK(cm_state(id) == IBV_QPS_RTS);
	CHECK(rdma_disconnect(id) == 0 && cm_state(id) == IBV_QPS_ERR);
	rdma_destroy_ep(id);
	/* Without a QP of the id's, the program is told of the response. */
	CHECK(rdma_create_ep(&id, active, NULL, NULL) == 0);
	CHECK(rdma_connect(id, &param) == 0);
	CHECK(id->event->event == RDMA_CM_EVENT_CONNECT_RESPONSE && rdma_establish(id) == 0);
	CHECK(rdma_disconnect(id) == 0 && rdma_disconnect(id) == 0);
	rdma_destroy_ep(id);
	CHECK(rdma_create_ep(&id, active, NULL, NULL) == 0 && !id->qp);
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	CHECK(id->event->status == 28);
	rdma_destroy_ep(id);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_ep(listener);
	CHECK(rdma_create_ep(&id, active, NULL, NULL) == 0);
	CHECK(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED && id->event->status == 8);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(passive);
	rdma_freeaddrinfo(active);
	active = look_up("192.0.2.99", 0, RDMA_PS_TCP);
	CHECK(rdma_create_ep(&id, active, NULL, NULL) == -1 && errno == EHOSTUNREACH);
	rdma_freeaddrinfo(active);
}

/* Neither names nor addresses: the answer repeats the hints, and makes no endpoint. */
static void test_no_address(void)
{
	static const int flags[] = {RAI_PASSIVE, 0};

	for (size_t i = 0; i < 2; i++) {
		struct rdma_addrinfo hints = {.ai_flags = flags[i], .ai_family = AF_INET6}, *res;
		struct rdma_cm_id *id;

		CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &res) == 0 && !res->ai_next);
		CHECK(res->ai_flags == flags[i] && res->ai_family == AF_INET6);
		CHECK(!res->ai_src_addr && !res->ai_src_len);
		CHECK(!res->ai_dst_addr && !res->ai_dst_len);
		CHECK(rdma_create_ep(&id, res, NULL, NULL) == -1 && errno == EINVAL);
		rdma_freeaddrinfo(res);
	}
}

static void test_names(void)
{
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
	struct sockaddr_in in;

	res = look_up("127.0.0.1", RAI_NUMERICHOST | RAI_NOROUTE, RDMA_PS_UDP);
	CHECK(res->ai_family == AF_INET && res->ai_qp_type == IBV_QPT_UD && !res->ai_next);
	CHECK(res->ai_port_space == RDMA_PS_UDP && res->ai_dst_len == sizeof(in));
	memcpy(&in, res->ai_dst_addr, sizeof(in));
	CHECK(in.sin_port == htons(7471) && in.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	/* The source that the host would take. */
	CHECK(res->ai_src_len == sizeof(in) && res->ai_src_addr->sa_family == AF_INET);
	memcpy(&in, res->ai_src_addr, sizeof(in));
	CHECK(in.sin_port == 0 && in.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	rdma_freeaddrinfo(res);

	res = look_up(NULL, RAI_PASSIVE, RDMA_PS_TCP);
	CHECK(res->ai_flags == RAI_PASSIVE && res->ai_qp_type == IBV_QPT_RC && res->ai_src_len);
	CHECK(!res->ai_dst_len && !res->ai_dst_addr && !res->ai_connect_len && !res->ai_route_len);
	rdma_freeaddrinfo(res);

	/* Addresses in place of names. */
	hints.ai_src_addr = cm_addr(&in, "192.0.2.1", 80);
	hints.ai_src_len = sizeof(in);
	CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &res) == 0);
	CHECK(!memcmp(res->ai_src_addr, &in, sizeof(in)));
	rdma_freeaddrinfo(res);
	hints.ai_flags = 0;
	CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &res) == 0);
	CHECK(!memcmp(res->ai_src_addr, &in, sizeof(in)) && !res->ai_dst_len);
	rdma_freeaddrinfo(res);
	hints.ai_dst_addr = hints.ai_src_addr;
	hints.ai_dst_len = 3;
	CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &res) == EAI_NONAME);
	test_no_address();
	hints.ai_src_len = sizeof(in);
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res) == 0);
	CHECK(!memcmp(res->ai_src_addr, &in, sizeof(in)));
	rdma_freeaddrinfo(res);
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, NULL, &res) == 0);
	CHECK(res->ai_port_space == RDMA_PS_TCP && res->ai_qp_type == IBV_QPT_RC);
	rdma_freeaddrinfo(res);

	CHECK(rdma_getaddrinfo(NULL, NULL, NULL, &res) == -1 && errno == EINVAL);
	hints.ai_flags = 0x1000;
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res) == EAI_BADFLAGS);
	hints.ai_flags = RAI_NUMERICHOST;
	CHECK(rdma_getaddrinfo("localhost", NULL, &hints, &res) == EAI_NONAME);
	hints.ai_qp_type = IBV_QPT_UD;
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res) == EAI_SOCKTYPE);
	hints = (struct rdma_addrinfo){.ai_family = AF_INET6, .ai_flags = RAI_FAMILY};
	CHECK(rdma_getaddrinfo("127.0.0.1", NULL, &hints, &res) != 0);
	CHECK(rdma_getaddrinfo("::1", NULL, &hints, &res) == 0 && res->ai_family == AF_INET6);
	rdma_freeaddrinfo(res);
	rdma_freeaddrinfo(NULL);
}

static void test_no_nic(void)
{
	struct rdma_cm_id *id;
	int count = 7;

	CHECK(!rdma_create_event_channel() && errno == ENODEV);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1 && errno == ENODEV);
	CHECK(!rdma_get_devices(&count) && errno == ENODEV && count == 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"endpoints", test_endpoints},
		{"names", test_names},
		{"no_nic", test_no_nic},
	};

	return RUN_CASES(cases, argc, argv);
}
