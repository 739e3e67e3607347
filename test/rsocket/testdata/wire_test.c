/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of docs/rsockets.md, byte by byte. */
#include "../../../clib/rsocket/wire.c"

#include "rs.h"

static void test_connect(void)
{
	static const unsigned char golden[WIRE_CONN_BYTES] = {
		1, 2, 0x01, 0x80, 0, 0, 0, 0x84,
		0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 0, 0, 0, 2,
		0, 0, 0x7f, 0, 0, 0, 0x10, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0, 1, 0, 0,
	};
	struct wire_conn in, conn = {
		.credits = 384,
		.iomap_entries = 1024,
		.list = {0x1122334455667788, 0x01020304, 2},
		.buffer = {0x7f0000001000, 0xaabbccdd, 65536},
	};
	unsigned char out[WIRE_CONN_BYTES];

	wire_conn_write(out, &conn);
	CHECK(!memcmp(out, golden, sizeof(out)));
	CHECK(!wire_conn_read(&in, golden, sizeof(golden)));
	CHECK(in.credits == 384 && in.iomap_entries == 1024 && !in.big_endian);
	CHECK(!memcmp(&in.list, &conn.list, sizeof(in.list)));
	CHECK(!memcmp(&in.buffer, &conn.buffer, sizeof(in.buffer)));
	out[1] = 1; /* from before I/O maps, on a big-endian host */
	CHECK(!wire_conn_read(&in, out, 56) && in.iomap_entries == 0 && in.big_endian);
	CHECK(wire_conn_read(&in, out, WIRE_CONN_BYTES - 1) == EPROTO);
	CHECK(wire_conn_read(&in, NULL, 0) == EPROTO);
	out[0] = 2;
	CHECK(wire_conn_read(&in, out, sizeof(out)) == EPROTONOSUPPORT);
	out[0] = 1;
	memset(out + 20, 0, 4); /* a target list of no entries */
	CHECK(wire_conn_read(&in, out, sizeof(out)) == EPROTO);
}

static void test_entries(void)
{
	static const uint32_t wanted[][2] = {
		{0, 0}, {1, 1}, {128, 128}, {129, 128}, {255, 128}, {256, 256}, {300, 256},
		{32511, 32256}, {32512, 32512}, {65535, 32512},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		CHECK(wire_iomap_entries(wanted[i][0]) == wanted[i][1]);
}

static void test_messages(void)
{
	CHECK(wire_message(WIRE_DATA, 65536) == 65536);
	CHECK(wire_message(WIRE_CREDITS, 0x1234) == 0x80001234);
	CHECK(wire_message(WIRE_IOMAP, 7) == 0xc0000007);
	CHECK(wire_message(WIRE_CONTROL, WIRE_SHUTDOWN) == 0xe0000002);
	CHECK(wire_message_kind(0xe0000000) == WIRE_CONTROL);
	CHECK(wire_message_value(0xffffffff) == WIRE_VALUE_MAX);
}

static void test_datagrams(void)
{
	static const unsigned char udp4[] = {
		0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 10, 1, 2, 3,
	};
	static const unsigned char from4[] = {4, 8, 0x1c, 0x06, 10, 1, 2, 3};
	struct sockaddr_in name = loopback(7174);
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(7174)};
	struct wire_udp udp = {.op = WIRE_UDP_REPLY, .qpn = 0x123456}, in;
	struct sockaddr_storage from;
	unsigned char out[WIRE_UDP_BYTES_V6];

	name.sin_addr.s_addr = htonl(0x0a010203);
	memcpy(&udp.from, &name, sizeof(name));
	CHECK(wire_udp_write(out, &udp) == sizeof(udp4) && !memcmp(out, udp4, sizeof(udp4)));
	CHECK(wire_udp_read(&in, udp4, sizeof(udp4)) == sizeof(udp4));
	CHECK(in.op == WIRE_UDP_REPLY && in.qpn == 0x123456 && in.from.ss_family == AF_INET);
	for (size_t bytes = 0; bytes < sizeof(udp4); bytes++)
		CHECK(wire_udp_read(&in, udp4, bytes) == 0);
	for (size_t i = 0; i < 7; i++) { /* a header with any of these wrong is none */
		memcpy(out, udp4, sizeof(udp4));
		out[i] ^= 0x20;
		CHECK(wire_udp_read(&in, out, sizeof(udp4)) == (i == 5 ? sizeof(udp4) : 0));
	}
	CHECK(wire_from_write(out, (struct sockaddr *)&name) == sizeof(from4));
	CHECK(!memcmp(out, from4, sizeof(from4)));
	CHECK(wire_from_read(&from, from4, sizeof(from4)) == sizeof(from4));
	CHECK(!memcmp(&from, &name, sizeof(name)));
	CHECK(wire_from_read(&from, from4, sizeof(from4) - 1) == 0);
	memset(&six.sin6_addr, 0xfd, 16);
	CHECK(wire_from_write(out, (struct sockaddr *)&six) == WIRE_FROM_BYTES_V6);
	CHECK(out[0] == 6 && out[1] == 24 && out[2] == 0x1c && out[8] == 0xfd && out[23] == 0xfd);
	CHECK(wire_from_read(&from, out, WIRE_FROM_BYTES_V6) == WIRE_FROM_BYTES_V6);
	CHECK(!memcmp(&from, &six, sizeof(six)));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"connect", test_connect},
		{"entries", test_entries},
		{"messages", test_messages},
		{"datagrams", test_datagrams},
	};

	return RUN_CASES(cases, argc, argv);
}
