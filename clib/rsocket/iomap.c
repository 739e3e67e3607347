/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Direct placement: memory that the peer may write to, under offsets of our choice. Where it is we
 * tell the peer by writing into its map before the next bytes we send.
 */
#include <limits.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "rs.h"

struct rs_iomap {
	struct rs_iomap *next;
	struct ibv_mr *mr;
	uint64_t offset;
	uint32_t index; /* of the peer's map */
	bool is_remote; /* the peer may write to it */
	bool is_told;
};

static bool iomap_may_send(const struct rs_socket *rs)
{
	return cq_can_send(rs) || rs->state != RS_CONNECTED || !rs->can_write;
}

/* An index that no mapping has. */
static int iomap_choose(const struct rs_socket *rs, uint32_t *index)
{
	for (*index = 0; *index < rs->ep.peer_iomap_entries; ++*index) {
		const struct rs_iomap *map = rs->iomaps;

		while (map && !(map->is_remote && map->index == *index))
			map = map->next;
		if (!map)
			return 0;
	}
	return ENOMEM;
}

static int iomap_tell(struct rs_socket *rs, struct rs_iomap *map)
{
	struct wire_iomap entry = {
		.offset = map->offset,
		.sge = {(uintptr_t)map->mr->addr, map->mr->rkey, (uint32_t)map->mr->length},
	};
	struct rs_pieces pieces = {
		.sge = {{(uintptr_t)&entry, sizeof(entry), 0}},
		.count = 1,
		.flags = IBV_SEND_INLINE,
	};
	const uint32_t message = wire_message(WIRE_IOMAP, map->index);
	struct ibv_send_wr wr = {
		.wr.rdma.remote_addr =
			rs->ep.peer_iomap + (uint64_t)map->index * sizeof(entry),
		.wr.rdma.rkey = rs->ep.peer_list.key,
	};

	if (rs->ep.swap)
		wire_iomap_swap(&entry);
	map->is_told = true;
	rs->iomaps_untold--;
	rs->ep.send_seq++;
	return stream_post(rs, &pieces, &wr, &message);
}

int iomap_announce(struct rs_socket *rs, const struct wait_limit *limit)
{
	int error = 0;

	while (!error && rs->iomaps_untold) {
		struct rs_iomap *map, *oldest = NULL;

		if (!cq_can_send(rs))
			error = wait_for(rs, iomap_may_send, limit);
		if (error)
			break;
		if (rs->state != RS_CONNECTED || !rs->can_write)
			return ECONNRESET;
		for (map = rs->iomaps; map; map = map->next) {
			if (map->is_remote && !map->is_told)
				oldest = map;
		}
		if (!oldest)
			break; /* unmapped while we waited */
		error = iomap_tell(rs, oldest);
	}
	return error;
}

static int iomap_add(struct rs_socket *rs, const struct rs_iomap *wanted, void *buf, size_t bytes)
{
	const int access = wanted->is_remote ? IBV_ACCESS_REMOTE_WRITE : 0;
	struct rs_iomap *map;
	int error = 0;

	if (rs->is_orphan || !rs->ep.pd)
		return rs->is_orphan ? EBADF : ENOTCONN;
	map = malloc(sizeof(*map));
	if (!map)
		return ENOMEM;
	*map = *wanted;
	if (map->is_remote)
		error = iomap_choose(rs, &map->index);
	if (!error) {
		map->mr = ibv_reg_mr(rs->ep.pd, buf, bytes, access | IBV_ACCESS_LOCAL_WRITE);
		error = map->mr ? 0 : errno;
	}
	if (error) {
		free(map);
		return error;
	}
	map->next = rs->iomaps;
	rs->iomaps = map;
	rs->iomaps_untold += map->is_remote;
	return 0;
}

RS_API off_t riomap(int fd, void *buf, size_t bytes, int prot, int flags, off_t offset)
{
	struct rs_socket *rs = table_get(fd);
	struct rs_iomap wanted = {
		.offset = offset == -1 ? (uint64_t)(uintptr_t)buf : (uint64_t)offset,
		.is_remote = prot & PROT_WRITE,
	};
	int error;

	(void)flags; /* none is defined */
	if (!rs)
		return rs_result(EBADF);
	if ((prot & ~PROT_WRITE) || !bytes || bytes > UINT32_MAX || rs->type != SOCK_STREAM) {
		error = EINVAL;
	} else {
		pthread_mutex_lock(&rs->lock);
		error = iomap_add(rs, &wanted, buf, bytes);
		pthread_mutex_unlock(&rs->lock);
	}
	table_put(rs);
	return error ? rs_result(error) : (off_t)wanted.offset;
}

static void iomap_free(struct rs_socket *rs, struct rs_iomap *map)
{
	if (map->is_remote && !map->is_told)
		rs->iomaps_untold--;
	ibv_dereg_mr(map->mr);
	free(map);
}

RS_API int riounmap(int fd, void *buf, size_t bytes)
{
	struct rs_socket *rs = table_get(fd);
	struct rs_iomap **at, *map;

	if (!rs)
		return rs_result(EBADF);
	pthread_mutex_lock(&rs->lock);
	for (at = &rs->iomaps; *at; at = &(*at)->next) {
		if ((*at)->mr->addr == buf && (*at)->mr->length == bytes)
			break;
	}
	map = *at;
	if (map) {
		*at = map->next;
		iomap_free(rs, map);
	}
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return rs_result(map ? 0 : EINVAL);
}

void iomap_free_all(struct rs_socket *rs)
{
	while (rs->iomaps) {
		struct rs_iomap *map = rs->iomaps;

		rs->iomaps = map->next;
		iomap_free(rs, map);
	}
}

/* Finds what the peer has mapped at an offset. It may write its entries at any time. */
static bool iomap_find(const struct rs_socket *rs, uint64_t offset, struct wire_iomap *out)
{
	const unsigned char *entries = rs->ep.shared + WIRE_TARGETS * sizeof(struct wire_sge);

	for (uint32_t i = 0; i < rs->opt.iomap_entries; i++) {
		memcpy(out, entries + i * sizeof(*out), sizeof(*out));
		if (offset >= out->offset && offset - out->offset < out->sge.length)
			return true;
	}
	return false;
}

static bool iomap_may_write(const struct rs_socket *rs)
{
	const struct rs_endpoint *ep = &rs->ep;

	if (rs->state != RS_CONNECTED || !rs->can_write)
		return true;
	return ep->send_slots && ep->send_free >= WIRE_LOW_WATER;
}

static int iomap_write(struct rs_socket *rs, struct rs_vector *v, uint64_t offset, uint32_t most)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct wire_iomap entry;
	struct rs_pieces pieces;
	uint64_t room;

	if (!iomap_find(rs, offset, &entry))
		return EFAULT;
	room = entry.sge.length - (offset - entry.offset);
	if (room < most)
		most = (uint32_t)room;
	most = rs_min(most, rs->ep.send_free);
	if (v->left < most)
		most = (uint32_t)v->left;
	wr.wr.rdma.remote_addr = entry.sge.addr + (offset - entry.offset);
	wr.wr.rdma.rkey = entry.sge.key;
	wr.wr_id = stream_stage(rs, v, most, &pieces);
	return stream_post(rs, &pieces, &wr, NULL);
}

static int iomap_write_all(struct rs_socket *rs, struct rs_vector *v, uint64_t offset, int flags)
{
	const struct wait_limit limit = wait_limit_of(rs, flags, &rs->opt.send_timeout);
	const size_t all = v->left;
	uint32_t most = WIRE_LOW_WATER;
	int error = conn_ready(rs, &limit);

	if (!error && rs->iomaps_untold)
		error = iomap_announce(rs, &limit);
	while (!error && v->left) {
		error = wait_for(rs, iomap_may_write, &limit);
		if (!error && (rs->state != RS_CONNECTED || !rs->can_write))
			error = ECONNRESET;
		if (!error)
			error = iomap_write(rs, v, offset + (all - v->left), most);
		if (most < 65536)
			most *= 2;
	}
	return error;
}

RS_API size_t riowrite(int fd, const void *buf, size_t count, off_t offset, int flags)
{
	const struct iovec iov = {(void *)(uintptr_t)buf, count};
	struct rs_socket *rs = table_get(fd);
	struct rs_vector v;
	int error;

	if (!rs)
		return (size_t)rs_result(EBADF);
	error = rs->type == SOCK_STREAM ? vector_init(&v, &iov, 1) : EOPNOTSUPP;
	if (error) {
		table_put(rs);
		return (size_t)rs_result(error);
	}
	pthread_mutex_lock(&rs->send_lock);
	pthread_mutex_lock(&rs->lock);
	error = iomap_write_all(rs, &v, (uint64_t)offset, flags);
	pthread_mutex_unlock(&rs->lock);
	pthread_mutex_unlock(&rs->send_lock);
	table_put(rs);
	return v.left < count ? count - v.left : (size_t)rs_result(error);
}
