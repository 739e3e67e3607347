/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <byteswap.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

bool wire_host_is_big_endian(void)
{
	return __BYTE_ORDER == __BIG_ENDIAN;
}

void wire_sge_swap(struct wire_sge *sge)
{
	sge->addr = bswap_64(sge->addr);
	sge->key = bswap_32(sge->key);
	sge->length = bswap_32(sge->length);
}

void wire_iomap_swap(struct wire_iomap *entry)
{
	entry->offset = bswap_64(entry->offset);
	wire_sge_swap(&entry->sge);
}

/*
 * One byte names up to 128 entries as they are, and beyond that, with the top bit set, multiples
 * of 256.
 */
static uint8_t wire_scale(uint32_t entries)
{
	if (entries <= 128)
		return (uint8_t)entries;
	return (uint8_t)(0x80 | (entries >> 8 > 127 ? 127 : entries >> 8));
}

static uint32_t wire_unscale(uint8_t scaled)
{
	return scaled <= 128 ? scaled : (uint32_t)(scaled & 0x7f) << 8;
}

uint32_t wire_iomap_entries(uint32_t wanted)
{
	return wire_unscale(wire_scale(wanted));
}

static void wire_sge_write(unsigned char *out, const struct wire_sge *sge)
{
	uint64_t addr = htobe64(sge->addr);
	uint32_t key = htobe32(sge->key), length = htobe32(sge->length);

	memcpy(out, &addr, 8);
	memcpy(out + 8, &key, 4);
	memcpy(out + 12, &length, 4);
}

static void wire_sge_read(struct wire_sge *out, const unsigned char *data)
{
	memcpy(&out->addr, data, 8);
	memcpy(&out->key, data + 8, 4);
	memcpy(&out->length, data + 12, 4);
	out->addr = be64toh(out->addr);
	out->key = be32toh(out->key);
	out->length = be32toh(out->length);
}

void wire_conn_write(unsigned char out[WIRE_CONN_BYTES], const struct wire_conn *conn)
{
	uint16_t credits = htobe16(conn->credits);

	memset(out, 0, WIRE_CONN_BYTES);
	out[0] = WIRE_VERSION;
	out[1] = (uint8_t)(WIRE_FLAG_IOMAP | (conn->big_endian ? WIRE_FLAG_BIG_ENDIAN : 0));
	memcpy(out + 2, &credits, 2);
	out[7] = wire_scale(conn->iomap_entries);
	wire_sge_write(out + 8, &conn->list);
	wire_sge_write(out + 24, &conn->buffer);
}

int wire_conn_read(struct wire_conn *out, const void *data, size_t bytes)
{
	const unsigned char *in = data;

	/* A kernel pads private data; ours may be cut where it ends in zeros, which it does not. */
	if (!data || bytes < WIRE_CONN_BYTES)
		return EPROTO;
	if (in[0] != WIRE_VERSION)
		return EPROTONOSUPPORT;
	out->big_endian = in[1] & WIRE_FLAG_BIG_ENDIAN;
	out->credits = (uint16_t)(in[2] << 8 | in[3]);
	out->iomap_entries = in[1] & WIRE_FLAG_IOMAP ? wire_unscale(in[7]) : 0;
	wire_sge_read(&out->list, in + 8);
	wire_sge_read(&out->buffer, in + 24);
	return out->list.length ? 0 : EPROTO;
}

size_t wire_udp_write(unsigned char *out, const struct wire_udp *udp)
{
	const bool is_v4 = udp->from.ss_family == AF_INET;
	const size_t bytes = is_v4 ? WIRE_UDP_BYTES_V4 : WIRE_UDP_BYTES_V6;
	uint32_t tag = htobe32(WIRE_UDP_TAG), qpn = htobe32(udp->qpn & 0xffffff);

	memset(out, 0, bytes);
	memcpy(out, &tag, 4);
	out[4] = is_v4 ? 4 : 6;
	out[5] = udp->op;
	out[6] = (uint8_t)bytes;
	memcpy(out + 8, &qpn, 4);
	if (is_v4)
		memcpy(out + 12, &((const struct sockaddr_in *)&udp->from)->sin_addr, 4);
	else
		memcpy(out + 12, &((const struct sockaddr_in6 *)&udp->from)->sin6_addr, 16);
	return bytes;
}

size_t wire_udp_read(struct wire_udp *out, const unsigned char *data, size_t bytes)
{
	const uint32_t tag = htobe32(WIRE_UDP_TAG);
	size_t length;

	if (bytes < WIRE_UDP_BYTES_V4 || memcmp(data, &tag, 4) != 0)
		return 0;
	length = data[4] == 4 ? WIRE_UDP_BYTES_V4 : data[4] == 6 ? WIRE_UDP_BYTES_V6 : 0;
	if (!length || data[6] != length || bytes < length)
		return 0;
	memset(out, 0, sizeof(*out));
	out->op = data[5];
	out->qpn = (uint32_t)data[9] << 16 | (uint32_t)data[10] << 8 | data[11];
	out->from.ss_family = data[4] == 4 ? AF_INET : AF_INET6;
	if (data[4] == 4)
		memcpy(&((struct sockaddr_in *)&out->from)->sin_addr, data + 12, 4);
	else
		memcpy(&((struct sockaddr_in6 *)&out->from)->sin6_addr, data + 12, 16);
	return length;
}

size_t wire_from_write(unsigned char *out, const struct sockaddr *from)
{
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;

	if (from->sa_family == AF_INET) {
		memcpy(&in4, from, sizeof(in4));
		out[0] = 4;
		out[1] = WIRE_FROM_BYTES_V4;
		memcpy(out + 2, &in4.sin_port, 2);
		memcpy(out + 4, &in4.sin_addr, 4);
		return WIRE_FROM_BYTES_V4;
	}
	memcpy(&in6, from, sizeof(in6));
	out[0] = 6;
	out[1] = WIRE_FROM_BYTES_V6;
	memcpy(out + 2, &in6.sin6_port, 2);
	memcpy(out + 4, &in6.sin6_flowinfo, 4);
	memcpy(out + 8, &in6.sin6_addr, 16);
	return WIRE_FROM_BYTES_V6;
}

size_t wire_from_read(struct sockaddr_storage *out, const unsigned char *data, size_t bytes)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	memset(out, 0, sizeof(*out));
	if (bytes >= WIRE_FROM_BYTES_V4 && data[0] == 4 && data[1] == WIRE_FROM_BYTES_V4) {
		memcpy(&in4.sin_port, data + 2, 2);
		memcpy(&in4.sin_addr, data + 4, 4);
		memcpy(out, &in4, sizeof(in4));
		return WIRE_FROM_BYTES_V4;
	}
	if (bytes >= WIRE_FROM_BYTES_V6 && data[0] == 6 && data[1] == WIRE_FROM_BYTES_V6) {
		memcpy(&in6.sin6_port, data + 2, 2);
		memcpy(&in6.sin6_flowinfo, data + 4, 4);
		memcpy(&in6.sin6_addr, data + 8, 16);
		memcpy(out, &in6, sizeof(in6));
		return WIRE_FROM_BYTES_V6;
	}
	return 0;
}
