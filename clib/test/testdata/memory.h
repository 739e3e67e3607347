/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the memory layer share. They play the NIC, which reads and writes the file. */
#ifndef MEMORY_H
#define MEMORY_H

#include "mem.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"

#define PAGE 4096u

static inline unsigned char *map_pages(size_t count)
{
	unsigned char *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static inline bool is_all(const unsigned char *at, size_t length, unsigned char byte)
{
	for (size_t i = 0; i < length; i++) {
		if (at[i] != byte)
			return false;
	}
	return true;
}

static inline bool find_visit(const struct maps_area *area, void *arg)
{
	struct maps_area *find = arg;

	if (find->start < area->start || find->start >= area->end)
		return true;
	*find = *area;
	return false;
}

static inline struct maps_area area_of(const void *addr)
{
	struct maps_area find = {.start = (uintptr_t)addr};

	CHECK(maps_walk(find_visit, &find) == 0);
	return find;
}

static inline bool is_shared(const void *addr)
{
	return area_of(addr).shared;
}

/* Registers memory that moves, all of it. */
static inline void plan_moved(struct mem_plan *plan, void *at, size_t length)
{
	CHECK(mem_plan_make(plan, at, length, true, MEM_MOVE) == 0);
	CHECK(plan->count == 1 && plan->segments[0].fd >= 0 && is_shared(at));
}

static inline void nic_write(const struct mem_plan *plan, size_t offset, unsigned char byte)
{
	CHECK(pwrite(plan->fd, &byte, 1, (off_t)(plan->segments[0].fd_offset + offset)) == 1);
}

static inline unsigned char nic_read(const struct mem_plan *plan, size_t offset)
{
	unsigned char byte;

	CHECK(pread(plan->fd, &byte, 1, (off_t)(plan->segments[0].fd_offset + offset)) == 1);
	return byte;
}

static inline void expect_child(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void *wait_for_ever(void *arg)
{
	(void)arg;
	pause();
	return NULL;
}

static inline void start_thread(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
}

#endif
