/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranges of the file that hold moved pages, and the lock of the memory layer.
 *
 * An allocator may call madvise, which is ours, while it holds its own locks. So who holds the lock
 * here allocates no memory, and it is not held across fork, whose handlers take those locks.
 */
#ifndef RNIC_MEM_EXTENT_H
#define RNIC_MEM_EXTENT_H

#include "maps.h"

#include <stddef.h>

struct mem_extent {
	struct mem_extent *next;
	uint64_t offset;
	uint64_t length;
	uintptr_t home; /* where it has been moved from */
	uint32_t holds; /* mapped segments of regions that lie in it */
	bool unshared;  /* buffers of a library of ours, which children of fork do not look at */
	bool seen;      /* by the walk that looks for mappings */
	struct mem_extent *idle; /* the next without holds, during that walk */
};

/* Takes the lock and keeps signals away, whose handlers could want it; and gives it back. */
void mem_enter(void);
void mem_leave(void);

/* Reports whether there may be moved pages. Needs no lock; what follows does. */
bool mem_any_moved(void);

/* The first extent; they are sorted by offset. */
struct mem_extent *mem_extent_first(void);

/* Makes an extent in a gap of the file. Returns NULL when there is no room. */
struct mem_extent *mem_extent_make(uintptr_t home, uint64_t length);

void mem_extent_remove(struct mem_extent *extent);

/* Reports whether all that lies in a range of the file is unshared. */
bool mem_extent_is_unshared(uint64_t offset, uint64_t length);

/* Adds change to the holds of every extent that a range of the file touches. */
void mem_extent_hold(uint64_t offset, uint64_t length, int change);

/*
 * Frees extents that no region holds and that are not mapped any more. What still is mapped of them
 * is offered to give_back first, unless that is NULL, which may map something else there and then
 * returns true.
 */
void mem_extent_collect(bool (*give_back)(const struct maps_area *part));

/* Reports whether moved pages may be mapped within [start, end). */
bool mem_extent_near(uintptr_t start, uintptr_t end);

/* The application has given moved pages another place. */
void mem_extent_wander(void);

/* Of a child of fork: nothing is moved, and the lock is free. */
void mem_extent_forget(void);

#endif
