/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of rsockets share: pairs of connected sockets, patterns. */
#ifndef RS_TEST_H
#define RS_TEST_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, \
				#condition, errno, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

struct test_case {
	const char *name;
	void (*run)(void);
};

static inline int run_case(const struct test_case *cases, size_t count, int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < count; i++) {
		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		cases[i].run();
		puts("ok");
		return 0;
	}
	fprintf(stderr, "no such case\n");
	return 2;
}

#define RUN_CASES(cases, argc, argv) \
	run_case(cases, sizeof(cases) / sizeof((cases)[0]), argc, argv)

static inline uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

/* Returns a listening socket on a port of the library's choice, and where it is. */
static inline int listen_any(struct sockaddr_in *at)
{
	socklen_t bytes = sizeof(*at);
	int fd = rsocket(AF_INET, SOCK_STREAM, 0);

	*at = loopback(0);
	CHECK(fd >= 0);
	CHECK(!rbind(fd, (struct sockaddr *)at, sizeof(*at)));
	CHECK(!rlisten(fd, 8));
	CHECK(!rgetsockname(fd, (struct sockaddr *)at, &bytes) && bytes == sizeof(*at));
	CHECK(at->sin_port != 0);
	return fd;
}

static inline void *accept_one(void *arg)
{
	int *fd = arg;

	*fd = raccept(*fd, NULL, NULL);
	return NULL;
}

/* Changes options of a socket before it is connected; may be NULL. */
typedef void prepare_socket(int fd);

static inline void make_pair_with(int *a, int *b, prepare_socket *prepare)
{
	struct sockaddr_in at;
	pthread_t thread;
	int listener = listen_any(&at);

	*b = listener;
	if (prepare)
		prepare(listener);
	CHECK(!pthread_create(&thread, NULL, accept_one, b));
	*a = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(*a >= 0);
	if (prepare)
		prepare(*a);
	CHECK(!rconnect(*a, (struct sockaddr *)&at, sizeof(at)));
	CHECK(!pthread_join(thread, NULL));
	CHECK(*b >= 0);
	CHECK(!rclose(listener));
}

static inline void make_pair(int *a, int *b)
{
	make_pair_with(a, b, NULL);
}

static inline unsigned char pattern(size_t at)
{
	return (unsigned char)(at * 31 + (at >> 8) * 17 + (at >> 16));
}

static inline short poll_now(int fd, short events)
{
	struct pollfd pfd = {.fd = fd, .events = events};
	int found = rpoll(&pfd, 1, 0);

	CHECK(found == (pfd.revents != 0));
	return pfd.revents;
}

static inline short poll_for(int fd, short events, int ms)
{
	struct pollfd pfd = {.fd = fd, .events = events};

	CHECK(rpoll(&pfd, 1, ms) >= 0);
	return pfd.revents;
}

static inline void set_nonblocking(int fd)
{
	CHECK(!rfcntl(fd, F_SETFL, O_NONBLOCK));
}

#endif
