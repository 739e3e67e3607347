/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_CLOCK_H
#define RNIC_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns what CLOCK_MONOTONIC says, in nanoseconds. */
static inline uint64_t clock_monotonic(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
