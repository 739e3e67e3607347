/* SPDX-License-Identifier: Apache-2.0 */
/* The memfd that moved pages live in, and the two directions of moving. */
#ifndef RNIC_MEM_FILE_H
#define RNIC_MEM_FILE_H

#include "maps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the descriptor, or −1 while no page has been moved. */
int mem_file_fd(void);

/* Reports whether a mapping is one of the file's, shared. */
bool mem_file_owns(const struct maps_area *area);

/* Opens the file when it is not open. Returns its size in bytes, which never changes, or 0. */
uint64_t mem_file_open(void);

/*
 * Moves the whole pages at addr into the file at offset and maps them there. On failure the
 * memory is as it was.
 */
bool mem_file_move_in(uintptr_t addr, size_t length, uint64_t offset);

/*
 * Replaces a mapping of the file by private memory with the same contents and protection, in a
 * process of one thread. On failure the mapping is as it was.
 */
bool mem_file_move_out(const struct maps_area *part);

/* Replaces a mapping of the file by private memory of zeros with the same protection. */
bool mem_file_zero(const struct maps_area *part);

/* Returns private memory with the contents and the protection of a mapping of the file, or NULL. */
void *mem_file_copy(const struct maps_area *part);

/* Puts such memory, or a part of it, in the place of that mapping. Without, nothing is there. */
void mem_file_replace(const struct maps_area *part, void *copy);

/* Replaces a mapping by a private one of the file, in which what others write may show. */
void mem_file_make_private(const struct maps_area *part);

/* Returns the bytes of memory that the file takes. */
uint64_t mem_file_bytes(void);

/* The kernel's madvise: that of the C library is ours. */
int mem_file_advise(uintptr_t addr, size_t length, int advice);

/* Gives the memory behind a range back to the system. */
void mem_file_punch(uint64_t offset, uint64_t length);

/* Closes the file; the next move makes another. */
void mem_file_forget(void);

#endif
