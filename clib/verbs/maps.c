/* SPDX-License-Identifier: Apache-2.0 */
#include "maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ssize_t maps_read(int fd, char *buf, size_t bytes)
{
	ssize_t got;

	do {
		got = read(fd, buf, bytes);
	} while (got < 0 && errno == EINTR);
	return got;
}

/* The name of a mapping without a file, as far as such memory may be moved. */
static bool maps_name_is_anonymous(const char *name)
{
	return *name == '\0' || !strcmp(name, "[heap]") || !strncmp(name, "[anon:", 6);
}

/* Parses "start-end perms offset major:minor inode name". */
static bool maps_parse(const char *line, struct maps_area *area)
{
	unsigned long long start, end, offset, inode;
	unsigned int major, minor;
	char perms[5];
	int at = 0;

	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &start, &end, perms, &offset, &major,
		   &minor, &inode, &at) < 7)
		return false;
	area->start = (uintptr_t)start;
	area->end = (uintptr_t)end;
	area->offset = offset;
	area->inode = inode;
	area->major = major;
	area->minor = minor;
	area->readable = perms[0] == 'r';
	area->writable = perms[1] == 'w';
	area->executable = perms[2] == 'x';
	area->shared = perms[3] == 's';
	area->anonymous = !area->shared && inode == 0 && maps_name_is_anonymous(line + at);
	return true;
}

int maps_walk(bool (*visit)(const struct maps_area *area, void *arg), void *arg)
{
	char buf[4096 + 512]; /* a line is at most 73 bytes and a path, of which we need little */
	size_t have = 0;
	bool more = true, skip = false;
	/* Not of "self", the first thread: it may have ended, and has no memory then. */
	int fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return errno;
	while (more) {
		ssize_t got = maps_read(fd, buf + have, sizeof(buf) - 1 - have);
		char *line = buf, *end;

		if (got <= 0)
			break;
		have += (size_t)got;
		buf[have] = '\0';
		while (more && (end = memchr(line, '\n', have - (size_t)(line - buf)))) {
			struct maps_area area;

			*end = '\0';
			if (!skip && maps_parse(line, &area))
				more = visit(&area, arg);
			skip = false;
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (more && have > sizeof(buf) / 2) {
			struct maps_area area;

			/* The rest of a very long line is only its path. */
			buf[have] = '\0';
			if (!skip && maps_parse(buf, &area))
				more = visit(&area, arg);
			skip = true;
			have = 0;
		}
	}
	close(fd);
	return 0;
}

unsigned int maps_threads(void)
{
	char buf[1024], *at;
	ssize_t got;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	got = maps_read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (got <= 0)
		return 0;
	buf[got] = '\0';
	/* The program's name, in parentheses, may hold anything; num_threads is field 20. */
	at = strrchr(buf, ')');
	for (int field = 2; at && field < 20; field++)
		at = strchr(at + 1, ' ');
	return at ? (unsigned int)strtoul(at + 1, NULL, 10) : 0;
}
