/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program on TCP sockets that knows nothing of RDMA. It is to see the same by rsockets as by
 * TCP, which is why it runs on both: with "rdma" for its second argument it wants to be carried.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, \
				#condition, errno, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

static bool by_rdma;

static int listen_any(struct sockaddr_in *at, int flags)
{
	socklen_t bytes = sizeof(*at);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | flags, 0);

	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
	CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!bind(fd, (struct sockaddr *)at, sizeof(*at)) && !listen(fd, 16));
	CHECK(!getsockname(fd, (struct sockaddr *)at, &bytes) && at->sin_port);
	return fd;
}

/* What carries the connection says its name. */
static void check_carrier(int fd)
{
	char name[16] = "";
	socklen_t bytes = sizeof(name);

	CHECK(!getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes));
	CHECK(!strncmp(name, "rdma", 4) == by_rdma);
}

static void *accept_one(void *arg)
{
	int *fd = arg;

	*fd = accept(*fd, NULL, NULL);
	return NULL;
}

static void make_pair(int *a, int *b)
{
	struct sockaddr_in at;
	pthread_t thread;
	int listener = listen_any(&at, 0);
	struct pollfd pfd = {.fd = listener, .events = POLLIN};

	CHECK(poll(&pfd, 1, 0) == 0); /* who means to accept is called by RDMA */
	*b = listener;
	CHECK(!pthread_create(&thread, NULL, accept_one, b));
	*a = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
	CHECK(!connect(*a, (struct sockaddr *)&at, sizeof(at)));
	CHECK(!pthread_join(thread, NULL) && *b >= 0 && !close(listener));
	check_carrier(*a);
	check_carrier(*b);
}

static int wait_epoll(int ep, int ms, struct epoll_event *event)
{
	return epoll_wait(ep, event, 1, ms);
}

static void test_levels(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u32 = 7};
	char buf[16];
	int a, b, ep = epoll_create1(0);

	make_pair(&a, &b);
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, a, &event));
	CHECK(wait_epoll(ep, 30, &event) == 0);
	CHECK(write(b, "hello", 5) == 5);
	CHECK(wait_epoll(ep, 5000, &event) == 1 && event.events == EPOLLIN && event.data.u32 == 7);
	CHECK(read(a, buf, 2) == 2);
	CHECK(wait_epoll(ep, 30, &event) == 1 && event.events == EPOLLIN);
	CHECK(read(a, buf, 16) == 3);
	CHECK(wait_epoll(ep, 30, &event) == 0);
	event.events = EPOLLIN | EPOLLOUT;
	CHECK(!epoll_ctl(ep, EPOLL_CTL_MOD, a, &event));
	CHECK(wait_epoll(ep, 30, &event) == 1 && event.events == EPOLLOUT);
	event.events = EPOLLIN | EPOLLRDHUP;
	CHECK(!epoll_ctl(ep, EPOLL_CTL_MOD, a, &event));
	CHECK(!shutdown(b, SHUT_WR));
	CHECK(wait_epoll(ep, 5000, &event) == 1 && event.events == (EPOLLIN | EPOLLRDHUP));
	CHECK(read(a, buf, 16) == 0);
	CHECK(!shutdown(a, SHUT_WR) && read(b, buf, 16) == 0);
	CHECK(wait_epoll(ep, 5000, &event) == 1 && (event.events & EPOLLHUP));
	CHECK(!close(a) && !close(b) && !close(ep));
}

static void test_edges(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	char buf[16];
	int a, b, ep = epoll_create1(0), one = 1;

	make_pair(&a, &b);
	CHECK(!ioctl(a, FIONBIO, &one));
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, a, &event));
	for (int i = 0; i < 200; i++) {
		CHECK(write(b, "x", 1) == 1);
		CHECK(wait_epoll(ep, 5000, &event) == 1 && event.events == EPOLLIN);
		CHECK(wait_epoll(ep, 0, &event) == 0);
		if (i % 3 == 0) { /* an edge more, though there is something already */
			CHECK(write(b, "y", 1) == 1);
			CHECK(wait_epoll(ep, 5000, &event) == 1);
		}
		while (read(a, buf, sizeof(buf)) > 0)
			;
		CHECK(errno == EAGAIN);
	}
	CHECK(!close(a) && !close(b) && !close(ep));
}

/* Writes until there is no room, and hears of room when there is. */
static void test_room(void)
{
	static char buf[65536];
	struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
	size_t sent = 0, got = 0;
	ssize_t n;
	int a, b, ep = epoll_create1(0);

	make_pair(&a, &b);
	CHECK(!fcntl(a, F_SETFL, fcntl(a, F_GETFL) | O_NONBLOCK));
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, a, &event));
	CHECK(wait_epoll(ep, 5000, &event) == 1);
	while (sent < 50000000) {
		n = send(a, buf, sizeof(buf), MSG_NOSIGNAL);
		if (n > 0)
			sent += (size_t)n;
		else if (wait_epoll(ep, 100, &event) == 0)
			break;
	}
	CHECK(sent < 50000000 && sent > 100000);
	while (got < sent) {
		n = recv(b, buf, sizeof(buf), 0);
		CHECK(n > 0);
		got += (size_t)n;
	}
	CHECK(wait_epoll(ep, 5000, &event) == 1 && event.events == EPOLLOUT);
	CHECK(!close(a) && !close(b) && !close(ep));
}

/* A descriptor may be put into a set before it is connected, and before it listens. */
static void test_early_watch(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = 1};
	struct sockaddr_in at;
	socklen_t bytes = sizeof(at);
	int ep = epoll_create1(0), one = 1, error = 7, a, b = -1;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
	CHECK(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!bind(listener, (struct sockaddr *)&at, sizeof(at)));
	event.events = EPOLLIN;
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, listener, &event));
	CHECK(!listen(listener, 4));
	CHECK(!getsockname(listener, (struct sockaddr *)&at, &bytes));
	a = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	event = (struct epoll_event){.events = EPOLLOUT, .data.u32 = 2};
	CHECK(!epoll_ctl(ep, EPOLL_CTL_ADD, a, &event));
	CHECK(!connect(a, (struct sockaddr *)&at, sizeof(at)) || errno == EINPROGRESS);
	for (int seen = 0; seen != 3;) {
		CHECK(wait_epoll(ep, 5000, &event) == 1);
		seen |= (int)event.data.u32;
		if (event.data.u32 == 2) {
			bytes = sizeof(error);
			CHECK(!getsockopt(a, SOL_SOCKET, SO_ERROR, &error, &bytes) && !error);
			event.events = 0;
			CHECK(!epoll_ctl(ep, EPOLL_CTL_MOD, a, &event));
		} else {
			b = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
			CHECK(b >= 0 && (fcntl(b, F_GETFL) & O_NONBLOCK));
			CHECK(fcntl(b, F_GETFD) & FD_CLOEXEC);
		}
	}
	CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	check_carrier(a);
	check_carrier(b);
	CHECK(!close(a) && !close(b) && !close(listener) && !close(ep));
}

static void test_doubles(void)
{
	char buf[8];
	int a, b, c, d;

	make_pair(&a, &b);
	c = dup(a);
	CHECK(!close(a) && write(c, "one", 3) == 3 && read(b, buf, 8) == 3);
	d = fcntl(c, F_DUPFD_CLOEXEC, 100);
	CHECK(d >= 100 && dup2(c, 90) == 90 && !close(c));
	CHECK(write(90, "two", 3) == 3 && read(b, buf, 8) == 3);
	CHECK(write(b, "three", 5) == 5 && read(d, buf, 8) == 5);
	CHECK(!close(90) && recv(b, buf, 8, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(!close(d) && read(b, buf, 8) == 0); /* the last one ends it */
	CHECK(!close(b));
}

static void test_calls(void)
{
	char path[] = "/tmp/tcp-test-XXXXXX", buf[64];
	struct iovec iov[2] = {{buf, 3}, {buf + 10, 30}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	struct sockaddr_in name, peer;
	socklen_t bytes = sizeof(name);
	struct pollfd pfd = {.events = POLLIN};
	off_t offset = 2;
	fd_set in;
	int a, b, file = mkstemp(path), ready = 0;

	make_pair(&a, &b);
	CHECK(file >= 0 && !unlink(path) && write(file, "0123456789", 10) == 10);
	CHECK(sendfile(a, file, &offset, 5) == 5 && offset == 7);
	pfd.fd = b;
	CHECK(poll(&pfd, 1, 5000) == 1 && pfd.revents == POLLIN);
	CHECK(!ioctl(b, FIONREAD, &ready) && ready == 5);
	CHECK(recv(b, buf, 64, MSG_PEEK) == 5 && recvmsg(b, &msg, 0) == 5);
	CHECK(!memcmp(buf, "234", 3) && !memcmp(buf + 10, "56", 2));
	CHECK(!ioctl(b, FIONREAD, &ready) && ready == 0);
	FD_ZERO(&in);
	FD_SET(b, &in);
	CHECK(select(b + 1, &in, NULL, NULL, &(struct timeval){.tv_usec = 20000}) == 0);
	CHECK(sendmsg(a, &msg, MSG_NOSIGNAL) == 33);
	FD_SET(b, &in);
	CHECK(select(b + 1, &in, NULL, NULL, &(struct timeval){.tv_sec = 5}) == 1);
	CHECK(recv(b, buf, 33, MSG_WAITALL) == 33);
	CHECK(!getsockname(a, (struct sockaddr *)&name, &bytes));
	CHECK(!getpeername(b, (struct sockaddr *)&peer, &bytes));
	CHECK(name.sin_port == peer.sin_port);
	CHECK(!close(a));
	CHECK(read(b, buf, 64) == 0);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < 100 && write(b, "x", 1) == 1; i++)
		usleep(10000); /* TCP accepts the first one */
	CHECK(write(b, "x", 1) == -1 && errno == EPIPE);
	CHECK(!close(b) && close(b) == -1 && errno == EBADF);
}

static void test_refused(void)
{
	struct sockaddr_in at;
	struct pollfd pfd = {.events = POLLOUT};
	socklen_t bytes = sizeof(int);
	int fd, error = 0, listener = listen_any(&at, 0);

	CHECK(!close(listener));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == ECONNREFUSED);
	CHECK(!close(fd));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EINPROGRESS) {
		pfd.fd = fd;
		CHECK(poll(&pfd, 1, 5000) == 1 && (pfd.revents & POLLERR));
		CHECK(!getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes));
		CHECK(error == ECONNREFUSED);
	} else {
		CHECK(errno == ECONNREFUSED);
	}
	CHECK(!close(fd));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"levels", test_levels}, {"edges", test_edges},
		{"room", test_room}, {"early_watch", test_early_watch},
		{"doubles", test_doubles}, {"calls", test_calls},
		{"refused", test_refused},
	};

	by_rdma = argc == 3 && !strcmp(argv[2], "rdma");
	for (size_t i = 0; argc == 3 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name) != 0)
			continue;
		cases[i].run();
		puts("ok");
		return 0;
	}
	return 2;
}
