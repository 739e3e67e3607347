/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams, and direct placement. */
#include "rs.h"

#include <sys/mman.h>

static int bound_datagram(struct sockaddr_in *at)
{
	socklen_t bytes = sizeof(*at);
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);

	*at = loopback(0);
	CHECK(fd >= 0 && !rbind(fd, (struct sockaddr *)at, sizeof(*at)));
	CHECK(!rgetsockname(fd, (struct sockaddr *)at, &bytes) && at->sin_port);
	return fd;
}

static void test_datagrams(void)
{
	struct sockaddr_in at, from, own;
	socklen_t bytes = sizeof(from);
	char buf[3000] = "", out[3000];
	int server = bound_datagram(&at), client = bound_datagram(&own);

	CHECK(rsend(client, "x", 1, 0) == -1 && errno == EDESTADDRREQ);
	CHECK(rrecv(server, buf, 10, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(poll_now(server, POLLIN | POLLOUT) == POLLOUT);
	/* The first goes over UDP, those that come after the answer over the queue pair. */
	for (size_t size = 0; size <= 2000; size += 250) {
		for (size_t i = 0; i < size; i++)
			out[i] = (char)pattern(i + size);
		CHECK(rsendto(client, out, size, 0, (struct sockaddr *)&at, sizeof(at)) ==
		      (ssize_t)size);
		CHECK(poll_for(server, POLLIN, 10000) == POLLIN);
		CHECK(rrecvfrom(server, buf, 3, MSG_PEEK | MSG_TRUNC, NULL, NULL) ==
		      (ssize_t)size);
		CHECK(rrecvfrom(server, buf, sizeof(buf), 0, (struct sockaddr *)&from, &bytes) ==
		      (ssize_t)size);
		CHECK(!memcmp(buf, out, size));
		CHECK(bytes == sizeof(from) && from.sin_port == own.sin_port);
		CHECK(from.sin_addr.s_addr == own.sin_addr.s_addr);
		CHECK(rsendto(server, "back", 4, 0, (struct sockaddr *)&from, bytes) == 4);
		CHECK(poll_for(client, POLLIN, 10000) == POLLIN);
		CHECK(rrecv(client, buf, sizeof(buf), 0) == 4 && !memcmp(buf, "back", 4));
	}
	CHECK(rsendto(client, out, 2048, 0, (struct sockaddr *)&at, sizeof(at)) == -1);
	CHECK(errno == EMSGSIZE);
	CHECK(!rconnect(client, (struct sockaddr *)&at, sizeof(at)));
	CHECK(rsend(client, "to", 2, 0) == 2);
	CHECK(rrecv(server, buf, sizeof(buf), 0) == 2);
	CHECK(!rgetpeername(client, (struct sockaddr *)&from, &bytes) &&
	      from.sin_port == at.sin_port);
	CHECK(!rclose(client) && !rclose(server));
}

/* Strangers on the UDP port are not heard, and do no harm. */
static void test_strangers(void)
{
	struct sockaddr_in at;
	char junk[64];
	int server = bound_datagram(&at), udp = socket(AF_INET, SOCK_DGRAM, 0);

	for (size_t size = 0; size < sizeof(junk); size++) {
		memset(junk, (int)size, sizeof(junk));
		if (size % 2)
			memset(junk, 0x55, 4);
		if (size % 4 == 1)
			junk[4] = 4, junk[6] = 16;
		CHECK(sendto(udp, junk, size, 0, (struct sockaddr *)&at, sizeof(at)) ==
		      (ssize_t)size);
	}
	CHECK(poll_for(server, POLLIN, 200) == 0 || rrecv(server, junk, 64, MSG_DONTWAIT) >= 0);
	CHECK(!close(udp) && !rclose(server));
}

static void with_iomap(int fd)
{
	int entries = 4;

	CHECK(!rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)));
}

static void test_iomap(void)
{
	static unsigned char target[200000], source[200000], other[4096];
	char byte;
	int a, b;

	make_pair_with(&a, &b, with_iomap);
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = pattern(i);
	CHECK(riowrite(a, source, 10, 0, 0) == (size_t)-1 && errno == EFAULT);
	CHECK(riomap(b, target, sizeof(target), PROT_WRITE, 0, 4096) == 4096);
	CHECK(riomap(b, other, sizeof(other), PROT_WRITE, 0, -1) == (off_t)(uintptr_t)other);
	CHECK(riomap(b, other, sizeof(other), PROT_EXEC, 0, 0) == -1 && errno == EINVAL);
	/* The mappings are known when the next bytes have come. */
	CHECK(rsend(b, "m", 1, 0) == 1 && rrecv(a, &byte, 1, 0) == 1);
	CHECK(riowrite(a, source, sizeof(source), 4096, 0) == sizeof(source));
	CHECK(riowrite(a, source, 100, (off_t)(uintptr_t)other, 0) == 100);
	CHECK(rsend(a, "w", 1, 0) == 1 && rrecv(b, &byte, 1, 0) == 1);
	CHECK(!memcmp(source, target, sizeof(source)) && !memcmp(source, other, 100));
	CHECK(other[100] == 0);
	/* Beyond the end only what is before it. */
	CHECK(riowrite(a, source, 100, 4096 + sizeof(target) - 10, 0) == 10);
	CHECK(!riounmap(b, target, sizeof(target)));
	CHECK(riounmap(b, target, sizeof(target)) == -1 && errno == EINVAL);
	for (int i = 0; i < 600; i++) { /* more than there are credits */
		CHECK(riomap(b, target, 100, PROT_WRITE, 0, 4096) == 4096);
		CHECK(rsend(b, "m", 1, 0) == 1 && rrecv(a, &byte, 1, 0) == 1);
		CHECK(!riounmap(b, target, 100));
	}
	for (int i = 0; i < 3; i++)
		CHECK(riomap(b, target + i, 10, PROT_WRITE, 0, 4096 * i) == 4096 * i);
	CHECK(riomap(b, target, 11, PROT_WRITE, 0, 0) == -1 && errno == ENOMEM);
	CHECK(riomap(b, target, 11, PROT_NONE, 0, 77) == 77);
	CHECK(!rclose(a) && !rclose(b));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"datagrams", test_datagrams},
		{"strangers", test_strangers},
		{"iomap", test_iomap},
	};

	return RUN_CASES(cases, argc, argv);
}
