/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Polling several sockets and other descriptors at once. First each socket is asked. Before this
 * thread sleeps, the mirrors of its sockets are made true, and it looks at those and at where news
 * come from: so it wakes for what it waits for, whichever thread finds it out.
 */
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "rs.h"

#define POLL_PER_SOCKET 3 /* the mirror and two sources of news */
#define POLL_ON_STACK 64

struct poll_call {
	struct pollfd *fds;
	nfds_t count;
	struct rs_socket **sockets; /* by index; NULL: not one of ours */
	struct pollfd *real;
	nfds_t real_count;
};

/* What poll tells besides what was asked for. */
static short poll_filter(short events, short wanted)
{
	return events & (wanted | POLLERR | POLLHUP | POLLNVAL);
}

static short poll_ask(struct rs_socket *rs, short wanted)
{
	short events;

	pthread_mutex_lock(&rs->lock);
	if (rs->is_orphan) {
		events = POLLNVAL;
	} else {
		wait_progress(rs);
		events = mirror_events(rs);
	}
	pthread_mutex_unlock(&rs->lock);
	return poll_filter(events, wanted);
}

/* Asks each socket; of the other descriptors the kernel. Returns how many have something. */
static int poll_ask_all(struct poll_call *call)
{
	int found = 0, others = 0;

	for (nfds_t i = 0; i < call->count; i++) {
		struct pollfd *pfd = &call->fds[i];

		pfd->revents = 0;
		if (call->sockets[i])
			pfd->revents = poll_ask(call->sockets[i], pfd->events);
		else if (pfd->fd >= 0 && poll(pfd, 1, 0) < 0)
			others = -1;
		found += pfd->revents != 0;
	}
	return found ? found : others;
}

static void poll_add(struct poll_call *call, int fd, short events)
{
	call->real[call->real_count++] = (struct pollfd){.fd = fd, .events = events};
}

/* Begins to look at a socket. Returns whether it has something already. */
static bool poll_enter(struct poll_call *call, struct rs_socket *rs, short wanted)
{
	int fds[2] = {-1, -1};
	short events;

	pthread_mutex_lock(&rs->lock);
	rs->pollers++;
	if (!rs->dgram)
		cq_arm(rs);
	wait_progress(rs);
	events = mirror_events(rs);
	mirror_update(rs);
	wait_descriptors(rs, fds);
	pthread_mutex_unlock(&rs->lock);
	poll_add(call, rs->fd, wanted);
	poll_add(call, fds[0], POLLIN);
	poll_add(call, fds[1], POLLIN);
	return poll_filter(events, wanted);
}

static void poll_leave(struct rs_socket *rs, const struct pollfd *real)
{
	pthread_mutex_lock(&rs->lock);
	if (real[1].revents || real[2].revents)
		wait_news(rs, real[1].revents, real[2].revents);
	rs->pollers--;
	pthread_mutex_unlock(&rs->lock);
}

/* Sleeps for at most so long. Returns −1 with errno set if it could not, or was interrupted. */
static int poll_sleep(struct poll_call *call, int timeout)
{
	bool has_some = false;
	nfds_t entered, at = 0;
	int got = 0, error;

	call->real_count = 0;
	for (entered = 0; entered < call->count && !has_some; entered++) {
		const struct pollfd *pfd = &call->fds[entered];

		if (call->sockets[entered])
			has_some = poll_enter(call, call->sockets[entered], pfd->events);
		else
			poll_add(call, pfd->fd, pfd->events);
	}
	if (!has_some)
		got = poll(call->real, call->real_count, timeout);
	error = errno;
	for (nfds_t i = 0; i < entered; i++) {
		if (call->sockets[i])
			poll_leave(call->sockets[i], &call->real[at]);
		at += call->sockets[i] ? POLL_PER_SOCKET : 1;
	}
	errno = error;
	return got < 0 ? -1 : 0;
}

static int poll_rest_ms(uint64_t until)
{
	uint64_t now;

	if (!until)
		return -1;
	now = rs_now_us();
	return now >= until ? 0 : (int)((until - now + 999) / 1000);
}

static int poll_run(struct poll_call *call, uint64_t until, bool at_once)
{
	const uint64_t spin_until = rs_now_us() + config_get()->polling_us;
	int found;

	for (;;) {
		found = poll_ask_all(call);
		if (found || at_once || (until && rs_now_us() >= until))
			return found;
		if (rs_now_us() < spin_until)
			sched_yield();
		else if (poll_sleep(call, poll_rest_ms(until)))
			return -1;
	}
}

/* Does what poll does, until a time in µs; 0 is for ever. */
static int poll_until(struct pollfd *fds, nfds_t count, uint64_t until, bool at_once)
{
	struct rs_socket *few[POLL_ON_STACK];
	struct pollfd few_real[POLL_ON_STACK * POLL_PER_SOCKET];
	struct poll_call call = {.fds = fds, .count = count, .sockets = few, .real = few_real};
	int found, error = 0;

	if (count > POLL_ON_STACK) {
		call.sockets = calloc(count, sizeof(*call.sockets));
		call.real = calloc(count * POLL_PER_SOCKET, sizeof(*call.real));
		if (!call.sockets || !call.real)
			error = ENOMEM;
	}
	for (nfds_t i = 0; !error && i < count; i++)
		call.sockets[i] = table_get(fds[i].fd);
	found = error ? -1 : poll_run(&call, until, at_once);
	if (!error)
		error = errno;
	for (nfds_t i = 0; call.sockets && i < count; i++) {
		if (call.sockets[i])
			table_put(call.sockets[i]);
	}
	if (call.sockets != few)
		free(call.sockets);
	if (call.real != few_real)
		free(call.real);
	errno = error;
	return found;
}

RS_API int rpoll(struct pollfd *fds, nfds_t count, int timeout)
{
	uint64_t until = timeout > 0 ? rs_now_us() + (uint64_t)timeout * 1000 : 0;

	if (count && !fds)
		return rs_result(EFAULT);
	return poll_until(fds, count, until, timeout == 0);
}

static nfds_t select_collect(int limit, struct pollfd *fds, fd_set *const sets[3])
{
	static const short wanted[3] = {POLLIN, POLLOUT, POLLPRI};
	nfds_t count = 0;

	for (int fd = 0; fd < limit; fd++) {
		short events = 0;

		for (int i = 0; i < 3; i++) {
			if (sets[i] && FD_ISSET(fd, sets[i]))
				events |= wanted[i];
		}
		if (events)
			fds[count++] = (struct pollfd){.fd = fd, .events = events};
	}
	return count;
}

/* A bit in a set for each descriptor, as select counts them. */
static int select_tell(const struct pollfd *fds, nfds_t count, fd_set *const sets[3])
{
	/* Whatever ends a wait ends it for those who read and for those who write. */
	enum { END = POLLHUP | POLLERR };
	static const short meant[3] = {POLLIN | END, POLLOUT | END, POLLPRI};
	static const short wanted[3] = {POLLIN, POLLOUT, POLLPRI};
	int bits = 0;

	for (int i = 0; i < 3; i++) {
		if (sets[i])
			FD_ZERO(sets[i]);
	}
	for (nfds_t at = 0; at < count; at++) {
		for (int i = 0; i < 3; i++) {
			if (!(fds[at].events & wanted[i]) || !(fds[at].revents & meant[i]))
				continue;
			FD_SET(fds[at].fd, sets[i]);
			bits++;
		}
	}
	return bits;
}

RS_API int rselect(int limit, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	fd_set *const sets[3] = {in, out, except};
	struct pollfd fds[FD_SETSIZE];
	const bool at_once = timeout && !timeout->tv_sec && !timeout->tv_usec;
	uint64_t until = 0;
	nfds_t count;
	int found;

	if (limit < 0 || limit > FD_SETSIZE)
		return rs_result(EINVAL);
	if (timeout)
		until = rs_now_us() + (uint64_t)timeout->tv_sec * 1000000 +
			(uint64_t)timeout->tv_usec;
	count = select_collect(limit, fds, sets);
	found = poll_until(fds, count, until, at_once);
	if (found < 0)
		return -1;
	for (nfds_t i = 0; i < count; i++) {
		if (fds[i].revents & POLLNVAL)
			return rs_result(EBADF);
	}
	return select_tell(fds, count, sets);
}
