/* SPDX-License-Identifier: Apache-2.0 */
#include "mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "maps.h"
#include "mem_advice.h"
#include "mem_extent.h"
#include "mem_file.h"

/* All that are not released; guarded by the lock of mem_extent.c. */
static struct mem_plan *mem_plans;
static atomic_uint mem_generation; /* one more in each child of fork */

enum piece_kind { PIECE_REMOTE, PIECE_MAPPED, PIECE_MOVABLE };

struct mem_piece {
	enum piece_kind kind;
	uintptr_t start;
	uintptr_t end;
	uint64_t offset; /* in the file, when mapped */
};

#define MEM_PIECES 128

/*
 * Moved pages are mappings of their own, of which a process may have 65530 by default, and each
 * registration reads the list of them all. With so many of them, memory stays where it is.
 */
#define MEM_MOVED_MAPPINGS 1024

struct mem_scan {
	uintptr_t at; /* all before it is covered */
	uintptr_t end;
	bool write;
	bool move;
	bool heed_pins; /* memory does not move while others hold on to some by its pages */
	bool pinned;
	bool denied;
	uint32_t moved; /* mappings of moved pages; all are counted where pins are heeded */
	uint32_t count;
	struct mem_piece pieces[MEM_PIECES];
};

static bool piece_joins(const struct mem_piece *a, const struct mem_piece *b)
{
	if (a->kind != b->kind || a->end != b->start)
		return false;
	return a->kind != PIECE_MAPPED || a->offset + (a->end - a->start) == b->offset;
}

static void scan_add(struct mem_scan *scan, struct mem_piece piece)
{
	struct mem_piece *last = scan->count ? &scan->pieces[scan->count - 1] : NULL;

	if (piece.start >= piece.end)
		return;
	if (last && piece_joins(last, &piece)) {
		last->end = piece.end;
	} else if (scan->count < MEM_PIECES) {
		scan->pieces[scan->count++] = piece;
	} else { /* too scattered to be worth it */
		last->kind = PIECE_REMOTE;
		last->end = piece.end;
	}
}

static bool scan_is_movable(const struct mem_scan *scan, const struct maps_area *area)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	return scan->move && area->anonymous && area->writable && !area->executable &&
	       !(area->start <= here && here < area->end) &&
	       area->flags == 0;
}

/*
 * Finds the lowest range within [start, end) that the NIC may be writing to across process
 * borders just now. Such pages stay where they are: a write between copy and remap would be lost.
 */
static bool mem_find_remote(uintptr_t *start, uintptr_t *end)
{
	uintptr_t from = *end, to = *end;

	for (const struct mem_plan *plan = mem_plans; plan; plan = plan->next) {
		for (uint32_t i = 0; i < plan->count; i++) {
			const struct rnic_segment *segment = &plan->segments[i];
			uintptr_t last = segment->addr + segment->length;

			if (segment->fd >= 0 || segment->addr >= from || last <= *start)
				continue;
			from = segment->addr > *start ? segment->addr : *start;
			to = last < *end ? last : *end;
		}
	}
	if (from >= *end)
		return false;
	*start = from;
	*end = to;
	return true;
}

/* Adds whole pages that may move, less those that are in use. */
static void scan_add_movable(struct mem_scan *scan, uintptr_t start, uintptr_t end)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	while (start < end) {
		uintptr_t from = start, to = end;

		if (!mem_find_remote(&from, &to))
			from = to = end;
		from &= ~(page - 1);
		to = (to + page - 1) & ~(page - 1);
		scan_add(scan, (struct mem_piece){PIECE_MOVABLE, start, from, 0});
		scan_add(scan, (struct mem_piece){PIECE_REMOTE, from, to, 0});
		start = to;
	}
}

/* Divides a part of the region, within one area, into whole pages and fringes. */
static void scan_add_area(struct mem_scan *scan, const struct maps_area *area, uintptr_t end)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (scan->at + page - 1) & ~(page - 1), last = end & ~(page - 1);
	bool owned = mem_file_owns(area);

	if (first >= last || (!owned && !scan_is_movable(scan, area)))
		first = last = end;
	scan_add(scan, (struct mem_piece){PIECE_REMOTE, scan->at, first, 0});
	if (owned)
		scan_add(scan, (struct mem_piece){PIECE_MAPPED, first, last,
						  area->offset + (first - area->start)});
	else
		scan_add_movable(scan, first, last);
	scan_add(scan, (struct mem_piece){PIECE_REMOTE, last, end, 0});
}

static bool scan_visit(const struct maps_area *area, void *arg)
{
	struct mem_scan *scan = arg;
	uintptr_t end = area->end < scan->end ? area->end : scan->end;

	scan->pinned |= scan->heed_pins && area->pins;
	scan->moved += mem_file_owns(area);
	if (area->end <= scan->at || scan->at >= scan->end)
		return true;
	if (area->start > scan->at || !area->readable || (scan->write && !area->writable)) {
		scan->denied = true;
		return false;
	}
	scan_add_area(scan, area, end);
	scan->at = end;
	return scan->at < scan->end || scan->heed_pins;
}

/* Joins neighbours again after kinds have changed. */
static void scan_join(struct mem_scan *scan)
{
	uint32_t count = scan->count;

	scan->count = 0;
	for (uint32_t i = 0; i < count; i++)
		scan_add(scan, scan->pieces[i]);
}

/* Makes the smallest pieces remote until the pieces fit into the segments of a request. */
static void scan_limit(struct mem_scan *scan)
{
	while (scan->count > RNIC_MAX_MR_SEGMENTS) {
		struct mem_piece *least = NULL;

		for (uint32_t i = 0; i < scan->count; i++) {
			struct mem_piece *piece = &scan->pieces[i];

			if (piece->kind != PIECE_REMOTE &&
			    (!least || piece->end - piece->start < least->end - least->start))
				least = piece;
		}
		if (!least)
			return; /* cannot be: remote neighbours have been joined */
		least->kind = PIECE_REMOTE;
		scan_join(scan);
	}
}

static bool mem_piece_move(struct mem_piece *piece, bool unshared)
{
	const uint64_t length = piece->end - piece->start;
	struct mem_extent *extent = mem_extent_make(piece->start, length);

	if (!extent)
		return false;
	if (!mem_file_move_in(piece->start, length, extent->offset)) {
		mem_extent_remove(extent);
		return false;
	}
	extent->unshared = unshared;
	piece->kind = PIECE_MAPPED;
	piece->offset = extent->offset;
	return true;
}

static void mem_segment_hold(const struct rnic_segment *segment, int change)
{
	if (segment->fd >= 0)
		mem_extent_hold(segment->fd_offset, segment->length, change);
}

/*
 * Whether private memory may become shared memory with nobody the wiser: no other thread writes to
 * it meanwhile, and all who use the C library's madvise and mremap use ours (see mem_advice.c).
 */
static bool mem_may_move_quietly(void)
{
	if (maps_threads() != 1 || !mem_advice_is_heard())
		return false;
	if (maps_any_locked())
		maps_want_flags(); /* tells which; that stays where it is */
	return true;
}

static void scan_allow(struct mem_scan *scan, enum mem_move move)
{
	const char *mode = getenv("RNIC_MAPPED");

	if (move == MEM_STAY || (mode && !strcmp(mode, "never")))
		return;
	scan->move = move == MEM_MOVE_UNSHARED || (mode && !strcmp(mode, "always"));
	if (!scan->move)
		scan->move = scan->heed_pins = mem_may_move_quietly();
}

/* Moves what may move. */
static void scan_move(struct mem_scan *scan, bool unshared)
{
	const bool full = scan->heed_pins && scan->moved >= MEM_MOVED_MAPPINGS;

	for (uint32_t i = 0; i < scan->count; i++) {
		struct mem_piece *piece = &scan->pieces[i];

		if (piece->kind == PIECE_MOVABLE &&
		    (scan->pinned || full || !mem_piece_move(piece, unshared)))
			piece->kind = PIECE_REMOTE;
	}
	scan_join(scan);
}

static void plan_fill(struct mem_plan *plan, const struct mem_scan *scan)
{
	plan->fd = -1;
	plan->generation = atomic_load(&mem_generation);
	plan->count = scan->count;
	for (uint32_t i = 0; i < scan->count; i++) {
		const struct mem_piece *piece = &scan->pieces[i];
		struct rnic_segment *segment = &plan->segments[i];
		bool mapped = piece->kind == PIECE_MAPPED;

		*segment = (struct rnic_segment){
			.addr = piece->start,
			.length = piece->end - piece->start,
			.fd_offset = mapped ? piece->offset : 0,
			.fd = mapped ? 0 : -1,
		};
		if (mapped)
			plan->fd = mem_file_fd();
		mem_segment_hold(segment, 1);
	}
	plan->next = mem_plans;
	mem_plans = plan;
}

int mem_plan_make(struct mem_plan *plan, const void *addr, size_t length, bool write,
		  enum mem_move move)
{
	struct mem_scan scan = {
		.at = (uintptr_t)addr,
		.end = (uintptr_t)addr + length,
		.write = write,
	};
	int error = 0;

	if (scan.end < scan.at)
		return EFAULT;
	scan_allow(&scan, move);
	mem_enter();
	error = length ? maps_walk(scan_visit, &scan) : 0;
	if (error) { /* no /proc: the NIC finds out what it can reach */
		scan.count = 0;
		scan_add(&scan, (struct mem_piece){PIECE_REMOTE, (uintptr_t)addr, scan.end, 0});
		scan.at = scan.end;
		error = 0;
	}
	if (scan.denied || scan.at < scan.end)
		error = EFAULT;
	if (!error) {
		mem_extent_collect(NULL);
		scan_limit(&scan);
		scan_move(&scan, move == MEM_MOVE_UNSHARED);
		plan_fill(plan, &scan);
	}
	mem_leave();
	return error;
}

int mem_plan_remote(struct mem_plan *plan, const void *addr, size_t length)
{
	struct mem_scan scan = {.at = (uintptr_t)addr, .end = (uintptr_t)addr + length};

	if (scan.end < scan.at)
		return EFAULT;
	scan_add(&scan, (struct mem_piece){PIECE_REMOTE, scan.at, scan.end, 0});
	mem_enter();
	plan_fill(plan, &scan);
	mem_leave();
	return 0;
}

static bool part_return(const struct maps_area *part)
{
	uintptr_t start = part->start, end = part->end;

	return !mem_find_remote(&start, &end) && mem_file_move_out(part);
}

void mem_plan_release(struct mem_plan *plan)
{
	struct mem_plan **at;

	if (plan->generation != atomic_load(&mem_generation))
		return; /* of the parent of this process */
	mem_enter();
	for (at = &mem_plans; *at && *at != plan; at = &(*at)->next)
		;
	if (*at)
		*at = plan->next;
	for (uint32_t i = 0; i < plan->count; i++)
		mem_segment_hold(&plan->segments[i], -1);
	plan->count = 0;
	if (mem_any_moved())
		mem_extent_collect(maps_threads() == 1 ? part_return : NULL);
	mem_leave();
}

void mem_plans_forget(void)
{
	atomic_fetch_add(&mem_generation, 1);
	mem_plans = NULL;
}
