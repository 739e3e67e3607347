/* SPDX-License-Identifier: Apache-2.0 */
/* A CQ's own list of completions, and the regions of this process by their local keys. */
#include <stdlib.h>

#include "direct.h"
#include "queue.h"

static uint32_t list_length(const struct rnic_cq *cq)
{
	return atomic_load(direct_list_tail(cq)) - atomic_load(direct_list_head(cq));
}

bool direct_list_fits(struct rnic_cq *cq, uint32_t cqe)
{
	const uint32_t waiting =
		atomic_load(queue_word(cq->map, RNIC_OFF_CQ_PRODUCER)) - cq->consumer;
	uint32_t entries = 1;

	while (entries < cqe && entries < 1u << 31)
		entries *= 2;
	/* Without entries of its own the list leaves it to the NIC to judge the rest. */
	return list_length(cq) == 0 || list_length(cq) + waiting <= entries;
}

void direct_list_resize(struct rnic_cq *cq)
{
	struct direct_list *list = &cq->direct;
	const uint32_t length = list_length(cq), entries = cq->mask + 1;
	struct rnic_cqe *moved;

	if (!list->entries || entries == list->mask + 1)
		return;
	moved = malloc((size_t)entries * sizeof(*moved));
	if (!moved)
		return; /* the list stays as long as it was */
	for (uint32_t i = 0; i < length; i++) {
		const uint32_t at = atomic_load(direct_list_head(cq)) + i;

		moved[at & (entries - 1)] = *direct_list_entry(cq, at);
	}
	free(list->entries);
	list->entries = moved;
	list->mask = entries - 1;
}

/* Odd versions tell readers to look elsewhere: the NIC can do what we cannot judge. */
static void local_write(struct direct_local *place, const struct rnic_mr *mr)
{
	const unsigned int version = atomic_load_explicit(&place->version, memory_order_relaxed);

	atomic_store_explicit(&place->version, version + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&place->lkey, mr ? mr->base.lkey : 0, memory_order_relaxed);
	if (mr) {
		atomic_store_explicit(&place->pd, mr->base.pd->handle, memory_order_relaxed);
		atomic_store_explicit(&place->access, mr->access, memory_order_relaxed);
		atomic_store_explicit(&place->addr, (uintptr_t)mr->base.addr, memory_order_relaxed);
		atomic_store_explicit(&place->length, mr->base.length, memory_order_relaxed);
	}
	atomic_store_explicit(&place->version, version + 2, memory_order_release);
}

void direct_local_add(const struct rnic_mr *mr)
{
	struct rnic_context *ctx = ctx_of(mr->base.context);
	struct direct_local *place = direct_local_place(&ctx->direct, mr->base.lkey, 0);

	pthread_mutex_lock(&ctx->direct.lock);
	if (atomic_load(&place->lkey))
		place = direct_local_place(&ctx->direct, mr->base.lkey, 1);
	local_write(place, mr);
	pthread_mutex_unlock(&ctx->direct.lock);
}

void direct_local_remove(const struct rnic_mr *mr)
{
	struct rnic_context *ctx = ctx_of(mr->base.context);

	pthread_mutex_lock(&ctx->direct.lock);
	for (uint32_t which = 0; which < 2; which++) {
		struct direct_local *place =
			direct_local_place(&ctx->direct, mr->base.lkey, which);

		if (atomic_load(&place->lkey) == mr->base.lkey)
			local_write(place, NULL);
	}
	pthread_mutex_unlock(&ctx->direct.lock);
}
