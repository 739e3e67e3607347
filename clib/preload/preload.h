/* SPDX-License-Identifier: Apache-2.0 */
/*
 * librspreload: TCP programs on rsockets without their knowledge. See docs/rsockets.md.
 *
 * A TCP socket is what it is until it connects or listens. A connect tries the peer's rsockets
 * first; if they answer, the descriptor becomes that of an rsocket, which the kernel can poll (see
 * rsocket/mirror.c), else TCP connects. A descriptor that listens becomes an epoll set, readable
 * when there is a connection of either kind; the rsocket in it is made when this process first
 * shows that it means to accept, since of a server's processes only those do.
 *
 * Layers: real (the calls behind ours), fork (what a child forgets), listener, connect, swap; then
 * the calls of the application by what they are about.
 */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <dlfcn.h>
#include <stdarg.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "../rsocket/raw.h"
#include "../rsocket/rs.h"

#define PRELOAD_API __attribute__((visibility("default")))

/* Calls the function of that name that stands behind this library. */
#define REAL(name) \
	({ \
		static _Atomic(__typeof__(&name)) real_; \
		__typeof__(&name) at_ = atomic_load_explicit(&real_, memory_order_relaxed); \
		if (!at_) { \
			at_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
			atomic_store_explicit(&real_, at_, memory_order_relaxed); \
		} \
		at_; \
	})

/* A TCP socket that has neither connected nor listened: where it was put to be polled. */
#define PRELOAD_WATCHES 4
struct preload_watch {
	int epfd;
	struct epoll_event event;
};

enum preload_kind { PRELOAD_FRESH, PRELOAD_LISTENER };

/* What we know of a descriptor that is not an rsocket. */
struct preload_fd {
	enum preload_kind kind;
	atomic_uint refs;
	pthread_mutex_t lock; /* guards what follows */
	int domain;
	struct preload_watch watches[PRELOAD_WATCHES];
	uint32_t watch_count;
	/* Of a listener. */
	int tcp;    /* its TCP socket, never blocking */
	int rsocket; /* −1 until wanted */
	int backlog;
	uint64_t try_at; /* when to make the rsocket, in µs; each attempt puts it off */
	bool is_shared; /* its epoll set may be that of other processes too */
};

/* fds.c */
struct preload_fd *preload_get(int fd);
int preload_add(int fd, struct preload_fd *entry);
struct preload_fd *preload_new(enum preload_kind kind, int domain);
void preload_remove(int fd);
void preload_put(struct preload_fd *entry);
bool preload_has(int fd);
void preload_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* descriptor.c */
void descriptor_is_new(int fd);

/* listener.c */
int listener_make(int fd, int backlog);
/* The program means to accept: makes the rsocket, once per process. */
void listener_want(int fd);
int listener_accept(struct preload_fd *entry, int fd, const struct dgram_name *from, int flags);
int listener_tcp(int fd); /* the descriptor of its TCP socket, or fd */

/* wait.c */
/*
 * Takes EPOLLEXCLUSIVE out, which the kernel refuses for epoll sets: of the processes that wait for
 * connections more than one may wake, and those that find none go on waiting. Returns whether the
 * kernel would take it with the rest.
 */
bool watch_for_listener(struct epoll_event *event);

/* connect.c */
/* Returns 0 when fd is an rsocket now, EAGAIN when TCP should connect. */
int connect_try(int fd, struct preload_fd *entry, const struct sockaddr *addr, socklen_t bytes);
void connect_copy_options(int from, int to);

/* pump.c */
/* Lets the socket be used after a fork; lock is held. */
void pump_register(struct rs_socket *rs);
/*
 * Whether the descriptor is an rsocket of this process, whose bytes are for rrecv and rsend. If
 * not, it is one that the kernel serves, now if not before.
 */
bool pump_is_direct(int fd);
/* Before another program gets the descriptor. */
void pump_ask(struct rs_socket *rs);
/* Closes the last descriptor of a socket here. Returns whether the socket lives on elsewhere. */
bool pump_close(struct rs_socket *rs, int fd);

#endif
