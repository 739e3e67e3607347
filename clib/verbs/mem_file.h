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

/* Replaces a mapping by a private one of the file: cheap, copied when written. */
bool mem_file_make_private(const struct maps_area *part);

/* Gives the memory behind a range back to the system. */
void mem_file_punch(uint64_t offset, uint64_t length);

/* Closes the file; the next move makes another. */
void mem_file_forget(void);

#endif
