/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping. Of the threads that wait for one socket the first sleeps on its descriptors, the others
 * on its condition. While there is such a leader nobody else takes events out of the descriptors:
 * the leader, woken by one, would find nothing and sleep on, though its turn has come. Completions
 * anybody may take, as each of them left an event if the queue was armed.
 */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "rs.h"

/* A program that asks in vain looks now and then whether the connection still is. */
#define WAIT_LOOK_EVERY 256

int wait_descriptors(const struct rs_socket *rs, int fds[2])
{
	if (rs->dgram) {
		fds[0] = dgram_wait_fd(rs);
		return 1;
	}
	fds[0] = rs->ep.channel ? rs->ep.channel->fd : -1;
	fds[1] = rs->channel ? rs->channel->fd : -1;
	return 2;
}

void wait_wake(struct rs_socket *rs)
{
	if (rs->waiters)
		pthread_cond_broadcast(&rs->changed);
	mirror_update(rs);
}

void wait_news(struct rs_socket *rs, bool from_cq, bool from_cm)
{
	if (rs->has_leader || rs->is_orphan)
		return;
	if (rs->dgram) {
		dgram_news(rs);
		return;
	}
	if (from_cq)
		cq_take_event(rs);
	if (from_cm)
		conn_progress(rs);
	if (rs->is_served || rs->pollers)
		cq_arm(rs);
	cq_progress(rs);
}

static bool wait_is_time_to_look(struct rs_socket *rs)
{
	if (rs->state == RS_CONNECTED)
		return ++rs->empty_looks % WAIT_LOOK_EVERY == 0;
	return conn_is_opening(rs) || rs->state == RS_LISTENING;
}

void wait_progress(struct rs_socket *rs)
{
	if (rs->is_orphan)
		return;
	if (rs->dgram) {
		dgram_progress(rs);
		return;
	}
	if (!rs->has_leader && wait_is_time_to_look(rs))
		conn_progress(rs);
	cq_progress(rs);
	cq_grant(rs);
}

static int wait_timeout_ms(const struct wait_limit *limit)
{
	uint64_t now;

	if (!limit->until)
		return -1;
	now = rs_now_us();
	return now >= limit->until ? 0 : (int)((limit->until - now) / 1000 + 1);
}

static int wait_lead(struct rs_socket *rs, const struct wait_limit *limit)
{
	struct pollfd pfds[2] = {{.events = POLLIN}, {.events = POLLIN}};
	int fds[2], count, got, error, state;

	if (!rs->dgram && rs->ep.cq && !rs->ep.armed) {
		cq_arm(rs);
		return 0; /* what came before the queue was armed has left no event */
	}
	count = wait_descriptors(rs, fds);
	for (int i = 0; i < count; i++)
		pfds[i].fd = fds[i];
	rs->has_leader = true;
	pthread_mutex_unlock(&rs->lock);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	got = poll(pfds, (nfds_t)count, wait_timeout_ms(limit));
	error = got < 0 ? errno : 0;
	pthread_setcancelstate(state, NULL);
	pthread_mutex_lock(&rs->lock);
	rs->has_leader = false;
	wait_news(rs, pfds[0].revents, count > 1 && pfds[1].revents);
	wait_wake(rs);
	return error;
}

static int wait_follow(struct rs_socket *rs, const struct wait_limit *limit)
{
	struct timespec until = {
		.tv_sec = (time_t)(limit->until / 1000000),
		.tv_nsec = (long)(limit->until % 1000000) * 1000,
	};

	rs->waiters++;
	if (limit->until)
		pthread_cond_clockwait(&rs->changed, &rs->lock, CLOCK_MONOTONIC, &until);
	else
		pthread_cond_wait(&rs->changed, &rs->lock);
	rs->waiters--;
	return 0;
}

int wait_for(struct rs_socket *rs, wait_test *test, const struct wait_limit *limit)
{
	uint64_t spin_until = 0;
	int error = 0;

	while (!error) {
		uint64_t now;

		wait_progress(rs);
		if (test(rs))
			return 0;
		if (limit->nonblocking)
			return EAGAIN;
		now = rs_now_us();
		if (limit->until && now >= limit->until)
			return EAGAIN;
		if (!spin_until)
			spin_until = now + config_get()->polling_us;
		if (now < spin_until) {
			pthread_mutex_unlock(&rs->lock);
			sched_yield();
			pthread_mutex_lock(&rs->lock);
			continue;
		}
		error = rs->has_leader ? wait_follow(rs, limit) : wait_lead(rs, limit);
	}
	return test(rs) ? 0 : error;
}

struct wait_limit wait_limit_of(const struct rs_socket *rs, int flags,
				const struct timespec *timeout)
{
	struct wait_limit limit = {.nonblocking = rs->nonblocking || (flags & MSG_DONTWAIT)};

	if (timeout && (timeout->tv_sec || timeout->tv_nsec))
		limit.until = rs_now_us() + (uint64_t)timeout->tv_sec * 1000000 +
			      (uint64_t)timeout->tv_nsec / 1000;
	return limit;
}
