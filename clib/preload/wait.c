/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting. The kernel polls our descriptors as any others; these calls only tell that a process
 * means to accept, and where a socket was put before it became an rsocket.
 */
#include <poll.h>
#include <signal.h>
#include <sys/select.h>

#include "preload.h"

static void watch_remember(struct preload_fd *entry, int epfd, const struct epoll_event *event)
{
	uint32_t at = 0;

	pthread_mutex_lock(&entry->lock);
	while (at < entry->watch_count && entry->watches[at].epfd != epfd)
		at++;
	if (!event && at < entry->watch_count) {
		entry->watches[at] = entry->watches[--entry->watch_count];
	} else if (event && at < PRELOAD_WATCHES) {
		entry->watches[at] = (struct preload_watch){epfd, *event};
		if (at == entry->watch_count)
			entry->watch_count++;
	}
	pthread_mutex_unlock(&entry->lock);
}

/* What the kernel takes together with EPOLLEXCLUSIVE. */
#define WATCH_EXCLUSIVE_WITH (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET)

bool watch_for_listener(struct epoll_event *event)
{
	if (!(event->events & EPOLLEXCLUSIVE))
		return true;
	event->events &= ~(uint32_t)EPOLLEXCLUSIVE;
	return !(event->events & ~(uint32_t)WATCH_EXCLUSIVE_WITH);
}

static bool watch_is_listener(int fd)
{
	struct preload_fd *entry = preload_has(fd) ? preload_get(fd) : NULL;
	bool listens = entry && entry->kind == PRELOAD_LISTENER;

	if (entry)
		preload_put(entry);
	return listens;
}

static int watch_change(int epfd, int op, int fd, struct epoll_event *event)
{
	struct epoll_event plain;

	if (op != EPOLL_CTL_ADD || !event || !watch_is_listener(fd))
		return REAL(epoll_ctl)(epfd, op, fd, event);
	plain = *event;
	if (!watch_for_listener(&plain))
		return rs_result(EINVAL);
	return REAL(epoll_ctl)(epfd, op, fd, &plain);
}

PRELOAD_API int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct preload_fd *entry;
	int result;

	listener_want(fd);
	result = watch_change(epfd, op, fd, event);
	entry = !result && preload_has(fd) ? preload_get(fd) : NULL;
	if (entry) {
		watch_remember(entry, epfd, op == EPOLL_CTL_DEL ? NULL : event);
		preload_put(entry);
	}
	return result;
}

static void want_all(const struct pollfd *fds, nfds_t count)
{
	for (nfds_t i = 0; i < count; i++) {
		if (preload_has(fds[i].fd))
			listener_want(fds[i].fd);
	}
}

static void want_set(int limit, const fd_set *set)
{
	for (int fd = 0; set && fd < limit; fd++) {
		if (preload_has(fd) && FD_ISSET(fd, set))
			listener_want(fd);
	}
}

PRELOAD_API int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	want_all(fds, count);
	return REAL(poll)(fds, count, timeout);
}

PRELOAD_API int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		      const sigset_t *mask)
{
	want_all(fds, count);
	return REAL(ppoll)(fds, count, timeout, mask);
}

PRELOAD_API int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
PRELOAD_API int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
			    const sigset_t *mask, size_t room);

PRELOAD_API int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
	want_all(fds, room / sizeof(*fds) < count ? 0 : count);
	return REAL(__poll_chk)(fds, count, timeout, room);
}

PRELOAD_API int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
			    const sigset_t *mask, size_t room)
{
	want_all(fds, room / sizeof(*fds) < count ? 0 : count);
	return REAL(__ppoll_chk)(fds, count, timeout, mask, room);
}

PRELOAD_API int select(int limit, fd_set *restrict in, fd_set *restrict out,
		       fd_set *restrict except, struct timeval *restrict timeout)
{
	want_set(limit, in);
	return REAL(select)(limit, in, out, except, timeout);
}

PRELOAD_API int pselect(int limit, fd_set *restrict in, fd_set *restrict out,
			fd_set *restrict except, const struct timespec *restrict timeout,
			const sigset_t *restrict mask)
{
	want_set(limit, in);
	return REAL(pselect)(limit, in, out, except, timeout, mask);
}
