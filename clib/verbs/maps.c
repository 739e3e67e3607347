/* SPDX-License-Identifier: Apache-2.0 */
#include "maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool maps_flags_wanted;

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

/*
 * What maps the queues of those that read and write memory by its pages, not its addresses: they
 * would go on with the old pages.
 */
static bool maps_name_pins(const char *name)
{
	static const char *const names[] = {
		"/[aio]", "anon_inode:[io_uring]", "anon_inode:[vfio", "socket:[",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	}
	return false;
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
	area->flags = 0;
	area->pins = maps_name_pins(line + at);
	area->anonymous = !area->shared && inode == 0 && maps_name_is_anonymous(line + at);
	return true;
}

void maps_want_flags(void)
{
	atomic_store(&maps_flags_wanted, true);
}

/* What a walk has read. In the longer list flags come some lines after what they belong to. */
struct maps_reader {
	bool (*visit)(const struct maps_area *area, void *arg);
	void *arg;
	bool detailed;
	bool pending;
	struct maps_area area;
};

static uint32_t maps_parse_flags(const char *at)
{
	static const struct {
		char name[3];
		uint32_t flag;
	} names[] = {
		{"dc", MAPS_DONTFORK},
		{"dd", MAPS_DONTDUMP},
		{"wf", MAPS_WIPEONFORK},
		{"lo", MAPS_LOCKED},
	};
	uint32_t flags = 0;

	for (; *at; at += strcspn(at, " ")) {
		at += strspn(at, " ");
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			flags |= strncmp(at, names[i].name, 2) ? 0 : names[i].flag;
	}
	return flags;
}

/* Takes a line. Returns whether to go on. */
static bool maps_take(struct maps_reader *reader, const char *line)
{
	static const char flags[] = "VmFlags:";

	if (reader->pending && !strncmp(line, flags, sizeof(flags) - 1)) {
		reader->pending = false;
		reader->area.flags = maps_parse_flags(line + sizeof(flags) - 1);
		return reader->visit(&reader->area, reader->arg);
	}
	if (reader->pending && line[0] >= 'A' && line[0] <= 'Z')
		return true;
	if (!maps_parse(line, &reader->area))
		return true;
	reader->pending = reader->detailed;
	return reader->detailed || reader->visit(&reader->area, reader->arg);
}

static void maps_read_all(int fd, struct maps_reader *reader)
{
	char buf[4096 + 512]; /* a line is at most 73 bytes and a path, of which we need little */
	size_t have = 0;
	bool more = true, skip = false;

	while (more) {
		ssize_t got = maps_read(fd, buf + have, sizeof(buf) - 1 - have);
		char *line = buf, *end;

		if (got <= 0)
			break;
		have += (size_t)got;
		buf[have] = '\0';
		while (more && (end = memchr(line, '\n', have - (size_t)(line - buf)))) {
			*end = '\0';
			if (!skip)
				more = maps_take(reader, line);
			skip = false;
			line = end + 1;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (more && have > sizeof(buf) / 2) {
			/* The rest of a very long line is only its path. */
			buf[have] = '\0';
			if (!skip)
				more = maps_take(reader, buf);
			skip = true;
			have = 0;
		}
	}
}

int maps_walk(bool (*visit)(const struct maps_area *area, void *arg), void *arg)
{
	struct maps_reader reader = {.visit = visit, .arg = arg};
	int fd = -1;

	/* Not of "self", the first thread: it may have ended, and has no memory then. */
	if (atomic_load(&maps_flags_wanted))
		fd = open("/proc/thread-self/smaps", O_RDONLY | O_CLOEXEC);
	reader.detailed = fd >= 0;
	if (fd < 0)
		fd = open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	maps_read_all(fd, &reader);
	close(fd);
	return 0;
}

bool maps_any_locked(void)
{
	char buf[4096];
	const char *at;
	ssize_t got;
	int fd = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	got = maps_read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[got > 0 ? got : 0] = '\0';
	at = strstr(buf, "\nVmLck:");
	return at && strtoul(at + 7, NULL, 10) > 0;
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
