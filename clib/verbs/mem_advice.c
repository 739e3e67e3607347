/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moved pages are shared memory, and the kernel treats it as such: MADV_DONTNEED leaves it as it
 * is, MADV_FREE is refused, and growing by mremap shows what lies next in the file. Allocators rely
 * on what private memory does, so these calls are ours. Pages that the program gives up become
 * private pages of zeros, also where a region holds them: an adapter goes on with the pages that it
 * has pinned, and so does the NIC, with those of the file.
 *
 * They come from within allocators: no call here allocates memory by malloc.
 */
#include "mem_advice.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mem_extent.h"
#include "mem_file.h"
#include "rnic.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif

/* An advice that no kernel knows, by which we find out who hears a call. */
#define ADVICE_PROBE 0x524e4943

static atomic_bool advice_probed;

bool mem_advice_is_heard(void)
{
	static atomic_int known; /* 1 yes, −1 no */
	int (*call)(void *, size_t, int);
	void *program;

	if (atomic_load(&known))
		return atomic_load(&known) > 0;
	program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
	call = program ? (__typeof__(call))dlsym(program, "madvise") : NULL;
	if (call)
		call(&advice_probed, 0, ADVICE_PROBE);
	if (program)
		dlclose(program);
	atomic_store(&known, atomic_load(&advice_probed) ? 1 : -1);
	return atomic_load(&advice_probed);
}

static uintptr_t page_round(uintptr_t value)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	return (value + page - 1) & ~(page - 1);
}

/* A walk over the moved pages within a range. */
struct advice_range {
	uintptr_t start;
	uintptr_t end;
	int advice;
	int error;
	bool found;
};

/* Clips a mapping of the file to the range. */
static bool range_clip(struct advice_range *range, const struct maps_area *area,
		       struct maps_area *part)
{
	if (!mem_file_owns(area) || area->end <= range->start || area->start >= range->end)
		return false;
	range->found = true;
	*part = *area;
	if (part->start < range->start) {
		part->offset += range->start - part->start;
		part->start = range->start;
	}
	if (part->end > range->end)
		part->end = range->end;
	return true;
}

/* Reports whether no region holds a part of the file. */
static bool range_is_idle(uint64_t offset, uint64_t length)
{
	const struct mem_extent *extent;

	for (extent = mem_extent_first(); extent; extent = extent->next) {
		if (extent->holds && offset < extent->offset + extent->length &&
		    extent->offset < offset + length)
			return false;
	}
	return true;
}

static bool drop_visit(const struct maps_area *area, void *arg)
{
	struct advice_range *range = arg;
	const int how = range->advice == MADV_FREE ? MADV_DONTNEED : range->advice;
	struct maps_area part;
	size_t length;
	bool replaced;

	if (!range_clip(range, area, &part))
		return area->start < range->end;
	length = part.end - part.start;
	if (range->advice == MADV_REMOVE) {
		range->error = EINVAL;
		return false;
	}
	/* To shared pages this does nothing, but it fails where it has to: locked ones stay. */
	if (mem_file_advise(part.start, length, how) != 0) {
		range->error = errno;
		return false;
	}
	replaced = mem_file_zero(&part);
	/* Without room for another mapping both sides see the zeros. */
	if (!replaced || range_is_idle(part.offset, length))
		mem_file_punch(part.offset, length);
	return true;
}

/* Gives the moved pages of a range up. Returns 0 or an errno. */
static int advice_drop(uintptr_t start, size_t length, int advice)
{
	struct advice_range range = {.start = start, .end = page_round(start + length),
				     .advice = advice};

	if (range.end <= start || start != page_round(start))
		return 0; /* as the kernel will say */
	mem_enter();
	if (mem_extent_near(start, range.end)) {
		maps_walk(drop_visit, &range);
		if (range.found && !range.error)
			mem_extent_collect(NULL);
	}
	mem_leave();
	return range.error;
}

VERBS_API int rnic_madvise(void *addr, size_t length, int advice)
{
	int error = 0;

	switch (advice) {
	case ADVICE_PROBE:
		if (addr == &advice_probed)
			atomic_store(&advice_probed, true);
		break;
	case MADV_DONTFORK:
	case MADV_DONTDUMP:
	case MADV_WIPEONFORK:
		maps_want_flags(); /* they are kept, or the memory is not moved */
		break;
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
	case MADV_REMOVE:
		if (mem_any_moved())
			error = advice_drop((uintptr_t)addr, length, advice);
		break;
	default:
		break;
	}
	if (error) {
		errno = error;
		return -1;
	}
	return mem_file_advise((uintptr_t)addr, length, advice);
}

static void *remap_call(uintptr_t old, size_t old_size, size_t new_size, int flags, uintptr_t at)
{
	return (void *)syscall(SYS_mremap, old, old_size, new_size, flags, at);
}

/* What mremap is asked to do, in whole pages. */
struct remap {
	struct advice_range range; /* the old one */
	uintptr_t reached;         /* all before it is mapped */
	size_t new_size;
	int flags;
	uintptr_t at; /* the new place */
	int prot;
};

static bool remap_look(const struct maps_area *area, void *arg)
{
	struct remap *remap = arg;
	struct maps_area part;

	if (area->end <= remap->range.start)
		return true;
	if (area->start >= remap->range.end || area->start > remap->reached)
		return false;
	range_clip(&remap->range, area, &part);
	remap->reached = area->end;
	remap->prot = (area->readable ? PROT_READ : 0) | (area->writable ? PROT_WRITE : 0) |
		      (area->executable ? PROT_EXEC : 0);
	return true;
}

static bool remap_move_visit(const struct maps_area *area, void *arg)
{
	struct remap *remap = arg;
	const uintptr_t old = remap->range.start;
	const size_t most = remap->range.end - old;
	const uintptr_t end = old + (most < remap->new_size ? most : remap->new_size);
	uintptr_t from = area->start > old ? area->start : old;
	uintptr_t to = area->end < end ? area->end : end;

	if (from >= to)
		return area->start < end;
	if (remap_call(from, to - from, to - from, MREMAP_MAYMOVE | MREMAP_FIXED,
		       remap->at + (from - old)) == MAP_FAILED) {
		remap->range.error = errno;
		return false;
	}
	return true;
}

/* Makes private memory of zeros. Returns whether it is where it was asked for. */
static bool remap_fresh(uintptr_t *at, size_t length, int prot, int fixed)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | fixed;
	void *got = mmap((void *)*at, length, prot, flags, -1, 0);

	if (got == MAP_FAILED)
		return false;
	if (fixed && (uintptr_t)got != *at) { /* a kernel that takes the address for a hint */
		munmap(got, length);
		return false;
	}
	*at = (uintptr_t)got;
	return true;
}

/*
 * The kernel's mremap of private memory, piece by piece, with private memory for what is added.
 * Returns an errno.
 */
static int remap_pieces(struct remap *remap)
{
	const uintptr_t old = remap->range.start, end = remap->range.end;
	const size_t old_size = end - old;
	const bool fixed = remap->flags & MREMAP_FIXED, stays = remap->flags & MREMAP_DONTUNMAP;
	uintptr_t beyond = end;

	if (!fixed && !stays && remap->new_size > old_size &&
	    remap_fresh(&beyond, remap->new_size - old_size, remap->prot, MAP_FIXED_NOREPLACE)) {
		remap->at = old;
		return 0;
	}
	if (!(remap->flags & MREMAP_MAYMOVE))
		return ENOMEM;
	if (fixed && (remap->at != page_round(remap->at) ||
		      (remap->at < end && old < remap->at + remap->new_size)))
		return EINVAL;
	if (!remap_fresh(&remap->at, remap->new_size, remap->prot, fixed ? MAP_FIXED : 0))
		return ENOMEM;
	mem_extent_wander();
	maps_walk(remap_move_visit, remap);
	if (remap->range.error)
		return remap->range.error;
	if (stays)
		remap_fresh(&remap->range.start, old_size, remap->prot, MAP_FIXED);
	else if (remap->new_size < old_size)
		munmap((void *)(old + remap->new_size), old_size - remap->new_size);
	return 0;
}

VERBS_API void *rnic_mremap(void *old, size_t old_size, size_t new_size, int flags, void *at)
{
	struct remap remap = {
		.range = {.start = (uintptr_t)old, .end = page_round((uintptr_t)old + old_size)},
		.reached = (uintptr_t)old,
		.new_size = page_round(new_size),
		.flags = flags,
		.at = flags & MREMAP_FIXED ? (uintptr_t)at : 0,
	};
	const uintptr_t last = old_size ? remap.range.end : remap.range.start + 1;
	const bool grows = remap.new_size > remap.range.end - remap.range.start;
	const int moves = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
	int error = 0;

	if (!mem_any_moved() || !new_size || (uintptr_t)old != page_round((uintptr_t)old) ||
	    last <= remap.range.start || (!grows && !moves))
		return remap_call((uintptr_t)old, old_size, new_size, flags, (uintptr_t)at);
	mem_enter();
	if (mem_extent_near(remap.range.start, last)) {
		remap.range.end = last;
		maps_walk(remap_look, &remap);
		if (!old_size || remap.reached < last)
			error = old_size ? EFAULT : EINVAL;
		else if (remap.range.found)
			error = remap_pieces(&remap);
	}
	mem_leave();
	if (!remap.range.found)
		return remap_call((uintptr_t)old, old_size, new_size, flags, (uintptr_t)at);
	if (error) {
		errno = error;
		return MAP_FAILED;
	}
	return (void *)remap.at;
}

/* The names under which programs call them. */
VERBS_API int madvise(void *addr, size_t length, int advice)
{
	return rnic_madvise(addr, length, advice);
}

VERBS_API void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *at = NULL;
	va_list args;

	if (flags & MREMAP_FIXED) {
		va_start(args, flags);
		at = va_arg(args, void *);
		va_end(args);
	}
	return rnic_mremap(old, old_size, new_size, flags, at);
}
