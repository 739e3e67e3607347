/*
 * Calls rdma_cm in any order: identifiers in states that do not allow the call, addresses that are
 * not there, parameters out of range, queue pairs of others. It wants each call to succeed or to
 * fail with an errno that is documented or that the Linux kernel answers with, and at the end
 * destroys everything. Events are taken and acknowledged as they come.
 *
 *   hostilecm SEED STEPS PORT [doomed]    uses ports from PORT on; doomed says that the NIC may
 *                                         vanish: then EIO is right
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ONE(...) one(COUNT(((const int[]){__VA_ARGS__})), (const int[]){__VA_ARGS__})

static struct rdma_event_channel *channels[3];
static struct rdma_cm_id *ids[24];
static size_t count;
static int first_port;
static uint64_t state;
static unsigned long granted, refused, failed, events, established;
static int doomed;
static const char *verb;

static uint32_t roll(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % n;
}

static int one(size_t n, const int *values)
{
	return values[roll((uint32_t)n)];
}

static void told(int result)
{
	static const int known[] = {
		EINVAL, ENODEV, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EOPNOTSUPP, ENOSYS, ENOMEM, EBUSY,
		ENOTCONN, EISCONN, EPERM, EACCES, ENETUNREACH, EHOSTUNREACH, EDESTADDRREQ, EALREADY,
	};

	if (!result) {
		granted++;
		return;
	}
	refused++;
	for (size_t i = 0; i < COUNT(known); i++) {
		if (errno == known[i])
			return;
	}
	if (doomed && errno == EIO)
		return;
	failed++;
	fprintf(stderr, "%s: errno %d (%s)\n", verb, errno, strerror(errno));
}

static struct rdma_cm_id *any(void)
{
	return count ? ids[roll((uint32_t)count)] : NULL;
}

static struct sockaddr_storage somewhere(void)
{
	struct sockaddr_storage out = {.ss_family = (sa_family_t)ONE(AF_INET, AF_INET, AF_INET,
									AF_INET6, AF_INET6, 77)};
	const in_port_t port = htons((uint16_t)(roll(6) ? first_port + (int)roll(4) : 0));

	if (out.ss_family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out;

		in6->sin6_port = port;
		in6->sin6_addr = roll(3) ? in6addr_loopback : in6addr_any;
		if (!roll(6))
			in6->sin6_addr.s6_addr[0] = 0xfe;
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)&out;

		in->sin_port = port;
		in->sin_addr.s_addr = htonl((uint32_t)ONE(0x7f000001, 0x7f000001, 0x7f000001, 0,
							  0x7f000002, (int)0xe0000005, (int)0xc6336401));
	}
	return out;
}

static void create_id(void)
{
	const struct sockaddr_in any_port = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)(first_port + (int)roll(4))),
	};
	struct rdma_cm_id *id;
	int result;

	if (count == COUNT(ids))
		return;
	result = rdma_create_id(channels[roll(COUNT(channels))], &id, NULL,
				(enum rdma_port_space)ONE(RDMA_PS_TCP, RDMA_PS_TCP, RDMA_PS_TCP,
							  RDMA_PS_UDP, RDMA_PS_IB, 0x7777));
	told(result);
	if (result)
		return;
	ids[count++] = id;
	if (!roll(3)) {
		told(rdma_bind_addr(id, (struct sockaddr *)&any_port));
		told(rdma_listen(id, 10));
	} else if (!roll(3)) {
		told(rdma_resolve_addr(id, NULL, (struct sockaddr *)&any_port, 100));
	}
}

static void end(size_t i)
{
	struct rdma_cm_id *id = ids[i];

	verb = "rdma_destroy_id";
	if (id->qp)
		rdma_destroy_qp(id);
	told(rdma_destroy_id(id));
	ids[i] = ids[--count];
}

static void destroy_id(void)
{
	if (count)
		end(roll((uint32_t)count));
}

static void bind_addr(void)
{
	struct sockaddr_storage addr = somewhere();

	if (any())
		told(rdma_bind_addr(any(), (struct sockaddr *)&addr));
}

static void resolve_addr(void)
{
	struct sockaddr_storage from = somewhere(), to = somewhere();

	if (any())
		told(rdma_resolve_addr(any(), roll(3) ? NULL : (struct sockaddr *)&from,
				       (struct sockaddr *)&to, ONE(100, 1, 0)));
}

static void resolve_route(void)
{
	if (any())
		told(rdma_resolve_route(any(), ONE(100, 1, 0)));
}

static void listen_id(void)
{
	if (any())
		told(rdma_listen(any(), ONE(0, 1, 100, -1)));
}

static void create_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = (uint32_t)ONE(1, 1, 0), .max_recv_wr = 1, .max_send_sge = 1,
			.max_recv_sge = (uint32_t)ONE(1, 1, 100)},
		.qp_type = (enum ibv_qp_type)ONE(IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UD, 99),
	};
	struct rdma_cm_id *id = any();

	if (id && id->qp)
		rdma_destroy_qp(id);
	else if (id)
		told(rdma_create_qp(id, NULL, &attr));
}

static struct rdma_conn_param parameters(void)
{
	static const char text[256] = "whatever";
	struct rdma_conn_param p = {
		.private_data = text, .private_data_len = (uint8_t)ONE(0, 8, 56, 200, 255),
		.responder_resources = (uint8_t)ONE(1, 16, 0, 255),
		.initiator_depth = (uint8_t)ONE(1, 16, 0, 255),
		.retry_count = (uint8_t)ONE(7, 0, 9), .rnr_retry_count = (uint8_t)ONE(7, 0, 9),
		.qp_num = roll(1 << 24),
	};

	return p;
}

static void connect_id(void)
{
	struct rdma_conn_param p = parameters();

	if (any())
		told(rdma_connect(any(), roll(6) ? &p : NULL));
}

static void accept_id(void)
{
	struct rdma_conn_param p = parameters();

	if (any())
		told(rdma_accept(any(), roll(3) ? &p : NULL));
}

static void reject(void)
{
	struct rdma_conn_param p = parameters();

	if (any())
		told(rdma_reject(any(), p.private_data, p.private_data_len));
}

static void disconnect(void)
{
	if (any())
		told(rdma_disconnect(any()));
}

static void establish(void)
{
	if (any())
		told(roll(2) ? rdma_establish(any())
			     : rdma_notify(any(), (enum ibv_event_type)ONE(IBV_EVENT_COMM_EST, 0, 99)));
}

static void set_option(void)
{
	uint8_t value[16] = {(uint8_t)roll(256)};

	if (any())
		told(rdma_set_option(any(), ONE(RDMA_OPTION_ID, RDMA_OPTION_ID, RDMA_OPTION_IB, 9),
				     ONE(0, 1, 2, 3, 77), value, (size_t)ONE(1, 4, 16, 0)));
}

static void init_qp_attr(void)
{
	struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)roll(8)};
	int mask;

	if (any())
		told(rdma_init_qp_attr(any(), &attr, &mask));
}

static void migrate(void)
{
	if (any())
		told(rdma_migrate_id(any(), channels[roll(COUNT(channels))]));
}

static void multicast(void)
{
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xe0010203)};

	if (any())
		told(roll(3) ? rdma_join_multicast(any(), (struct sockaddr *)&group, NULL)
			     : rdma_leave_multicast(any(), (struct sockaddr *)&group));
}

/* follow does what a good program would, mostly, so that some connections come to be. */
static void follow(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param p = {.retry_count = 7, .rnr_retry_count = 7};

	if (!roll(4))
		return;
	if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		told(rdma_resolve_route(id, 100));
		return;
	}
	if (type == RDMA_CM_EVENT_ESTABLISHED)
		established++;
	if (type != RDMA_CM_EVENT_ROUTE_RESOLVED && type != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	if (!id->qp && id->verbs && id->ps == RDMA_PS_TCP)
		told(rdma_create_qp(id, NULL, &attr));
	told(type == RDMA_CM_EVENT_ROUTE_RESOLVED ? rdma_connect(id, &p) : rdma_accept(id, &p));
}

static void take_events(void)
{
	struct rdma_cm_event *event;

	if (!roll(4))
		usleep(1000);

	for (size_t i = 0; i < COUNT(channels); i++) {
		while (!rdma_get_cm_event(channels[i], &event)) {
			struct rdma_cm_id *id = event->id;
			const enum rdma_cm_event_type type = event->event;

			events++;
			rdma_ack_cm_event(event);
			if (type == RDMA_CM_EVENT_CONNECT_REQUEST && count == COUNT(ids)) {
				rdma_destroy_id(id);
				continue;
			}
			if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
				ids[count++] = id;
			follow(type, id);
		}
	}
}

static const struct {
	const char *name;
	void (*call)(void);
} verbs[] = {
	{"rdma_create_id", create_id}, {"rdma_create_id", create_id}, {"rdma_destroy_id", destroy_id},
	{"rdma_bind_addr", bind_addr}, {"rdma_resolve_addr", resolve_addr},
	{"rdma_resolve_addr", resolve_addr}, {"rdma_resolve_route", resolve_route},
	{"rdma_resolve_route", resolve_route}, {"rdma_listen", listen_id}, {"rdma_create_qp", create_qp},
	{"rdma_create_qp", create_qp}, {"rdma_connect", connect_id}, {"rdma_connect", connect_id},
	{"rdma_connect", connect_id}, {"rdma_accept", accept_id}, {"rdma_accept", accept_id},
	{"rdma_reject", reject}, {"rdma_disconnect", disconnect}, {"rdma_establish", establish},
	{"rdma_set_option", set_option}, {"rdma_init_qp_attr", init_qp_attr}, {"rdma_migrate_id", migrate},
	{"rdma_join_multicast", multicast}, {"rdma_get_cm_event", take_events},
	{"rdma_get_cm_event", take_events},
};

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	doomed = argc == 5;
	state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15 | 1;
	first_port = atoi(argv[3]);
	for (size_t i = 0; i < COUNT(channels); i++) {
		channels[i] = rdma_create_event_channel();
		if (!channels[i])
			return 2;
		fcntl(channels[i]->fd, F_SETFL, O_NONBLOCK);
	}
	for (unsigned long i = 0; i < strtoul(argv[2], NULL, 10); i++) {
		const size_t k = roll(COUNT(verbs));

		verb = verbs[k].name;
		verbs[k].call();
	}
	while (count) {
		end(count - 1);
		take_events();
	}
	for (size_t i = 0; i < COUNT(channels); i++)
		rdma_destroy_event_channel(channels[i]);
	printf("%lu granted, %lu refused, %lu events, %lu ends connected\n", granted, refused, events,
	       established);
	return failed > 0;
}
