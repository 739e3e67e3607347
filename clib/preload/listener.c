/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that listen: for TCP, and for RDMA at the same port. */
#include <fcntl.h>
#include <poll.h>

#include "preload.h"

/* Where our own descriptors begin, out of the way of programs that count on low numbers. */
#define LISTENER_FD_MIN 200

/* Without a NIC, or with the port in use, another attempt is due after a while. */
#define LISTENER_RETRY_US 1000000

/* Makes the epoll set of a listener and puts it in the descriptor's place. */
static int listener_place(int fd, int tcp, int rsocket)
{
	const int status = REAL(fcntl)(fd, F_GETFL), flags = REAL(fcntl)(fd, F_GETFD);
	struct epoll_event event = {.events = EPOLLIN};
	int error = 0, set = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);

	if (set < 0)
		return errno;
	if (REAL(epoll_ctl)(set, EPOLL_CTL_ADD, tcp, &event) ||
	    (rsocket >= 0 && REAL(epoll_ctl)(set, EPOLL_CTL_ADD, rsocket, &event)) ||
	    REAL(dup3)(set, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0)
		error = errno;
	raw_close(set);
	if (!error)
		REAL(fcntl)(fd, F_SETFL, status);
	return error;
}

int listener_make(int fd, int backlog)
{
	struct preload_fd *fresh = preload_get(fd), *entry;
	int error, i;

	if (!fresh)
		return 0;
	entry = preload_new(PRELOAD_LISTENER, fresh->domain);
	if (!entry) {
		preload_put(fresh);
		return ENOMEM;
	}
	entry->backlog = backlog;
	entry->tcp = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, LISTENER_FD_MIN);
	if (entry->tcp < 0)
		entry->tcp = REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0);
	error = entry->tcp < 0 ? errno : listener_place(fd, entry->tcp, -1);
	if (!error) {
		REAL(fcntl)(entry->tcp, F_SETFL, O_RDWR | O_NONBLOCK);
		error = preload_add(fd, entry);
	}
	for (i = 0; !error && i < (int)fresh->watch_count; i++) {
		entry->watches[i] = fresh->watches[i];
		watch_for_listener(&entry->watches[i].event);
		REAL(epoll_ctl)(entry->watches[i].epfd, EPOLL_CTL_ADD, fd,
				&entry->watches[i].event);
	}
	if (fresh->watch_count)
		listener_want(fd);
	preload_put(fresh);
	preload_put(entry);
	return error;
}

static int listener_open(const struct preload_fd *entry)
{
	struct sockaddr_storage name;
	socklen_t bytes = sizeof(name);
	const int no = 0;
	int rs, error = 0;

	memset(&name, 0, sizeof(name));
	if (REAL(getsockname)(entry->tcp, (struct sockaddr *)&name, &bytes))
		return -1;
	rs = rsocket(entry->domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (rs < 0)
		return -1;
	connect_copy_options(entry->tcp, rs);
	/*
	 * Of several processes that do this at once one has to get the port. If they may share it until
	 * they listen, none can: rdma_cm refuses a listener the port that another has bound as well.
	 */
	rsetsockopt(rs, SOL_SOCKET, SO_REUSEADDR, &no, sizeof(no));
	if (rbind(rs, (struct sockaddr *)&name, bytes) || rlisten(rs, entry->backlog))
		error = errno;
	if (!error) {
		struct rs_socket *socket = table_get(rs);

		pthread_mutex_lock(&socket->lock);
		error = service_watch(socket);
		pthread_mutex_unlock(&socket->lock);
		table_put(socket);
	}
	if (!error)
		return rs;
	preload_log("listen for TCP only: %s", strerror(error));
	rclose(rs);
	return -1;
}

void listener_want(int fd)
{
	struct preload_fd *entry;
	struct epoll_event event = {.events = EPOLLIN};

	if (!preload_has(fd))
		return;
	entry = preload_get(fd);
	if (!entry)
		return;
	pthread_mutex_lock(&entry->lock);
	if (entry->kind == PRELOAD_LISTENER && entry->rsocket < 0 &&
	    rs_now_us() >= entry->try_at) {
		entry->try_at = rs_now_us() + LISTENER_RETRY_US;
		entry->rsocket = listener_open(entry);
		/* A set that other processes have as well must not tell them of ours. */
		if (entry->rsocket >= 0 && entry->is_shared)
			listener_place(fd, entry->tcp, entry->rsocket);
		else if (entry->rsocket >= 0)
			REAL(epoll_ctl)(fd, EPOLL_CTL_ADD, entry->rsocket, &event);
	}
	pthread_mutex_unlock(&entry->lock);
	preload_put(entry);
}

int listener_tcp(int fd)
{
	struct preload_fd *entry = preload_has(fd) ? preload_get(fd) : NULL;
	int tcp = fd;

	if (!entry)
		return fd;
	if (entry->kind == PRELOAD_LISTENER)
		tcp = entry->tcp;
	preload_put(entry);
	return tcp;
}

/* An rsocket that was accepted gets the flags that the program asks for. */
static void listener_flags(int fd, int flags)
{
	struct rs_socket *rs;

	rfcntl(fd, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	rfcntl(fd, F_SETFD, flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
	rs = table_get(fd);
	if (rs) {
		pthread_mutex_lock(&rs->lock);
		pump_register(rs);
		pthread_mutex_unlock(&rs->lock);
		table_put(rs);
	}
	REAL(fcntl)(fd, F_SETFL, O_RDWR | (flags & SOCK_NONBLOCK ? O_NONBLOCK : 0));
}

/* The NIC is gone, or else the rsocket will not do any more; it would be readable for ever. */
static void listener_drop(struct preload_fd *entry, int rsocket)
{
	pthread_mutex_lock(&entry->lock);
	if (entry->rsocket == rsocket) {
		entry->rsocket = -1;
		entry->try_at = rs_now_us() + LISTENER_RETRY_US;
		rclose(rsocket);
	}
	pthread_mutex_unlock(&entry->lock);
}

static int listener_accept_now(struct preload_fd *entry, const struct dgram_name *from, int flags)
{
	const int rsocket = entry->rsocket;
	int fd = -1;

	if (rsocket >= 0)
		fd = raccept(rsocket, from->addr, from->bytes);
	if (fd >= 0) {
		listener_flags(fd, flags);
		return fd;
	}
	if (rsocket >= 0 && errno != EAGAIN && errno != EINTR && errno != EMFILE)
		listener_drop(entry, rsocket);
	return REAL(accept4)(entry->tcp, from->addr, from->bytes, flags);
}

int listener_accept(struct preload_fd *entry, int fd, const struct dgram_name *from, int flags)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	int got;

	listener_want(fd);
	for (;;) {
		got = listener_accept_now(entry, from, flags);
		if (got >= 0 || errno != EAGAIN || (REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK))
			return got;
		if (REAL(poll)(&pfd, 1, -1) < 0)
			return -1;
	}
}
