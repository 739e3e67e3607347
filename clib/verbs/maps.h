/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's list of this process's mappings, read without allocating memory. */
#ifndef RNIC_MAPS_H
#define RNIC_MAPS_H

#include <stdbool.h>
#include <stdint.h>

struct maps_area {
	uintptr_t start;
	uintptr_t end;
	uint64_t offset;
	uint64_t inode;
	uint32_t major;
	uint32_t minor;
	bool readable;
	bool writable;
	bool executable;
	bool shared;
	bool anonymous; /* private memory of no file, and not a stack */
	bool pins;      /* its presence tells of others that hold on to pages, whatever is mapped */
	uint32_t flags; /* MAPS_*, after maps_want_flags only */
};

#define MAPS_DONTFORK 1u
#define MAPS_DONTDUMP 2u
#define MAPS_WIPEONFORK 4u
#define MAPS_LOCKED 8u

/*
 * Calls visit for each mapping in address order until it returns false. Returns 0, or an errno
 * when the list cannot be read.
 */
int maps_walk(bool (*visit)(const struct maps_area *area, void *arg), void *arg);

/* From now on walks tell flags too, for which the kernel looks at every page: they take longer. */
void maps_want_flags(void);

/* Reports whether some memory of this process is locked. */
bool maps_any_locked(void);

/* Returns the number of threads of this process, 0 when it cannot be told. */
unsigned int maps_threads(void);

#endif
