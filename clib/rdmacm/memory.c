/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls by which programs give memory up and move it, for libibverbs.so.1, which some of its
 * pages are known to (verbs/mem_advice.c): where a program links only this library, it comes before
 * the C library and that one after.
 */
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cm.h"

/* Missing when this library runs on another libibverbs. */
__attribute__((weak)) int rnic_madvise(void *addr, size_t length, int advice);
__attribute__((weak)) void *rnic_mremap(void *old, size_t old_size, size_t new_size, int flags,
					void *at);

CM_API int madvise(void *addr, size_t length, int advice)
{
	if (rnic_madvise)
		return rnic_madvise(addr, length, advice);
	return (int)syscall(SYS_madvise, addr, length, advice);
}

CM_API void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *at = NULL;
	va_list args;

	if (flags & MREMAP_FIXED) {
		va_start(args, flags);
		at = va_arg(args, void *);
		va_end(args);
	}
	if (rnic_mremap)
		return rnic_mremap(old, old_size, new_size, flags, at);
	return (void *)syscall(SYS_mremap, old, old_size, new_size, flags, at);
}
