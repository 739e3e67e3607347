/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: what arrives is what was sent, whatever the sizes and the calls. */
#include "rs.h"

#include <sys/uio.h>

struct transfer {
	int fd;
	size_t total;
	size_t piece; /* of a call */
	int flags;
};

static void *send_all(void *arg)
{
	const struct transfer *t = arg;
	unsigned char *buf = malloc(t->piece);
	size_t at = 0;

	CHECK(buf);
	while (at < t->total) {
		size_t want = t->total - at < t->piece ? t->total - at : t->piece;
		ssize_t sent;

		for (size_t i = 0; i < want; i++)
			buf[i] = pattern(at + i);
		sent = rsend(t->fd, buf, want, t->flags);
		if (sent < 0 && errno == EAGAIN) {
			CHECK(poll_for(t->fd, POLLOUT, 20000) & POLLOUT);
			continue;
		}
		CHECK(sent > 0);
		CHECK((t->flags & MSG_DONTWAIT) || (size_t)sent == want);
		at += (size_t)sent;
	}
	free(buf);
	return NULL;
}

static void *recv_all(void *arg)
{
	const struct transfer *t = arg;
	unsigned char *buf = malloc(t->piece);
	size_t at = 0;

	CHECK(buf);
	while (at < t->total) {
		ssize_t got = rrecv(t->fd, buf, t->piece, t->flags);

		if (got < 0 && errno == EAGAIN) {
			CHECK(poll_for(t->fd, POLLIN, 20000) & POLLIN);
			continue;
		}
		CHECK(got > 0);
		for (ssize_t i = 0; i < got; i++)
			CHECK(buf[i] == pattern(at + (size_t)i));
		at += (size_t)got;
	}
	free(buf);
	return NULL;
}

/* Moves bytes both ways at once, each direction by a thread of its own at either end. */
static void exchange(int a, int b, const struct transfer *sends, const struct transfer *recvs)
{
	struct transfer t[4] = {*sends, *recvs, *sends, *recvs};
	pthread_t threads[4];

	t[0].fd = t[3].fd = a;
	t[1].fd = t[2].fd = b;
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, i % 2 ? recv_all : send_all, &t[i]));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void test_sizes(void)
{
	static const size_t pieces[] = {1, 7, 64, 65, 1000, 2047, 2048, 2049, 65536, 1000003};
	int a, b;

	make_pair(&a, &b);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		for (size_t j = 0; j < sizeof(pieces) / sizeof(pieces[0]); j++) {
			struct transfer out = {.piece = pieces[i]}, in = {.piece = pieces[j]};

			out.total = in.total = pieces[i] < 64 || pieces[j] < 64 ? 500 : 600000;
			exchange(a, b, &out, &in);
		}
	}
	CHECK(!rclose(a) && !rclose(b));
}

static void test_nonblocking(void)
{
	struct transfer out = {.total = 3000000, .piece = 70000, .flags = MSG_DONTWAIT};
	struct transfer in = {.total = 3000000, .piece = 4000, .flags = MSG_DONTWAIT};
	int a, b;

	make_pair(&a, &b);
	exchange(a, b, &out, &in);
	CHECK(!rclose(a) && !rclose(b));
}

static void small_queues(int fd)
{
	int size = 16, buffer = 4096, none = 0;

	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &size, sizeof(size)));
	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &size, sizeof(size)));
	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_INLINE, &none, sizeof(none)));
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)));
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)));
}

static void large_queues(int fd)
{
	int size = 4000, buffer = 1 << 20, inlined = 512;

	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &size, sizeof(size)));
	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_RQSIZE, &size, sizeof(size)));
	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_INLINE, &inlined, sizeof(inlined)));
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer)));
	CHECK(!rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)));
}

static void test_queues(void)
{
	prepare_socket *const prepares[] = {small_queues, large_queues};
	struct transfer out = {.total = 800000, .piece = 3001}, in = {.total = 800000, .piece = 999};
	int a, b;

	for (int i = 0; i < 2; i++) {
		make_pair_with(&a, &b, prepares[i]);
		exchange(a, b, &out, &in);
		CHECK(!rclose(a) && !rclose(b));
	}
}

static void test_vectors(void)
{
	char one[3] = "abc", two[5] = "defgh", out[16] = "", more[16] = "";
	struct iovec empty = {NULL, 0}, from[] = {{one, 3}, empty, {two, 5}, empty};
	struct iovec to[] = {{out, 2}, empty, {more, 16}};
	struct msghdr msg = {.msg_iov = from, .msg_iovlen = 4}, in = {.msg_iov = to, .msg_iovlen = 3};
	int a, b;

	make_pair(&a, &b);
	CHECK(rwritev(a, from, 4) == 8);
	CHECK(poll_for(b, POLLIN, 5000) == POLLIN);
	CHECK(rreadv(b, to, 3) == 8 && !memcmp(out, "ab", 2) && !memcmp(more, "cdefgh", 6));
	CHECK(rsendmsg(a, &msg, 0) == 8);
	CHECK(poll_for(b, POLLIN, 5000) == POLLIN);
	CHECK(rrecvmsg(b, &in, 0) == 8 && !memcmp(more, "cdefgh", 6) && in.msg_flags == 0);
	CHECK(rwritev(a, from, -1) == -1 && errno == EINVAL);
	CHECK(rsend(a, "", 0, 0) == 0);
	CHECK(rsend(a, "x", 1, MSG_OOB) == -1 && errno == EOPNOTSUPP);
	CHECK(!rclose(a) && !rclose(b));
}

static void test_flags(void)
{
	char buf[16];
	int a, b;

	make_pair(&a, &b);
	CHECK(rrecv(b, buf, 16, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(rsend(a, "hello", 5, 0) == 5);
	CHECK(poll_for(b, POLLIN, 5000) == POLLIN);
	CHECK(rrecv(b, buf, 16, MSG_PEEK) == 5 && !memcmp(buf, "hello", 5));
	CHECK(rrecv(b, buf, 2, MSG_PEEK) == 2);
	CHECK(rrecv(b, buf, 2, MSG_TRUNC) == 2); /* thrown away */
	CHECK(rrecv(b, buf, 16, 0) == 3 && !memcmp(buf, "llo", 3));
	CHECK(rsend(a, "hel", 3, 0) == 3 && rsend(a, "lo", 2, 0) == 2);
	CHECK(rrecv(b, buf, 5, MSG_WAITALL) == 5 && !memcmp(buf, "hello", 5));
	CHECK(rrecv(b, buf, 0, 0) == 0);
	CHECK(!rclose(a) && !rclose(b));
}

/* A peer that reads nothing stops who writes, and does not lose a byte. */
static void test_back_pressure(void)
{
	static unsigned char buf[100000];
	size_t sent = 0, at = 0;
	ssize_t got;
	int a, b;

	make_pair(&a, &b);
	set_nonblocking(a);
	for (;;) {
		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = pattern(sent + i);
		got = rsend(a, buf, sizeof(buf), 0);
		if (got < 0 && poll_for(a, POLLOUT, 50) == 0)
			break;
		if (got > 0)
			sent += (size_t)got;
	}
	CHECK(rsend(a, buf, 1, 0) == -1 && errno == EAGAIN && sent >= 65536);
	CHECK(poll_now(a, POLLIN | POLLOUT) == 0);
	while (at < sent) {
		got = rrecv(b, buf, sizeof(buf), 0);
		CHECK(got > 0);
		for (ssize_t i = 0; i < got; i++)
			CHECK(buf[i] == pattern(at + (size_t)i));
		at += (size_t)got;
	}
	CHECK(poll_for(a, POLLOUT, 5000) == POLLOUT);
	CHECK(rsend(a, buf, 1, 0) == 1);
	CHECK(!rclose(a) && !rclose(b));
}

/* More messages than there are credits, each of one byte. */
static void test_credits(void)
{
	unsigned char byte;
	size_t sent = 0;
	int a, b;

	make_pair(&a, &b);
	set_nonblocking(a);
	while (sent < 100000) {
		byte = pattern(sent);
		if (rsend(a, &byte, 1, 0) == 1)
			sent++;
		else if (poll_for(a, POLLOUT, 50) == 0)
			break;
	}
	CHECK(sent == 384); /* messages, not bytes, are what there is no room for */
	for (size_t i = 0; i < sent; i++)
		CHECK(rrecv(b, &byte, 1, 0) == 1 && byte == pattern(i));
	CHECK(poll_for(a, POLLOUT, 5000) == POLLOUT);
	CHECK(!rclose(a) && !rclose(b));
}

/* Several threads at one socket: no message is torn, none is lost. */
static int threads_fd;

static void *send_letter(void *arg)
{
	char buf[100];

	memset(buf, *(char *)arg, sizeof(buf));
	for (int i = 0; i < 200; i++)
		CHECK(rsend(threads_fd, buf, sizeof(buf), 0) == sizeof(buf));
	return NULL;
}

static void test_threads(void)
{
	char letters[4] = "abcd", buf[100];
	int a, b, counts[4] = {0};
	pthread_t threads[4];

	make_pair(&a, &b);
	threads_fd = a;
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, send_letter, &letters[i]));
	for (int i = 0; i < 800; i++) {
		CHECK(rrecv(b, buf, sizeof(buf), MSG_WAITALL) == sizeof(buf));
		for (size_t j = 1; j < sizeof(buf); j++)
			CHECK(buf[j] == buf[0]);
		counts[buf[0] - 'a']++;
	}
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL) && counts[i] == 200);
	CHECK(!rclose(a) && !rclose(b));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"sizes", test_sizes},
		{"nonblocking", test_nonblocking},
		{"queues", test_queues},
		{"vectors", test_vectors},
		{"flags", test_flags},
		{"back_pressure", test_back_pressure},
		{"credits", test_credits},
		{"threads", test_threads},
	};

	return RUN_CASES(cases, argc, argv);
}
