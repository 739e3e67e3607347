/* SPDX-License-Identifier: Apache-2.0 */
#include "mem_extent.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "mem_file.h"

static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;
/* What follows is guarded by it, as is the file. */
static sigset_t mem_signals; /* of who holds it, before */
static struct mem_extent *extent_list;
static struct mem_extent *extent_spare;
static bool extent_wandered;

static atomic_bool extent_any;

void mem_enter(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_mutex_lock(&mem_lock);
	mem_signals = before;
}

void mem_leave(void)
{
	const sigset_t before = mem_signals;

	pthread_mutex_unlock(&mem_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool mem_any_moved(void)
{
	return atomic_load_explicit(&extent_any, memory_order_acquire);
}

struct mem_extent *mem_extent_first(void)
{
	return extent_list;
}

/* Extents come from memory of their own, and go back to it. */
#define EXTENT_SLAB_BYTES 65536

static struct mem_extent *extent_take(void)
{
	struct mem_extent *extent = extent_spare;

	if (!extent) {
		extent = mmap(NULL, EXTENT_SLAB_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (extent == MAP_FAILED)
			return NULL;
		for (size_t i = 0; i < EXTENT_SLAB_BYTES / sizeof(*extent); i++) {
			extent[i].next = extent_spare;
			extent_spare = &extent[i];
		}
		extent = extent_spare;
	}
	extent_spare = extent->next;
	memset(extent, 0, sizeof(*extent));
	return extent;
}

/* Inserts an extent into the first gap of the file that it fits into. */
static bool extent_place(struct mem_extent *extent)
{
	struct mem_extent **at = &extent_list;
	uint64_t size = mem_file_open(), offset = 0;

	for (; *at && (*at)->offset - offset < extent->length; at = &(*at)->next)
		offset = (*at)->offset + (*at)->length;
	if (offset > size || size - offset < extent->length)
		return false;
	extent->offset = offset;
	extent->next = *at;
	*at = extent;
	atomic_store_explicit(&extent_any, true, memory_order_release);
	return true;
}

struct mem_extent *mem_extent_make(uintptr_t home, uint64_t length)
{
	struct mem_extent *extent = extent_take();

	if (!extent)
		return NULL;
	extent->home = home;
	extent->length = length;
	if (extent_place(extent))
		return extent;
	extent->next = extent_spare;
	extent_spare = extent;
	return NULL;
}

void mem_extent_remove(struct mem_extent *extent)
{
	struct mem_extent **at;

	for (at = &extent_list; *at != extent; at = &(*at)->next)
		;
	*at = extent->next;
	extent->next = extent_spare;
	extent_spare = extent;
	if (extent_list)
		return;
	extent_wandered = false;
	atomic_store_explicit(&extent_any, false, memory_order_release);
}

static bool extent_touches(const struct mem_extent *extent, uint64_t offset, uint64_t length)
{
	return offset < extent->offset + extent->length && extent->offset < offset + length;
}

bool mem_extent_is_unshared(uint64_t offset, uint64_t length)
{
	const struct mem_extent *extent;

	for (extent = extent_list; extent; extent = extent->next) {
		if (!extent->unshared && extent_touches(extent, offset, length))
			return false;
	}
	return true;
}

void mem_extent_hold(uint64_t offset, uint64_t length, int change)
{
	struct mem_extent *extent;

	for (extent = extent_list; extent; extent = extent->next) {
		if (extent_touches(extent, offset, length))
			extent->holds += (uint32_t)change;
	}
}

/* A walk over the mappings of extents that no region holds. */
struct collect {
	struct mem_extent *idle;
	bool (*give_back)(const struct maps_area *part);
};

static bool collect_visit(const struct maps_area *area, void *arg)
{
	const struct collect *collect = arg;
	const uint64_t end = area->offset + (area->end - area->start);
	struct mem_extent *extent;

	if (!mem_file_owns(area))
		return true;
	for (extent = collect->idle; extent; extent = extent->idle) {
		struct maps_area part = *area;

		if (!extent_touches(extent, area->offset, area->end - area->start))
			continue;
		if (part.offset < extent->offset) {
			part.start += extent->offset - part.offset;
			part.offset = extent->offset;
		}
		if (end > extent->offset + extent->length)
			part.end -= end - (extent->offset + extent->length);
		if (!collect->give_back || !collect->give_back(&part))
			extent->seen = true;
	}
	return true;
}

void mem_extent_collect(bool (*give_back)(const struct maps_area *part))
{
	struct collect collect = {.give_back = give_back};
	struct mem_extent *extent;

	for (extent = extent_list; extent; extent = extent->next) {
		if (extent->holds)
			continue;
		extent->seen = false;
		extent->idle = collect.idle;
		collect.idle = extent;
	}
	if (!collect.idle || maps_walk(collect_visit, &collect) != 0)
		return;
	for (extent = collect.idle; extent; extent = collect.idle) {
		collect.idle = extent->idle;
		if (extent->seen)
			continue;
		mem_file_punch(extent->offset, extent->length);
		mem_extent_remove(extent);
	}
}

bool mem_extent_near(uintptr_t start, uintptr_t end)
{
	const struct mem_extent *extent;

	if (extent_wandered)
		return extent_list != NULL;
	for (extent = extent_list; extent; extent = extent->next) {
		if (extent->home < end && start < extent->home + extent->length)
			return true;
	}
	return false;
}

void mem_extent_wander(void)
{
	extent_wandered = true;
}

void mem_extent_forget(void)
{
	/* A thread that is not here may have been changing the lists: they are left alone. */
	extent_list = extent_spare = NULL;
	extent_wandered = false;
	atomic_store(&extent_any, false);
	pthread_mutex_init(&mem_lock, NULL);
}
