/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moved pages around fork. What the parent or the NIC writes once there is a child must not show in
 * it, so its copies are made before, by the thread that forks; the child puts them in their places.
 * Adapters' drivers do the same: the kernel copies at fork what is pinned.
 */
#include "mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem_extent.h"
#include "mem_file.h"

struct fork_copy {
	struct maps_area part;
	unsigned char *bytes; /* NULL: there was no memory, or it is not needed */
	bool unshared;
};

/* Of the fork that is under way: there is one at a time, see ctx.c. */
static struct fork_copy *fork_copies;
static size_t fork_count, fork_room;
static bool fork_fits;

static bool fork_grow(void)
{
	const size_t room = fork_room ? fork_room * 2 : 256;
	struct fork_copy *more = mmap(NULL, room * sizeof(*more), PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (more == MAP_FAILED)
		return false;
	if (fork_count)
		memcpy(more, fork_copies, fork_count * sizeof(*more));
	if (fork_room)
		munmap(fork_copies, fork_room * sizeof(*more));
	fork_copies = more;
	fork_room = room;
	return true;
}

static bool fork_copy_visit(const struct maps_area *area, void *arg)
{
	struct fork_copy copy = {.part = *area};

	(void)arg;
	if (!mem_file_owns(area) || (area->flags & MAPS_DONTFORK))
		return true;
	if (fork_count == fork_room && !fork_grow())
		return false;
	copy.unshared = mem_extent_is_unshared(area->offset, area->end - area->start);
	copy.bytes = fork_fits && !copy.unshared ? mem_file_copy(area) : NULL;
	fork_copies[fork_count++] = copy;
	return true;
}

/*
 * Whether memory for the copies is there. Processes get killed where it is not, and many a child
 * only becomes another program.
 */
static bool fork_has_room(void)
{
	char buf[512];
	const char *at;
	ssize_t got;
	int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return true;
	got = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[got > 0 ? got : 0] = '\0';
	at = strstr(buf, "\nMemAvailable:");
	return !at || mem_file_bytes() / 1024 < strtoull(at + 14, NULL, 10);
}

void mem_fork_prepare(void)
{
	if (!mem_any_moved())
		return;
	mem_enter();
	fork_fits = fork_has_room();
	maps_walk(fork_copy_visit, NULL);
	mem_leave();
}

static void fork_drop_copies(void)
{
	for (size_t i = 0; i < fork_count; i++) {
		const struct maps_area *part = &fork_copies[i].part;

		if (fork_copies[i].bytes)
			munmap(fork_copies[i].bytes, part->end - part->start);
	}
	if (fork_room)
		munmap(fork_copies, fork_room * sizeof(*fork_copies));
	fork_copies = NULL;
	fork_count = fork_room = 0;
}

void mem_fork_parent(void)
{
	fork_drop_copies();
}

/* Puts a copy in the place of a mapping. Mappings come in the order of the copies. */
static bool fork_place_visit(const struct maps_area *area, void *arg)
{
	size_t *next = arg;
	const struct fork_copy *copy;
	uintptr_t skip;

	if (!mem_file_owns(area))
		return true;
	while (*next < fork_count && fork_copies[*next].part.end <= area->start)
		++*next;
	copy = &fork_copies[*next];
	skip = *next < fork_count ? area->start - copy->part.start : 0;
	if (*next >= fork_count || area->start < copy->part.start || area->end > copy->part.end ||
	    area->offset != copy->part.offset + skip) /* another thread has moved it since */
		mem_file_replace(area, mem_file_copy(area));
	else if (copy->unshared)
		mem_file_make_private(area);
	else
		mem_file_replace(area, copy->bytes ? copy->bytes + skip : NULL);
	return true;
}

void mem_fork_child(void)
{
	size_t next = 0;

	if (mem_any_moved())
		maps_walk(fork_place_visit, &next);
	fork_drop_copies();
	mem_extent_forget();
	mem_plans_forget();
	mem_file_forget();
}
