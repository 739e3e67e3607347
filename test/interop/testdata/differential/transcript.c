/* SPDX-License-Identifier: Apache-2.0 */
/* What the program prints. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

void tell(const char *format, ...)
{
	va_list args;

	printf("%u ", world.step);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout); /* so that a program that hangs has said where */
}

const char *outcome(int error)
{
	const char *name = strerrorname_np(error < 0 ? -error : error);

	if (error == 0)
		return "ok";
	return name ? name : "?";
}

void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}
