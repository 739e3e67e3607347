/* SPDX-License-Identifier: Apache-2.0 */
/* Where events of connections go, who waits for them, and what ends the wait. */
#include "cm.h"

struct acker {
	struct rdma_cm_event *event;
	atomic_bool acked;
};

static void *ack_later(void *arg)
{
	struct acker *acker = arg;

	usleep(50000);
	atomic_store(&acker->acked, true);
	CHECK(rdma_ack_cm_event(acker->event) == 0);
	return NULL;
}

static struct rdma_cm_id *resolve_only(struct rdma_event_channel *channel)
{
	struct sockaddr_in in;
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, cm_addr(&in, "192.0.2.1", 7471), 1000) == 0);
	return id;
}

/* Destroying and migrating wait for acknowledgements; a request counts at its listener. */
static void test_ack(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *listener = cm_listen(channel, 7471, RDMA_PS_TCP);
	struct rdma_cm_id *id = resolve_only(channel), *server;
	struct acker acker = {0};
	pthread_t thread;

	acker.event = cm_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(pthread_create(&thread, NULL, ack_later, &acker) == 0);
	CHECK(rdma_migrate_id(id, other) == 0 && atomic_load(&acker.acked) && id->channel == other);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	acker.event = cm_expect(other, RDMA_CM_EVENT_ROUTE_RESOLVED);
	atomic_store(&acker.acked, false);
	CHECK(pthread_create(&thread, NULL, ack_later, &acker) == 0);
	CHECK(rdma_destroy_id(id) == 0 && atomic_load(&acker.acked));
	CHECK(pthread_join(thread, NULL) == 0);

	id = cm_resolve(channel, 7471, RDMA_PS_TCP);
	CHECK(rdma_connect(id, NULL) == 0);
	acker.event = cm_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = acker.event->id;
	CHECK(rdma_destroy_id(server) == 0);
	cm_skip(channel, RDMA_CM_EVENT_REJECTED);
	atomic_store(&acker.acked, false);
	CHECK(pthread_create(&thread, NULL, ack_later, &acker) == 0);
	CHECK(rdma_destroy_id(listener) == 0 && atomic_load(&acker.acked));
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
	rdma_destroy_event_channel(other);
}

static void *ack_after_log(void *arg)
{
	struct acker *acker = arg;

	usleep(1500000);
	CHECK(rdma_ack_cm_event(acker->event) == 0);
	return NULL;
}

/* Long waits say what they wait for. */
static void test_ack_log(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = resolve_only(channel);
	struct acker acker = {.event = cm_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED)};
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, ack_after_log, &acker) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_event_channel(channel);
}

static void no_action(int signal)
{
	(void)signal;
}

static void *resolve_later(void *arg)
{
	usleep(150000);
	return resolve_only(arg);
}

/* A signal ends the wait, unless its handler says that it should go on. */
static void test_signal(void)
{
	struct sigaction action = {.sa_handler = no_action};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	sigset_t alarm;
	pthread_t thread;
	void *id;

	/* The signal is for this thread. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK(pthread_sigmask(SIG_BLOCK, &alarm, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, resolve_later, channel) == 0);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &alarm, NULL) == 0);
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	ualarm(50000, 0);
	CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EINTR);
	action.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	ualarm(50000, 0);
	cm_skip(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(pthread_join(thread, &id) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

/* Events of an id that is gone neither come nor make the channel readable. */
static void test_purge(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *ids[40], *listener = cm_listen(channel, 7471, RDMA_PS_TCP);
	struct rdma_cm_id *client = cm_resolve(channel, 7471, RDMA_PS_TCP);
	struct rdma_cm_event *event;

	for (int i = 0; i < 40; i++)
		ids[i] = resolve_only(channel);
	for (int i = 0; i < 40; i += 2)
		CHECK(rdma_destroy_id(ids[i]) == 0);
	CHECK(cm_is_readable(channel));
	for (int i = 1; i < 40; i += 2) {
		CHECK(rdma_resolve_route(ids[i], 1000) == 0); /* its event comes after the others */
		event = cm_expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(event->id == ids[i] && rdma_ack_cm_event(event) == 0);
	}
	for (int i = 1; i < 40; i += 2) {
		CHECK(cm_is_readable(channel));
		event = cm_expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
		CHECK(event->id == ids[i] && rdma_ack_cm_event(event) == 0);
		CHECK(rdma_destroy_id(ids[i]) == 0);
	}
	CHECK(!cm_is_readable(channel));
	/* A request that nobody took is turned down with its listener. */
	CHECK(rdma_connect(client, NULL) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	cm_skip(channel, RDMA_CM_EVENT_REJECTED);
	CHECK(!cm_is_readable(channel));
	CHECK(rdma_destroy_id(client) == 0);
	rdma_destroy_event_channel(channel);
}

/* An id takes along what waits for it, in its order, and nothing of others'. */
static void test_migrate(void)
{
	struct rdma_event_channel *from = rdma_create_event_channel();
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct rdma_cm_id *listener = cm_listen(from, 7471, RDMA_PS_TCP);
	struct rdma_cm_id *client = cm_resolve(from, 7471, RDMA_PS_TCP);
	struct rdma_cm_id *first = resolve_only(from), *second = resolve_only(from);
	struct rdma_cm_event *event;

	CHECK(rdma_connect(client, NULL) == 0);
	CHECK(rdma_destroy_id(resolve_only(from)) == 0);
	CHECK(rdma_migrate_id(second, to) == 0 && second->channel == to);
	CHECK(rdma_resolve_route(second, 1000) == 0);
	event = cm_expect(to, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == second && rdma_ack_cm_event(event) == 0);
	event = cm_expect(to, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(event->id == second && rdma_ack_cm_event(event) == 0);
	CHECK(!cm_is_readable(to));
	/* The listener's request comes along, and what has become of it since. */
	CHECK(rdma_destroy_id(client) == 0);
	CHECK(rdma_migrate_id(listener, to) == 0);
	event = cm_expect(to, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == listener && event->id->channel == to);
	client = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	event = cm_expect(to, RDMA_CM_EVENT_REJECTED);
	CHECK(event->id == client && rdma_ack_cm_event(event) == 0);
	event = cm_expect(from, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(event->id == first && rdma_ack_cm_event(event) == 0);
	CHECK(!cm_is_readable(from) && !cm_is_readable(to));
	/* To itself, into synchronous operation, and back. */
	CHECK(rdma_migrate_id(first, from) == 0);
	CHECK(rdma_migrate_id(first, NULL) == 0 && first->channel != from);
	CHECK(rdma_resolve_route(first, 1000) == 0 && first->route.num_paths == 1);
	CHECK(rdma_migrate_id(first, NULL) == 0 && rdma_migrate_id(first, from) == 0);
	CHECK(!first->event && !cm_is_readable(from));
	CHECK(rdma_destroy_id(first) == 0 && rdma_destroy_id(second) == 0);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* Accepted ids end with their listener's channel, unless they have left it. */
static void test_channel_end(void)
{
	struct rdma_event_channel *servers = rdma_create_event_channel();
	struct rdma_event_channel *clients = rdma_create_event_channel();
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *listener = cm_listen(servers, 7471, RDMA_PS_TCP), *server[2], *client[2];
	struct rdma_cm_event *event;

	for (int i = 0; i < 2; i++) {
		client[i] = cm_resolve(clients, 7471, RDMA_PS_TCP);
		CHECK(rdma_connect(client[i], NULL) == 0);
		event = cm_expect(servers, RDMA_CM_EVENT_CONNECT_REQUEST);
		server[i] = event->id;
		CHECK(rdma_accept(server[i], NULL) == 0 && rdma_ack_cm_event(event) == 0);
		cm_skip(clients, RDMA_CM_EVENT_CONNECT_RESPONSE);
	}
	CHECK(rdma_migrate_id(server[1], other) == 0);
	rdma_destroy_event_channel(servers);
	event = cm_expect(clients, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(event->id == client[0] && rdma_ack_cm_event(event) == 0);
	CHECK(!server[0]->channel && rdma_disconnect(server[0]) == -1);
	CHECK(rdma_migrate_id(server[0], other) == -1 && errno == EINVAL);
	CHECK(rdma_disconnect(server[1]) == 0);
	event = cm_expect(other, RDMA_CM_EVENT_DISCONNECTED);
	CHECK(event->id == server[1] && rdma_ack_cm_event(event) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(rdma_destroy_id(server[i]) == 0 && rdma_destroy_id(client[i]) == 0);
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(clients);
	rdma_destroy_event_channel(other);
}

/* A channel overflows with marks: what waits is told all the same. */
static void test_full(void)
{
	enum { count = 150 };
	struct rdma_event_channel *from = rdma_create_event_channel();
	struct rdma_event_channel *to = rdma_create_event_channel();
	struct rdma_cm_id *ids[2 * count];
	struct rdma_cm_event *event;

	for (int i = 0; i < 2 * count; i++)
		ids[i] = resolve_only(i < count ? from : to);
	for (int i = 0; i < count; i++)
		CHECK(rdma_migrate_id(ids[i], to) == 0);
	CHECK(!cm_is_readable(from));
	for (int i = 0; i < 2 * count; i++) {
		CHECK(cm_is_readable(to));
		event = cm_expect(to, RDMA_CM_EVENT_ADDR_RESOLVED);
		/* Those that came with their ids come in the order of their arrival. */
		CHECK(i >= count || event->id == ids[i]);
		CHECK(rdma_ack_cm_event(event) == 0);
	}
	CHECK(!cm_is_readable(to));
	for (int i = 0; i < 2 * count; i++)
		CHECK(rdma_destroy_id(ids[i]) == 0);
	rdma_destroy_event_channel(from);
	rdma_destroy_event_channel(to);
}

/* After the NIC's death, and in a child: a removal for each id, then errors, and no wait. */
static void check_gone(struct rdma_event_channel *channel, struct rdma_cm_id *id, int removals)
{
	struct rdma_cm_event *event;
	struct sockaddr_in in;

	for (int i = 0; i < removals; i++)
		cm_skip(channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
	CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EIO);
	CHECK(rdma_resolve_addr(id, NULL, cm_addr(&in, "192.0.2.1", 1), 10) == -1 && errno == EIO);
	CHECK(rdma_connect(id, NULL) == -1 && errno == EIO);
	CHECK(rdma_listen(id, 1) == -1 && errno == EIO);
	CHECK(rdma_disconnect(id) == -1 && errno == EIO);
	cm_destroy(id);
}

static void test_die(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = cm_resolve(channel, 7471, RDMA_PS_TCP);
	struct rdma_cm_id *other = resolve_only(channel);
	__be16 pkey;

	cm_make_qp(id, IBV_QPT_RC);
	CHECK(ibv_query_pkey(id->verbs, 1, 0, &pkey) == 0); /* the NIC dies of it */
	cm_skip(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	check_gone(channel, id, 2);
	CHECK(rdma_destroy_id(other) == 0);
	rdma_destroy_event_channel(channel);
}

static void test_die_sync(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = cm_resolve(channel, 7471, RDMA_PS_TCP), *listener, *request;
	struct sockaddr_in in;
	__be16 pkey;

	CHECK(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, cm_addr(&in, "0.0.0.0", 1)) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	CHECK(ibv_query_pkey(id->verbs, 1, 0, &pkey) == 0);
	CHECK(rdma_get_request(listener, &request) == -1 && errno == ENODEV);
	CHECK(rdma_get_request(listener, &request) == -1 && errno == EIO);
	CHECK(rdma_destroy_id(listener) == 0 && rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

/* A child's ids are dead, its own new ones work, and the parent notices nothing. */
static void test_fork(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel(), *mine;
	struct rdma_cm_id *id = cm_resolve(channel, 7471, RDMA_PS_TCP), *own;
	int status;
	pid_t pid;

	cm_make_qp(id, IBV_QPT_RC);
	CHECK(rdma_destroy_id(resolve_only(channel)) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		check_gone(channel, id, 1);
		rdma_destroy_event_channel(channel);
		mine = rdma_create_event_channel();
		own = cm_resolve(mine, 7471, RDMA_PS_TCP);
		cm_make_qp(own, IBV_QPT_RC);
		cm_destroy(own);
		rdma_destroy_event_channel(mine);
		exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(rdma_connect(id, NULL) == 0);
	cm_skip(channel, RDMA_CM_EVENT_REJECTED);
	cm_destroy(id);
	rdma_destroy_event_channel(channel);
}

static void *wait_for_nothing(void *arg)
{
	struct rdma_cm_event *event;

	CHECK(rdma_get_cm_event(arg, &event) == -1 && errno == EINTR);
	return NULL;
}

/* A thread that waits goes on waiting when its channel is destroyed; and it can be cancelled. */
static void test_abandon(void)
{
	struct sigaction action = {.sa_handler = no_action};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct rdma_cm_id *id;
	pthread_t thread;
	void *result;
	int fd = channel->fd;

	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, wait_for_nothing, channel) == 0);
	usleep(50000);
	rdma_destroy_event_channel(channel);
	CHECK(fcntl(fd, F_GETFL) == -1);
	usleep(50000);
	CHECK(pthread_tryjoin_np(thread, &result) == EBUSY);
	CHECK(pthread_kill(thread, SIGUSR1) == 0 && pthread_join(thread, &result) == 0);
	CHECK(pthread_create(&thread, NULL, wait_for_nothing, other) == 0);
	usleep(50000);
	CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	id = cm_resolve(other, 7471, RDMA_PS_TCP);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(other);
}

enum { threads_count = 3, threads_rounds = 200 };

static void *resolve_many(void *arg)
{
	for (int i = 0; i < threads_rounds; i++) {
		struct rdma_cm_id *id = resolve_only(arg);

		if (i % 3 == 0)
			CHECK(rdma_resolve_route(id, 1000) == 0);
		if (i % 2 == 0)
			usleep(50);
		CHECK(rdma_destroy_id(id) == 0);
	}
	return NULL;
}

static void *read_until_told(void *arg)
{
	struct rdma_cm_event *event;
	bool last;

	do {
		CHECK(rdma_get_cm_event(arg, &event) == 0);
		last = event->event == RDMA_CM_EVENT_REJECTED;
		CHECK(rdma_ack_cm_event(event) == 0);
	} while (!last);
	return NULL;
}

/* Threads make and destroy ids on a channel that others read. */
static void test_threads(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *ids[threads_count];
	pthread_t makers[threads_count], readers[threads_count];

	for (int i = 0; i < threads_count; i++)
		ids[i] = cm_resolve(channel, 9, RDMA_PS_TCP);
	for (int i = 0; i < threads_count; i++) {
		CHECK(pthread_create(&makers[i], NULL, resolve_many, channel) == 0);
		CHECK(pthread_create(&readers[i], NULL, read_until_told, channel) == 0);
	}
	for (int i = 0; i < threads_count; i++)
		CHECK(pthread_join(makers[i], NULL) == 0);
	for (int i = 0; i < threads_count; i++)
		CHECK(rdma_connect(ids[i], NULL) == 0);
	for (int i = 0; i < threads_count; i++)
		CHECK(pthread_join(readers[i], NULL) == 0);
	for (int i = 0; i < threads_count; i++)
		CHECK(rdma_destroy_id(ids[i]) == 0);
	CHECK(!cm_is_readable(channel));
	rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"ack", test_ack},
		{"ack_log", test_ack_log},
		{"signal", test_signal},
		{"purge", test_purge},
		{"migrate", test_migrate},
		{"channel_end", test_channel_end},
		{"full", test_full},
		{"die", test_die},
		{"die_sync", test_die_sync},
		{"fork", test_fork},
		{"abandon", test_abandon},
		{"threads", test_threads},
	};

	return RUN_CASES(cases, argc, argv);
}
