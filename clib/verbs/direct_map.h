/* SPDX-License-Identifier: Apache-2.0 */
/* The peers' memory that this process has mapped, and which key of a QP leads there. */
#ifndef RNIC_DIRECT_MAP_H
#define RNIC_DIRECT_MAP_H

#include "queue.h"
#include "rnic.h"

/* A part of a peer's region, for all QPs of a context that have asked for it. */
struct direct_map {
	struct direct_map *next;
	uint32_t refs; /* keys; guarded by the lock of direct_context */
	uint32_t slot; /* where the ticket has to stand */
	uint64_t ticket;
	uint64_t addr; /* as work requests have it */
	uint64_t length;
	unsigned char *bytes;
	uint32_t rights; /* GRANT bits */
	void *base;      /* of the mapping, which begins at a page */
	size_t base_bytes;
};

/*
 * Returns the memory behind a work request's remote key, NULL where it is not mapped (yet): who
 * uses a key a few times only is not made to wait for that.
 */
const struct direct_map *direct_map_find(struct rnic_qp *qp, const struct rnic_send_wqe *wqe,
					 uint32_t length, uint32_t link);

/* Reports whether the region's key is good. What comes of it holds while we are busy. */
static inline bool direct_map_is_good(const struct rnic_context *ctx, const struct direct_map *map)
{
	return atomic_load_explicit(&ctx->direct.tickets[map->slot], memory_order_acquire) ==
	       map->ticket;
}

#endif
