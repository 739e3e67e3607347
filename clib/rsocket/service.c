/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread, started when there is something for it: it looks after sockets whose program does not
 * (those of the preload library, whose mirrors must be true at all times), after sockets that are
 * closed and have bytes on their way, and sends keepalives.
 */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "raw.h"
#include "rs.h"

#define SERVICE_BATCH 64
#define SERVICE_KICK UINT64_MAX
#define SERVICE_LINGER_MS 5 /* between looks at those that linger */
#define SERVICE_EXIT_MS 5000

/* A socket that the thread knows. It holds those that linger, the others it does not. */
struct service_slot {
	struct rs_socket *rs;
	uint32_t generation; /* tells a late event from one of the socket that is there now */
	bool keeps;
	uint64_t linger_until; /* in µs; 0: does not linger */
};

static pthread_mutex_t service_lock = PTHREAD_MUTEX_INITIALIZER;
static struct service_slot *service_slots; /* guarded by service_lock, as is what follows */
static uint32_t service_count;
static uint32_t service_lingering, service_keeping;
static int service_epfd = -1, service_kick_fd = -1;
static bool service_runs;
static void (*service_look)(struct rs_socket *rs); /* set before there is a thread */

/* Holds a socket unless its last user has gone. */
static bool service_hold(struct rs_socket *rs)
{
	unsigned int refs = atomic_load(&rs->refs);

	while (refs && !atomic_compare_exchange_weak(&rs->refs, &refs, refs + 1))
		;
	return refs;
}

static struct rs_socket *service_get(uint64_t data)
{
	struct rs_socket *rs = NULL;
	const uint32_t index = (uint32_t)data;

	pthread_mutex_lock(&service_lock);
	if (index < service_count && service_slots[index].generation == data >> 32)
		rs = service_slots[index].rs;
	if (rs && !service_hold(rs))
		rs = NULL;
	pthread_mutex_unlock(&service_lock);
	return rs;
}

static void service_process(struct rs_socket *rs)
{
	pthread_mutex_lock(&rs->lock);
	wait_news(rs, true, true);
	mirror_update(rs);
	pthread_mutex_unlock(&rs->lock);
}

static void service_keepalive(struct rs_socket *rs)
{
	const uint64_t now = rs_now_us() / 1000;

	pthread_mutex_lock(&rs->lock);
	if (!rs->idle_since)
		rs->idle_since = now;
	if ((rs->opt.socket_flags >> SO_KEEPALIVE & 1) &&
	    now - rs->idle_since >= (uint64_t)rs->opt.keep_idle * 1000) {
		cq_post_keepalive(rs);
		rs->idle_since = now;
	}
	pthread_mutex_unlock(&rs->lock);
}

/* Whether a closed socket has nothing more on its way. */
static bool service_is_done(struct rs_socket *rs, uint64_t until)
{
	bool done;

	pthread_mutex_lock(&rs->lock);
	wait_progress(rs);
	done = conn_is_flushed(rs) || rs_now_us() >= until;
	if (done)
		conn_fail(rs, 0);
	pthread_mutex_unlock(&rs->lock);
	return done;
}

/* Looks at each socket that has to be looked at without news of it. */
static void service_tick(void)
{
	for (uint32_t i = 0;; i++) {
		struct service_slot slot = {NULL, 0, false, 0};

		pthread_mutex_lock(&service_lock);
		if (i >= service_count) {
			pthread_mutex_unlock(&service_lock);
			return;
		}
		slot = service_slots[i];
		if (slot.rs && ((!slot.keeps && !slot.linger_until) || !service_hold(slot.rs)))
			slot.rs = NULL;
		pthread_mutex_unlock(&service_lock);
		if (!slot.rs)
			continue;
		if (slot.linger_until && service_is_done(slot.rs, slot.linger_until)) {
			pthread_mutex_lock(&service_lock);
			service_slots[i].linger_until = 0;
			pthread_mutex_unlock(&service_lock);
			table_put(slot.rs); /* what lingering held */
			pthread_mutex_lock(&service_lock);
			service_lingering--;
			pthread_mutex_unlock(&service_lock);
		} else if (slot.keeps) {
			service_keepalive(slot.rs);
		}
		table_put(slot.rs);
	}
}

void service_visit(void (*visit)(struct rs_socket *rs))
{
	for (uint32_t i = 0;; i++) {
		struct rs_socket *rs = NULL;
		bool is_end;

		pthread_mutex_lock(&service_lock);
		is_end = i >= service_count;
		if (!is_end && service_slots[i].rs && service_hold(service_slots[i].rs))
			rs = service_slots[i].rs;
		pthread_mutex_unlock(&service_lock);
		if (is_end)
			return;
		if (!rs)
			continue;
		visit(rs);
		table_put(rs);
	}
}

/* Another process has asked for something: which socket it is about is for the looker to see. */
static void service_kicked(void)
{
	uint64_t count;

	if (syscall(SYS_read, service_kick_fd, &count, sizeof(count)) > 0 && service_look)
		service_visit(service_look);
}

void service_on_kick(void (*look)(struct rs_socket *rs))
{
	service_look = look;
}

int service_kick_descriptor(void)
{
	return service_kick_fd;
}

static int service_timeout(void)
{
	int timeout;

	pthread_mutex_lock(&service_lock);
	timeout = service_lingering ? SERVICE_LINGER_MS : service_keeping ? 1000 : -1;
	pthread_mutex_unlock(&service_lock);
	return timeout;
}

static void *service_run(void *arg)
{
	struct epoll_event events[SERVICE_BATCH];

	(void)arg;
	prctl(PR_SET_NAME, "rsocket", 0, 0, 0);
	for (;;) {
		int timeout = service_timeout();
		int got = epoll_wait(service_epfd, events, SERVICE_BATCH, timeout);

		for (int i = 0; i < got; i++) {
			struct rs_socket *rs;

			if (events[i].data.u64 == SERVICE_KICK) {
				service_kicked();
				continue;
			}
			rs = service_get(events[i].data.u64);
			if (!rs)
				continue;
			service_process(rs);
			table_put(rs);
		}
		if (timeout >= 0)
			service_tick();
	}
	return NULL;
}

static void service_kick(void)
{
	const uint64_t one = 1;

	if (syscall(SYS_write, service_kick_fd, &one, sizeof(one)) < 0)
		return; /* it is full of kicks */
}

static int service_open(void)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = SERVICE_KICK};

	service_epfd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	service_kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (service_epfd < 0 || service_kick_fd < 0 ||
	    syscall(SYS_epoll_ctl, service_epfd, EPOLL_CTL_ADD, service_kick_fd, &event))
		return errno;
	return 0;
}

/* Starts the thread if it does not run; service_lock is held. No signal is for it. */
static int service_start(void)
{
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (service_runs)
		return 0;
	error = service_open();
	if (error)
		return error;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, service_run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error) {
		pthread_detach(thread);
		service_runs = true;
	}
	return error;
}

/* Finds the socket's slot, or makes it one; service_lock is held. */
static int service_slot_of(struct rs_socket *rs, struct service_slot **out)
{
	uint32_t index;

	if (rs->service_slot) {
		*out = &service_slots[rs->service_slot - 1];
		return 0;
	}
	for (index = 0; index < service_count && service_slots[index].rs; index++)
		;
	if (index == service_count) {
		uint32_t count = service_count ? service_count * 2 : 16;
		struct service_slot *more = realloc(service_slots, count * sizeof(*more));

		if (!more)
			return ENOMEM;
		memset(more + service_count, 0, (count - service_count) * sizeof(*more));
		service_slots = more;
		service_count = count;
	}
	rs->service_slot = index + 1;
	*out = &service_slots[index];
	(*out)->rs = rs;
	(*out)->generation++;
	return 0;
}

static void service_add_fd(const struct rs_socket *rs, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};

	if (fd < 0)
		return;
	event.data.u64 = (uint64_t)service_slots[rs->service_slot - 1].generation << 32 |
			 (rs->service_slot - 1);
	syscall(SYS_epoll_ctl, service_epfd, EPOLL_CTL_ADD, fd, &event); /* or it is there */
}

int service_watch(struct rs_socket *rs)
{
	struct service_slot *slot;
	int fds[2] = {-1, -1}, error;

	pthread_mutex_lock(&service_lock);
	error = service_start();
	if (!error)
		error = service_slot_of(rs, &slot);
	if (!error) {
		rs->is_served = true;
		wait_descriptors(rs, fds);
		service_add_fd(rs, fds[0]);
		service_add_fd(rs, fds[1]);
	}
	pthread_mutex_unlock(&service_lock);
	if (!error && !rs->dgram)
		cq_arm(rs);
	mirror_update(rs);
	return error;
}

int service_keep(struct rs_socket *rs)
{
	struct service_slot *slot;
	int error;

	pthread_mutex_lock(&service_lock);
	error = service_start();
	if (!error)
		error = service_slot_of(rs, &slot);
	if (!error && !slot->keeps) {
		slot->keeps = true;
		service_keeping++;
		service_kick();
	}
	pthread_mutex_unlock(&service_lock);
	return error;
}

int service_linger(struct rs_socket *rs, uint64_t until)
{
	struct service_slot *slot;
	int error;

	pthread_mutex_lock(&service_lock);
	error = service_start();
	if (!error)
		error = service_slot_of(rs, &slot);
	if (!error) {
		slot->linger_until = until;
		service_lingering++;
		service_kick();
	}
	pthread_mutex_unlock(&service_lock);
	return error;
}

void service_forget(struct rs_socket *rs)
{
	struct service_slot *slot;

	if (!rs->service_slot)
		return;
	pthread_mutex_lock(&service_lock);
	slot = &service_slots[rs->service_slot - 1];
	slot->rs = NULL;
	if (slot->keeps)
		service_keeping--;
	slot->keeps = false;
	rs->service_slot = 0;
	pthread_mutex_unlock(&service_lock);
}

/* The child has no such thread yet. */
void service_fork_child(void)
{
	pthread_mutex_init(&service_lock, NULL);
	if (service_epfd >= 0)
		raw_close(service_epfd);
	/* The kick stays: by it the child asks its parent. */
	service_epfd = service_kick_fd = -1;
	for (uint32_t i = 0; i < service_count; i++) {
		if (service_slots[i].rs)
			service_slots[i].rs->service_slot = 0;
		service_slots[i] = (struct service_slot){.rs = NULL};
	}
	service_lingering = service_keeping = 0;
	service_runs = false;
}

/* A program that ends after close means its bytes to arrive. */
__attribute__((destructor)) static void service_library_exit(void)
{
	const uint64_t until = rs_now_us() + SERVICE_EXIT_MS * 1000;
	const struct timespec moment = {.tv_nsec = 1000000};
	bool busy = true;

	while (busy && rs_now_us() < until) {
		pthread_mutex_lock(&service_lock);
		busy = service_lingering;
		pthread_mutex_unlock(&service_lock);
		if (busy)
			nanosleep(&moment, NULL);
	}
}
