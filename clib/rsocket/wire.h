/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of rsockets, as docs/rsockets.md describes them. */
#ifndef RS_WIRE_H
#define RS_WIRE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * Every WRITE with immediate data is a message: three bits of kind, 29 of value, in network order.
 */
enum wire_kind {
	WIRE_DATA = 0,    /* bytes that were written into the receive buffer */
	WIRE_CREDITS = 4, /* messages that may be sent, modulo 2^16; perhaps a new target */
	WIRE_IOMAP = 6,   /* entry of the I/O map that was written */
	WIRE_CONTROL = 7,
};

enum wire_control {
	WIRE_DISCONNECT = 0, /* nothing more is sent, nor read */
	WIRE_KEEPALIVE = 1,  /* never sent: a keepalive is a write of nothing, without a message */
	WIRE_SHUTDOWN = 2,   /* nothing more is sent */
};

/* A message that is a SEND, in the byte order of who sends it. */
#define WIRE_NOTE_BYTES sizeof(uint32_t)
/*
 * Receives for control messages beyond those that are counted: iWARP does not repeat what finds
 * none.
 */
#define WIRE_NOTES_SPARE 16
/* So many of the peer's credits are left for control messages: rdma-core has no other receives. */
#define WIRE_NOTES_RESERVE 8u

#define WIRE_VALUE_MAX 0x1fffffffu

/* Entries of our target list. A peer may have another number. */
#define WIRE_TARGETS 2
/* Work requests kept for control messages. */
#define WIRE_CONTROLS 4
/* Data is sent only where so much fits; a datagram has at most so much. */
#define WIRE_LOW_WATER 2048u
#define WIRE_INLINE_MAX 512u
#define WIRE_QUEUE_MIN 16u
#define WIRE_QUEUE_MAX 0xfffeu

/* A buffer of the peer. In shared memory it has the byte order of the host whose memory it is. */
struct wire_sge {
	uint64_t addr;
	uint32_t key;
	uint32_t length;
};

/* An entry of an I/O map; in shared memory as well. */
struct wire_iomap {
	uint64_t offset;
	struct wire_sge sge;
};

#define WIRE_VERSION 1
#define WIRE_FLAG_BIG_ENDIAN 1
#define WIRE_FLAG_IOMAP 2
#define WIRE_CONN_BYTES 40

/* What both sides tell each other as private data of the request and its reply. */
struct wire_conn {
	uint16_t credits;
	uint32_t iomap_entries; /* 0 also where the peer knows no I/O maps */
	bool big_endian;
	struct wire_sge list; /* length: entries */
	struct wire_sge buffer;
};

void wire_conn_write(unsigned char out[WIRE_CONN_BYTES], const struct wire_conn *conn);
/* Returns 0, or the errno for what is no such data. */
int wire_conn_read(struct wire_conn *out, const void *data, size_t bytes);

bool wire_host_is_big_endian(void);
void wire_sge_swap(struct wire_sge *sge);
void wire_iomap_swap(struct wire_iomap *entry);
/* The nearest number of entries, not above, that a connection request can name. */
uint32_t wire_iomap_entries(uint32_t wanted);

static inline uint32_t wire_message(enum wire_kind kind, uint32_t value)
{
	return (uint32_t)kind << 29 | (value & WIRE_VALUE_MAX);
}

static inline unsigned int wire_message_kind(uint32_t message)
{
	return message >> 29;
}

static inline uint32_t wire_message_value(uint32_t message)
{
	return message & WIRE_VALUE_MAX;
}

/*
 * Datagrams. On a UDP socket of the same port as the rsocket a header tells the queue pair; on
 * the queue pair another one tells where a datagram came from.
 */
#define WIRE_UDP_TAG 0x55555555u
#define WIRE_UDP_DATA 0
#define WIRE_UDP_REPLY 7
#define WIRE_UDP_BYTES_V4 16
#define WIRE_UDP_BYTES_V6 28
#define WIRE_FROM_BYTES_V4 8
#define WIRE_FROM_BYTES_V6 24

struct wire_udp {
	uint8_t op;
	uint32_t qpn;
	struct sockaddr_storage from; /* address only */
};

/* Return the bytes of the header, 0 for one that is none. */
size_t wire_udp_write(unsigned char *out, const struct wire_udp *udp);
size_t wire_udp_read(struct wire_udp *out, const unsigned char *data, size_t bytes);
size_t wire_from_write(unsigned char *out, const struct sockaddr *from);
size_t wire_from_read(struct sockaddr_storage *out, const unsigned char *data, size_t bytes);

#endif
