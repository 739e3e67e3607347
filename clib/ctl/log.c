/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int rnic_fail(int error)
{
	errno = error;
	return error;
}

void rnic_log(const char *format, ...)
{
	va_list args;
	int saved = errno;

	if (!getenv("RNIC_VERBOSE") && !getenv("RNIC_LOG"))
		return;
	flockfile(stderr);
	fprintf(stderr, "%s(softrnic): ", rnic_library);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
	errno = saved;
}
