/* SPDX-License-Identifier: Apache-2.0 */
#include "direct_map.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ctl.h"
#include "ctx.h"
#include "direct.h"
#include "mem_file.h"

enum {
	/* Keys of one QP that are remembered. */
	DIRECT_KEYS = 64,
	/* Mappings of one context: the kernel allows a process 65530 by default. */
	DIRECT_MAPS = 1024,
	/* After so many uses of a key its memory is asked for, which takes some 30 µs. */
	DIRECT_ASK_AFTER = 8,
	/* After a refusal so many more, each time: it seldom has a reason that goes away. */
	DIRECT_ASK_AGAIN = 100000,
	/* Uses of other keys that a key with memory outlives where they meet in one place. */
	DIRECT_HEAT = 64,
};

struct direct_key {
	uint32_t rkey;
	uint32_t link; /* the connection that it was asked for */
	uint32_t uses;
	uint32_t enough; /* uses until its memory is asked for */
	struct direct_map *map;
};

/* Lets a mapping go. The caller has the lock. */
static void map_drop(struct rnic_context *ctx, struct direct_map *map)
{
	struct direct_map **at = &ctx->direct.maps;

	if (--map->refs)
		return;
	while (*at != map)
		at = &(*at)->next;
	*at = map->next;
	ctx->direct.num_maps--;
	/* A child of fork has no such mapping, and perhaps another one there. */
	if (!ctx->inherited)
		munmap(map->base, map->base_bytes);
	free(map);
}

static void key_drop(struct rnic_context *ctx, struct direct_key *key)
{
	if (!key->map)
		return;
	pthread_mutex_lock(&ctx->direct.lock);
	map_drop(ctx, key->map);
	pthread_mutex_unlock(&ctx->direct.lock);
	key->map = NULL;
}

static void key_begin(struct direct_key *key, uint32_t rkey, uint32_t link)
{
	*key = (struct direct_key){.rkey = rkey, .link = link, .enough = DIRECT_ASK_AFTER};
}

const struct direct_map *direct_map_find(struct rnic_qp *qp, const struct rnic_send_wqe *wqe,
					 uint32_t length, uint32_t link)
{
	struct rnic_context *ctx = ctx_of(qp->base.context);
	struct direct_key *key;

	if (!qp->direct.keys) {
		qp->direct.keys = calloc(DIRECT_KEYS, sizeof(*qp->direct.keys));
		if (!qp->direct.keys)
			return NULL;
	}
	key = &qp->direct.keys[(wqe->rkey >> 8) % DIRECT_KEYS];
	if (key->map && !direct_map_is_good(ctx, key->map)) {
		/* Memory that is registered anew often has the same place, by another key. */
		key_drop(ctx, key);
		key_begin(key, wqe->rkey, link);
	} else if (key->rkey != wqe->rkey || key->link != link) {
		if (key->map && key->link == link && key->uses) {
			key->uses--;
			return NULL;
		}
		key_drop(ctx, key);
		key_begin(key, wqe->rkey, link);
	}
	if (key->map) {
		key->uses = DIRECT_HEAT;
		return key->map;
	}
	if (++key->uses >= key->enough) {
		qp->direct.ask = key;
		qp->direct.ask_addr = wqe->remote_addr;
		qp->direct.ask_length = length;
	}
	return NULL;
}

static uint32_t map_rights(uint32_t access)
{
	uint32_t rights = 0;

	if (access & IBV_ACCESS_REMOTE_WRITE)
		rights |= RNIC_GRANT_WRITE | RNIC_GRANT_ATOMIC_WRITE;
	if (access & IBV_ACCESS_REMOTE_READ)
		rights |= RNIC_GRANT_READ;
	if (access & IBV_ACCESS_REMOTE_ATOMIC)
		rights |= RNIC_GRANT_ATOMIC;
	return rights;
}

static struct direct_map *map_make(const struct rnic_map_remote_rsp *rsp, int fd)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = rsp->fd_offset & (page - 1);
	struct direct_map *map = calloc(1, sizeof(*map));
	int prot = PROT_READ;

	if (!map)
		return NULL;
	map->rights = map_rights(rsp->access);
	if (map->rights & (RNIC_GRANT_WRITE | RNIC_GRANT_ATOMIC))
		prot |= PROT_WRITE;
	map->base_bytes = rsp->length + skip;
	map->base = mmap(NULL, map->base_bytes, prot, MAP_SHARED, fd,
			 (off_t)(rsp->fd_offset - skip));
	if (map->base == MAP_FAILED) {
		free(map);
		return NULL;
	}
	mem_file_advise((uintptr_t)map->base, map->base_bytes, MADV_DONTFORK);
	map->bytes = (unsigned char *)map->base + skip;
	map->ticket = rsp->ticket;
	map->slot = rsp->slot;
	map->addr = rsp->addr;
	map->length = rsp->length;
	return map;
}

/* Returns the mapping that a reply describes, with one more reference. The caller has the lock. */
static struct direct_map *map_take(struct rnic_context *ctx, const struct rnic_map_remote_rsp *rsp,
				   int fd)
{
	struct direct_map *map = ctx->direct.maps;

	while (map && (map->ticket != rsp->ticket || map->addr != rsp->addr))
		map = map->next;
	if (!map && ctx->direct.num_maps < DIRECT_MAPS) {
		map = map_make(rsp, fd);
		if (map) {
			map->next = ctx->direct.maps;
			ctx->direct.maps = map;
			ctx->direct.num_maps++;
		}
	}
	if (map)
		map->refs++;
	return map;
}

/* Maps the tickets at their first use. The caller has the lock. */
static bool tickets_open(struct rnic_context *ctx, int fd)
{
	void *tickets;

	if (ctx->direct.tickets)
		return true;
	tickets = mmap(NULL, RNIC_TICKET_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (tickets == MAP_FAILED)
		return false;
	ctx->direct.tickets = tickets;
	return true;
}

void direct_learn(struct rnic_qp *qp)
{
	struct rnic_context *ctx = ctx_of(qp->base.context);
	struct direct_key *key = qp->direct.ask;
	struct rnic_map_remote_req req = {
		.qp = qp->base.handle,
		.rkey = key ? key->rkey : 0,
		.addr = qp->direct.ask_addr,
		.length = qp->direct.ask_length,
	};
	struct rnic_map_remote_rsp rsp;
	int fds[2];
	struct ctl_call call = {
		.op = RNIC_OP_MAP_REMOTE,
		.req = &req,
		.req_bytes = sizeof(req),
		.fds_in = fds,
		.num_fds_in = 2,
	};

	if (!key)
		return;
	qp->direct.ask = NULL;
	key->uses = 0;
	key->enough = DIRECT_ASK_AGAIN;
	if (ctl_conn_query(&ctx->ctl, &call, &rsp, sizeof(rsp)) != 0)
		return;
	pthread_mutex_lock(&ctx->direct.lock);
	if (rsp.slot < RNIC_TICKET_SLOTS && tickets_open(ctx, fds[0]))
		key->map = map_take(ctx, &rsp, fds[1]);
	pthread_mutex_unlock(&ctx->direct.lock);
	key->link = rsp.link;
	/* Not by close, which cancels threads: the queue's lock is held. */
	syscall(SYS_close, fds[0]);
	syscall(SYS_close, fds[1]);
}

void direct_forget(struct rnic_qp *qp)
{
	struct rnic_context *ctx = ctx_of(qp->base.context);

	pthread_mutex_lock(&qp->sq.lock);
	for (uint32_t i = 0; qp->direct.keys && i < DIRECT_KEYS; i++)
		key_drop(ctx, &qp->direct.keys[i]);
	free(qp->direct.keys);
	qp->direct.keys = qp->direct.ask = NULL;
	pthread_mutex_unlock(&qp->sq.lock);
}

void direct_close(struct rnic_context *ctx)
{
	struct direct_map *map;

	while ((map = ctx->direct.maps)) {
		map->refs = 1;
		map_drop(ctx, map);
	}
	if (ctx->direct.tickets && !ctx->inherited)
		munmap((void *)(uintptr_t)ctx->direct.tickets, RNIC_TICKET_BYTES);
}
