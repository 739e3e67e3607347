/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams. A socket has a UDP socket, which names it, and for each local address that it uses a
 * queue pair. What goes to a peer goes over UDP until its queue pair is known: the header there
 * tells ours, and the peer answers with its own.
 */
#ifndef RS_DGRAM_H
#define RS_DGRAM_H

#include "rs.h"

#define DGRAM_GRH_BYTES 40
#define DGRAM_SLOT_BYTES (DGRAM_GRH_BYTES + WIRE_LOW_WATER)
#define DGRAM_BUCKETS 256
/* Peers that a socket remembers: anybody may write to a UDP port. */
#define DGRAM_PEERS_MAX 4096
/* Datagrams that came over UDP and wait to be read. */
#define DGRAM_UDP_MAX 256

/* A local address. */
struct dgram_qp {
	struct dgram_qp *next;
	struct sockaddr_storage local;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *send_mr;
	struct ibv_mr *recv_mr;
	unsigned char *recv_buf; /* slots */
	uint32_t max_bytes; /* of a datagram with its header */
	bool armed;
};

struct dgram_peer {
	struct dgram_peer *next; /* in its bucket */
	struct sockaddr_storage addr;
	struct dgram_qp *qp;
	struct ibv_ah *ah; /* NULL until its queue pair is known */
	uint32_t qpn;
};

/* A datagram to read: in a slot of a queue pair, or in memory of its own that follows. */
struct dgram_message {
	struct dgram_message *next;
	struct sockaddr_storage from;
	struct dgram_qp *qp; /* NULL: came over UDP */
	uint32_t slot;
	uint32_t bytes;
	const unsigned char *data;
};

struct rs_dgram {
	int udp;
	int epfd; /* everything that news may come from */
	bool look_at_udp;
	uint32_t looks;
	uint32_t unknown; /* peers whose queue pair we wait to hear of */
	struct dgram_qp *qps;
	struct dgram_peer *peers[DGRAM_BUCKETS];
	uint32_t peer_count;
	struct dgram_peer *connected;
	struct dgram_message *first, **last;
	struct dgram_message *spare; /* for slots */
	uint32_t from_udp;
	unsigned char *send_buf;
	uint32_t *free_slots;
	uint32_t free_count;
};

/* dgram_qp.c */
int dgram_qp_get(struct rs_socket *rs, const struct sockaddr *local, struct dgram_qp **out);
void dgram_qp_free(struct rs_socket *rs, struct dgram_qp *qp);
void dgram_qp_poll(struct rs_socket *rs, struct dgram_qp *qp);
void dgram_qp_repost(struct dgram_qp *qp, uint32_t slot);

/* dgram_peer.c */
int dgram_peer_get(struct rs_socket *rs, const struct sockaddr *addr, struct dgram_peer **out);
void dgram_peer_learn(struct rs_socket *rs, struct dgram_peer *peer, uint32_t qpn);
void dgram_peer_free_all(struct rs_dgram *dgram);
bool dgram_same_name(const void *a, const void *b);
socklen_t dgram_name_bytes(const void *addr);

#endif
