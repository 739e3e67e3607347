/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Application memory. The NIC reaches registered memory in one of two ways: it copies across
 * process borders, which always works; or, much faster, it maps the same pages. For the latter
 * private anonymous pages are moved into a memfd and mapped back to where they were.
 *
 * Moving is a copy and a remap, so another thread's write in between would be lost; and shared
 * pages are not quite what private ones are to madvise and mremap, which therefore are ours (see
 * mem_advice.c). By default pages move only while the process has one thread and calls ours.
 * RNIC_MAPPED=never|auto|always overrides.
 */
#ifndef RNIC_MEM_H
#define RNIC_MEM_H

#include "rnic.h"

/*
 * How the NIC reaches a region: segments in address order, and the descriptor they name. Mapped
 * segments are whole pages. A plan that has been made is known to this layer until its release.
 */
struct mem_plan {
	uint32_t count;
	int fd; /* −1 when no segment is mapped */
	unsigned int generation; /* children of fork do not take it for theirs */
	struct rnic_segment segments[RNIC_MAX_MR_SEGMENTS];
	struct mem_plan *next;
};

/* Whether pages may be moved. */
enum mem_move {
	MEM_STAY,
	MEM_MOVE,          /* while the process has one thread */
	MEM_MOVE_UNSHARED, /* no other thread knows of the memory yet */
};

/*
 * Plans a region. write says whether the NIC may write to it; move whether pages may be moved.
 * Returns 0, or EFAULT for memory that is not there or may not be accessed like that; then there
 * is nothing to release.
 */
int mem_plan_make(struct mem_plan *plan, const void *addr, size_t length, bool write,
		  enum mem_move move);

/*
 * Plans a region that is paged on demand: what is mapped there when the NIC looks. It need not be
 * there now.
 */
int mem_plan_remote(struct mem_plan *plan, const void *addr, size_t length);

/* Ends a plan. Pages that no other plan needs move back where that is safe. */
void mem_plan_release(struct mem_plan *plan);

/* Of a child of fork: it has no plans. */
void mem_plans_forget(void);

/*
 * Around fork. The child gets copies of moved pages as they were before the fork, as it would have
 * of pages that had not been moved.
 */
void mem_fork_prepare(void);
void mem_fork_parent(void);
void mem_fork_child(void);

#endif
