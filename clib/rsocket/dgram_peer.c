/* SPDX-License-Identifier: Apache-2.0 */
/* Whom datagrams go to: by which local address, and to which queue pair. */
#include <unistd.h>

#include "dgram.h"
#include "raw.h"

#define PEER_RESOLVE_MS 2000

socklen_t dgram_name_bytes(const void *addr)
{
	return ((const struct sockaddr *)addr)->sa_family == AF_INET6 ?
		       sizeof(struct sockaddr_in6) :
		       sizeof(struct sockaddr_in);
}

bool dgram_same_name(const void *a, const void *b)
{
	const struct sockaddr_in *a4 = a, *b4 = b;
	const struct sockaddr_in6 *a6 = a, *b6 = b;

	if (a4->sin_family != b4->sin_family)
		return false;
	if (a4->sin_family == AF_INET)
		return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a6->sin6_port == b6->sin6_port &&
	       !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
}

static struct dgram_peer **peer_bucket(struct rs_dgram *dgram, const struct sockaddr *addr)
{
	const unsigned char *at = (const unsigned char *)&((const struct sockaddr_in *)addr)->sin_addr;
	uint32_t hash = ((const struct sockaddr_in *)addr)->sin_port;
	size_t bytes = 4;

	if (addr->sa_family == AF_INET6) {
		at = (const unsigned char *)&((const struct sockaddr_in6 *)addr)->sin6_addr;
		bytes = 16;
	}
	for (size_t i = 0; i < bytes; i++)
		hash = hash * 31 + at[i];
	return &dgram->peers[(hash ^ hash >> 8 ^ hash >> 16) % DGRAM_BUCKETS];
}

static bool peer_is_any(const struct sockaddr_storage *addr)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;

	return addr->ss_family == AF_INET ? in4->sin_addr.s_addr == htonl(INADDR_ANY) :
					    IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr);
}

/* The address that datagrams to a peer come from: as the kernel would route them. */
static int peer_source(struct rs_socket *rs, const struct sockaddr *to,
		       struct sockaddr_storage *out)
{
	struct sockaddr_storage bound;
	socklen_t bytes = sizeof(bound);
	int fd, error = 0;

	memset(&bound, 0, sizeof(bound));
	if (getsockname(rs->dgram->udp, (struct sockaddr *)&bound, &bytes))
		return errno;
	*out = bound;
	if (!peer_is_any(&bound))
		return 0;
	fd = (int)syscall(SYS_socket, to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	bytes = sizeof(*out);
	if (syscall(SYS_connect, fd, to, dgram_name_bytes(to)) ||
	    getsockname(fd, (struct sockaddr *)out, &bytes))
		error = errno;
	raw_close(fd);
	/* The port is at the same place in both families. */
	((struct sockaddr_in *)out)->sin_port = ((struct sockaddr_in *)&bound)->sin_port;
	return error;
}

int dgram_peer_get(struct rs_socket *rs, const struct sockaddr *addr, struct dgram_peer **out)
{
	struct rs_dgram *dgram = rs->dgram;
	struct dgram_peer **bucket = peer_bucket(dgram, addr), *peer;
	struct sockaddr_storage local;
	struct dgram_qp *qp;
	int error;

	for (peer = *bucket; peer && !dgram_same_name(&peer->addr, addr); peer = peer->next)
		;
	if (peer) {
		*out = peer;
		return 0;
	}
	if (dgram->peer_count >= DGRAM_PEERS_MAX)
		return ENOBUFS;
	error = peer_source(rs, addr, &local);
	if (!error)
		error = dgram_qp_get(rs, (struct sockaddr *)&local, &qp);
	if (error)
		return error;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return ENOMEM;
	memcpy(&peer->addr, addr, dgram_name_bytes(addr));
	peer->qp = qp;
	peer->next = *bucket;
	*bucket = peer;
	dgram->peer_count++;
	dgram->unknown++;
	*out = peer;
	return 0;
}

static uint8_t peer_gid_index(const struct rdma_cm_id *id, const union ibv_gid *wanted)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	int count = 16;

	if (!ibv_query_port(id->verbs, id->port_num, &port))
		count = port.gid_tbl_len < 256 ? port.gid_tbl_len : 256;
	for (int i = 0; i < count; i++) {
		if (!ibv_query_gid(id->verbs, id->port_num, i, &gid) &&
		    !memcmp(&gid, wanted, sizeof(gid)))
			return (uint8_t)i;
	}
	return 0;
}

/* Finds the way to a peer by a connection identifier that is used for nothing else. */
static struct ibv_ah *peer_resolve(struct dgram_peer *peer)
{
	struct sockaddr_storage local = peer->qp->local;
	const struct ibv_sa_path_rec *path;
	struct ibv_ah_attr attr = {.is_global = 1};
	struct ibv_ah *ah = NULL;
	struct rdma_cm_id *id;

	((struct sockaddr_in *)&local)->sin_port = 0;
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP))
		return NULL;
	if (!rdma_resolve_addr(id, (struct sockaddr *)&local, (struct sockaddr *)&peer->addr,
			       PEER_RESOLVE_MS) &&
	    !rdma_resolve_route(id, PEER_RESOLVE_MS) && id->verbs == peer->qp->id->verbs) {
		path = id->route.path_rec;
		attr.grh.dgid = path->dgid;
		attr.grh.sgid_index = peer_gid_index(id, &path->sgid);
		attr.grh.flow_label = ntohl(path->flow_label);
		attr.grh.hop_limit = path->hop_limit;
		attr.grh.traffic_class = path->traffic_class;
		attr.sl = path->sl;
		attr.port_num = id->port_num;
		ah = ibv_create_ah(peer->qp->id->pd, &attr);
	}
	rdma_destroy_id(id);
	return ah;
}

void dgram_peer_learn(struct rs_socket *rs, struct dgram_peer *peer, uint32_t qpn)
{
	if (peer->ah) {
		peer->qpn = qpn; /* it may have started anew at the same address */
		return;
	}
	peer->qpn = qpn;
	peer->ah = peer_resolve(peer);
	if (peer->ah)
		rs->dgram->unknown--;
}

void dgram_peer_free_all(struct rs_dgram *dgram)
{
	for (size_t i = 0; i < DGRAM_BUCKETS; i++) {
		while (dgram->peers[i]) {
			struct dgram_peer *peer = dgram->peers[i];

			dgram->peers[i] = peer->next;
			if (peer->ah)
				ibv_destroy_ah(peer->ah);
			free(peer);
		}
	}
}
