/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: made, refused, ended in each way, waited for. */
#include "rs.h"

#include <netinet/tcp.h>
#include <signal.h>
#include <sys/wait.h>

static int socket_error(int fd)
{
	socklen_t bytes = sizeof(int);
	int error = -1;

	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) && bytes == sizeof(int));
	return error;
}

static void test_names(void)
{
	struct sockaddr_in at, name, peer;
	socklen_t bytes = sizeof(name);
	struct pollfd pfd = {.events = POLLIN};
	int listener = listen_any(&at), a = rsocket(AF_INET, SOCK_STREAM, 0), b;

	set_nonblocking(a);
	CHECK(rgetpeername(a, (struct sockaddr *)&name, &bytes) == -1 && errno == ENOTCONN);
	CHECK(rconnect(a, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EINPROGRESS);
	CHECK(rconnect(a, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EALREADY);
	CHECK(rsend(a, "x", 1, 0) == -1 && errno == EAGAIN);
	/* Neither side waits for the other: each goes on when it is asked. */
	for (int i = 0; i < 10000 && !(pfd.revents & POLLIN); i++) {
		pfd.fd = listener;
		CHECK(rpoll(&pfd, 1, 1) >= 0);
		poll_now(a, POLLOUT);
	}
	b = raccept(listener, (struct sockaddr *)&peer, &bytes);
	CHECK(b >= 0 && bytes == sizeof(peer));
	CHECK(poll_for(a, POLLOUT, 5000) == POLLOUT && socket_error(a) == 0);
	CHECK(rconnect(a, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EISCONN);
	CHECK(!rgetsockname(a, (struct sockaddr *)&name, &bytes));
	CHECK(name.sin_port == peer.sin_port && name.sin_addr.s_addr == peer.sin_addr.s_addr);
	CHECK(!rgetpeername(a, (struct sockaddr *)&name, &bytes));
	CHECK(name.sin_port == at.sin_port && name.sin_addr.s_addr == at.sin_addr.s_addr);
	CHECK(!rgetsockname(b, (struct sockaddr *)&name, &bytes) && name.sin_port == at.sin_port);
	CHECK(rfcntl(a, F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK(!rclose(a) && !rclose(b) && !rclose(listener));
}

static void test_refused(void)
{
	struct sockaddr_in at, nobody;
	int fd = rsocket(AF_INET, SOCK_STREAM, 0), listener = listen_any(&at);

	nobody = at;
	CHECK(!rclose(listener));
	CHECK(rconnect(fd, (struct sockaddr *)&nobody, sizeof(nobody)) == -1);
	CHECK(errno == ECONNREFUSED);
	CHECK(!rclose(fd));
	fd = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP);
	CHECK(rconnect(fd, (struct sockaddr *)&nobody, sizeof(nobody)) == -1);
	if (errno == EINPROGRESS) { /* else it was refused at once, as TCP does on one host */
		CHECK(poll_for(fd, POLLOUT, 5000) & POLLERR);
		CHECK(socket_error(fd) == ECONNREFUSED && socket_error(fd) == 0);
	} else {
		CHECK(errno == ECONNREFUSED);
	}
	CHECK(!rclose(fd));
}

static void test_bad_calls(void)
{
	struct sockaddr_in at = loopback(0), six = {.sin_family = AF_INET6};
	char byte;
	int fd;

	CHECK(rsocket(AF_UNIX, SOCK_STREAM, 0) == -1 && errno == EOPNOTSUPP);
	CHECK(rsocket(AF_INET, SOCK_RAW, 0) == -1 && errno == EOPNOTSUPP);
	CHECK(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP) == -1 && errno == EOPNOTSUPP);
	CHECK(rclose(0) == -1 && errno == EBADF);
	CHECK(rsend(-1, "", 1, 0) == -1 && errno == EBADF);
	CHECK(rrecv(1 << 30, &byte, 1, 0) == -1 && errno == EBADF);
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(rrecv(fd, &byte, 1, 0) == -1 && errno == ENOTCONN);
	CHECK(rsend(fd, &byte, 1, 0) == -1 && errno == ENOTCONN);
	CHECK(rshutdown(fd, SHUT_WR) == -1 && errno == ENOTCONN);
	CHECK(rshutdown(fd, 7) == -1 && errno == EINVAL);
	CHECK(raccept(fd, NULL, NULL) == -1 && errno == EINVAL);
	CHECK(rbind(fd, (struct sockaddr *)&at, 4) == -1 && errno == EINVAL);
	CHECK(rbind(fd, (struct sockaddr *)&six, sizeof(six)) == -1 && errno == EINVAL);
	CHECK(!rbind(fd, (struct sockaddr *)&at, sizeof(at)));
	CHECK(rbind(fd, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EINVAL);
	CHECK(!rclose(fd));
	CHECK(rclose(fd) == -1 && errno == EBADF);
}

static void test_half_close(void)
{
	char buf[16];
	int a, b;

	make_pair(&a, &b);
	CHECK(rsend(a, "question", 8, 0) == 8);
	CHECK(!rshutdown(a, SHUT_WR));
	CHECK(rsend(a, "x", 1, 0) == -1 && errno == EPIPE);
	CHECK(rrecv(b, buf, 16, 0) == 8);
	CHECK(rrecv(b, buf, 16, 0) == 0 && rrecv(b, buf, 16, 0) == 0);
	CHECK(poll_now(b, POLLIN | POLLRDHUP) == (POLLIN | POLLRDHUP));
	CHECK(poll_now(a, POLLIN) == 0);
	CHECK(rsend(b, "answer", 6, 0) == 6);
	CHECK(rrecv(a, buf, 16, 0) == 6);
	CHECK(!rshutdown(b, SHUT_WR));
	CHECK(rrecv(a, buf, 16, 0) == 0);
	CHECK(!rclose(a) && !rclose(b));
}

static void test_close(void)
{
	static char buf[300000];
	size_t total = 0;
	ssize_t got;
	int a, b;

	make_pair(&a, &b);
	CHECK(rsend(a, buf, 50000, 0) == 50000);
	CHECK(!rclose(a));
	/* What was sent before the end arrives, then the end. */
	while ((got = rrecv(b, buf, sizeof(buf), 0)) > 0)
		total += (size_t)got;
	CHECK(got == 0 && total == 50000);
	CHECK(poll_now(b, POLLIN | POLLOUT) == (POLLIN | POLLOUT | POLLHUP));
	CHECK(rsend(b, buf, 1, 0) == -1 && errno == ECONNRESET);
	CHECK(socket_error(b) == 0);
	CHECK(!rclose(b));
}

static void *read_once(void *arg)
{
	char byte;
	int *fd = arg;

	*fd = (int)rrecv(*fd, &byte, 1, 0);
	return NULL;
}

/* A thread that reads hears of the end that another one makes. */
static void test_shutdown_wakes(void)
{
	static const int how[] = {SHUT_RD, SHUT_RDWR};

	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		int a, b, fd;

		make_pair(&a, &b);
		fd = a;
		CHECK(!pthread_create(&thread, NULL, read_once, &fd));
		usleep(50000);
		CHECK(!rshutdown(a, how[i]));
		CHECK(!pthread_join(thread, NULL) && fd == 0);
		CHECK(!rclose(a) && !rclose(b));
	}
}

static void test_timeouts(void)
{
	struct timeval tv = {.tv_usec = 150000};
	uint64_t start = now_ms();
	char byte;
	int a, b;

	make_pair(&a, &b);
	start = now_ms();
	CHECK(poll_for(a, POLLIN, 200) == 0);
	CHECK(now_ms() - start >= 199 && now_ms() - start < 5000);
	CHECK(!rsetsockopt(a, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	start = now_ms();
	CHECK(rrecv(a, &byte, 1, 0) == -1 && errno == EAGAIN);
	CHECK(now_ms() - start >= 149 && now_ms() - start < 5000);
	CHECK(poll_now(a, POLLIN | POLLOUT) == POLLOUT);
	CHECK(!rclose(a) && !rclose(b));
}

static void on_signal(int signal)
{
	(void)signal;
}

static void test_signal(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	struct pollfd pfd = {.events = POLLIN};
	char byte;
	int a, b;

	make_pair(&a, &b);
	CHECK(!sigaction(SIGALRM, &action, NULL));
	alarm(1);
	CHECK(rrecv(a, &byte, 1, 0) == -1 && errno == EINTR);
	alarm(1);
	pfd.fd = a;
	CHECK(rpoll(&pfd, 1, -1) == -1 && errno == EINTR);
	CHECK(!rclose(a) && !rclose(b));
}

/* Several sockets and a pipe at once. */
static void test_poll_many(void)
{
	int a, b, c, d, pipes[2];
	struct timeval none = {0}, soon = {.tv_sec = 5};
	fd_set in, out;
	char byte;

	make_pair(&a, &b);
	make_pair(&c, &d);
	CHECK(!pipe(pipes));
	{
		struct pollfd pfds[] = {{a, POLLIN, 0}, {-1, POLLIN, 0}, {c, POLLIN, 0},
					{pipes[0], POLLIN, 0}};

		CHECK(rpoll(pfds, 4, 20) == 0);
		CHECK(write(pipes[1], "x", 1) == 1);
		CHECK(rpoll(pfds, 4, 5000) == 1 && pfds[3].revents == POLLIN);
		CHECK(rsend(d, "x", 1, 0) == 1);
		CHECK(poll_for(c, POLLIN, 5000) == POLLIN);
		CHECK(rpoll(pfds, 4, 5000) == 2 && pfds[2].revents == POLLIN);
	}
	FD_ZERO(&in);
	FD_SET(a, &in);
	FD_SET(c, &in);
	out = in;
	CHECK(rselect((a > c ? a : c) + 1, &in, &out, NULL, &soon) == 3);
	CHECK(!FD_ISSET(a, &in) && FD_ISSET(c, &in) && FD_ISSET(a, &out) && FD_ISSET(c, &out));
	CHECK(rrecv(c, &byte, 1, 0) == 1);
	FD_ZERO(&in);
	FD_SET(c, &in);
	CHECK(rselect(c + 1, &in, NULL, NULL, &none) == 0 && !FD_ISSET(c, &in));
	CHECK(!rclose(a) && !rclose(b) && !rclose(c) && !rclose(d));
}

/* A thread sleeps in rpoll while another one takes what comes in. */
static void *poll_thread(void *arg)
{
	struct pollfd pfd = {.fd = *(int *)arg, .events = POLLIN};

	CHECK(rpoll(&pfd, 1, 20000) == 1 && (pfd.revents & POLLIN));
	return NULL;
}

static void test_poll_threads(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_t threads[3];
		int a, b;

		make_pair(&a, &b);
		for (int j = 0; j < 3; j++)
			CHECK(!pthread_create(&threads[j], NULL, poll_thread, &a));
		if (i % 2)
			usleep(1000);
		CHECK(rsend(b, "x", 1, 0) == 1);
		for (int j = 0; j < 3; j++)
			CHECK(!pthread_join(threads[j], NULL));
		CHECK(!rclose(a) && !rclose(b));
	}
}

/* A child of its own dies without a word; the connection ends. */
static void test_peer_killed(void)
{
	struct sockaddr_in at;
	char byte;
	int pipes[2], listener, status, fd;
	pid_t child;

	CHECK(!pipe(pipes));
	child = fork(); /* before this process has anything of the NIC */
	if (child == 0) {
		CHECK(read(pipes[0], &at, sizeof(at)) == sizeof(at));
		fd = rsocket(AF_INET, SOCK_STREAM, 0);
		CHECK(!rconnect(fd, (struct sockaddr *)&at, sizeof(at)));
		CHECK(rsend(fd, "x", 1, 0) == 1);
		pause();
	}
	listener = listen_any(&at);
	CHECK(write(pipes[1], &at, sizeof(at)) == sizeof(at));
	fd = raccept(listener, NULL, NULL);
	CHECK(fd >= 0 && rrecv(fd, &byte, 1, 0) == 1);
	CHECK(!kill(child, SIGKILL));
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(poll_for(fd, POLLIN, 20000) & POLLIN);
	CHECK(rrecv(fd, &byte, 1, 0) <= 0);
	/* A program that only asks, and never waits, hears of it too. */
	for (int i = 0; i < 1000 && rsend(fd, "x", 1, MSG_DONTWAIT) == 1; i++)
		;
	CHECK(rsend(fd, "x", 1, MSG_DONTWAIT) == -1);
	CHECK(!rclose(fd) && !rclose(listener));
}

static void test_fork(void)
{
	char byte;
	int a, b, status, fd;
	pid_t child;

	make_pair(&a, &b);
	child = fork();
	if (child == 0) {
		CHECK(rsend(a, "x", 1, 0) == -1 && errno == EBADF);
		CHECK(rrecv(b, &byte, 1, 0) == -1 && errno == EBADF);
		CHECK(!rclose(a) && !rclose(b));
		make_pair(&a, &b); /* its own work */
		CHECK(rsend(a, "y", 1, 0) == 1 && rrecv(b, &byte, 1, 0) == 1 && byte == 'y');
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(rsend(a, "x", 1, 0) == 1 && rrecv(b, &byte, 1, 0) == 1 && byte == 'x');
	fd = b;
	CHECK(!rclose(a) && !rclose(fd));
}

static void test_options(void)
{
	int fd = rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), value = 0, one = 1, size = 50000;
	struct linger linger = {1, 3};
	socklen_t bytes = sizeof(value);

	CHECK(rfcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &bytes) && value == SOCK_STREAM);
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, &bytes) && value == 1);
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
	CHECK(!rgetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, &bytes) && value >= size);
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	CHECK(!rsetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
	CHECK(!rgetsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &bytes) && value == 1);
	CHECK(!rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)));
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &size, sizeof(size)));
	CHECK(!rgetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &value, &bytes) && value == 32512);
	CHECK(rsetsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, 1) == -1 && errno == EINVAL);
	CHECK(rsetsockopt(fd, 77, 7, &one, sizeof(one)) == -1 && errno == EOPNOTSUPP);
	CHECK(!rclose(fd));
}

static void keep_alive(int fd)
{
	int one = 1;

	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)));
	CHECK(!rsetsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one)));
}

/* Keepalives do no harm to the bytes between them. */
static void test_keepalive(void)
{
	char byte;
	int a, b;

	make_pair_with(&a, &b, keep_alive);
	keep_alive(a);
	for (int i = 0; i < 4; i++) {
		usleep(800000);
		CHECK(rsend(a, "x", 1, 0) == 1 && rrecv(b, &byte, 1, 0) == 1);
	}
	CHECK(!rclose(a) && !rclose(b));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"names", test_names},
		{"refused", test_refused},
		{"bad_calls", test_bad_calls},
		{"half_close", test_half_close},
		{"close", test_close},
		{"shutdown_wakes", test_shutdown_wakes},
		{"timeouts", test_timeouts},
		{"signal", test_signal},
		{"poll_many", test_poll_many},
		{"poll_threads", test_poll_threads},
		{"peer_killed", test_peer_killed},
		{"fork", test_fork},
		{"options", test_options},
		{"keepalive", test_keepalive},
	};

	return RUN_CASES(cases, argc, argv);
}
