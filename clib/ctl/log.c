/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

int rnic_fail(int error)
{
	errno = error;
	return error;
}

bool rnic_log_is_wanted(void)
{
	return getenv("RNIC_VERBOSE") || getenv("RNIC_LOG");
}

static void log_write(const char *format, va_list args)
{
	int saved = errno;

	flockfile(stderr);
	fprintf(stderr, "%s(softrnic): ", rnic_library);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	funlockfile(stderr);
	errno = saved;
}

void rnic_log(const char *format, ...)
{
	va_list args;

	if (!rnic_log_is_wanted())
		return;
	va_start(args, format);
	log_write(format, args);
	va_end(args);
}

void rnic_say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_write(format, args);
	va_end(args);
}

void rnic_warn(const char *format, ...)
{
	static atomic_bool has_warned;
	va_list args;

	if (atomic_exchange(&has_warned, true) && !rnic_log_is_wanted())
		return;
	va_start(args, format);
	log_write(format, args);
	va_end(args);
}
