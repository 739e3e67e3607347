/* SPDX-License-Identifier: Apache-2.0 */
/* madvise and mremap for programs some of whose private pages have become shared ones. */
#ifndef RNIC_MEM_ADVICE_H
#define RNIC_MEM_ADVICE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Reports whether the program's calls of madvise come here. They do not where the library has been
 * loaded by dlopen, after the C library.
 */
bool mem_advice_is_heard(void);

/*
 * What madvise and mremap do, in their form. librdmacm.so.1 calls them too: of programs that link
 * only that one it comes before the C library.
 */
int rnic_madvise(void *addr, size_t length, int advice);
void *rnic_mremap(void *old, size_t old_size, size_t new_size, int flags, void *at);

#endif
