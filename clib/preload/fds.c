/* SPDX-License-Identifier: Apache-2.0 */
/* What we know of descriptors that are no rsockets, or not yet. */
#include <stdio.h>

#include "preload.h"

#define FDS_PAGE 1024
#define FDS_PAGES 4096

typedef struct preload_fd *_Atomic fds_slot;

static pthread_mutex_t fds_lock = PTHREAD_MUTEX_INITIALIZER;
static fds_slot *_Atomic fds_pages[FDS_PAGES]; /* as the table of rsockets */

static fds_slot *fds_slot_of(int fd)
{
	fds_slot *page;

	if (fd < 0 || fd >= FDS_PAGE * FDS_PAGES)
		return NULL;
	page = atomic_load_explicit(&fds_pages[fd / FDS_PAGE], memory_order_acquire);
	return page ? &page[fd % FDS_PAGE] : NULL;
}

bool preload_has(int fd)
{
	fds_slot *slot = fds_slot_of(fd);

	return slot && atomic_load_explicit(slot, memory_order_relaxed);
}

struct preload_fd *preload_get(int fd)
{
	struct preload_fd *entry;

	if (!preload_has(fd))
		return NULL;
	pthread_mutex_lock(&fds_lock);
	entry = atomic_load(fds_slot_of(fd));
	if (entry)
		atomic_fetch_add(&entry->refs, 1);
	pthread_mutex_unlock(&fds_lock);
	return entry;
}

struct preload_fd *preload_new(enum preload_kind kind, int domain)
{
	struct preload_fd *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	entry->kind = kind;
	entry->domain = domain;
	entry->tcp = entry->rsocket = -1;
	atomic_init(&entry->refs, 1);
	pthread_mutex_init(&entry->lock, NULL);
	return entry;
}

int preload_add(int fd, struct preload_fd *entry)
{
	fds_slot *page;
	int error = 0;

	if (fd < 0 || fd >= FDS_PAGE * FDS_PAGES)
		return EMFILE;
	preload_remove(fd);
	pthread_mutex_lock(&fds_lock);
	page = atomic_load(&fds_pages[fd / FDS_PAGE]);
	if (!page) {
		page = calloc(FDS_PAGE, sizeof(*page));
		error = page ? 0 : ENOMEM;
		atomic_store_explicit(&fds_pages[fd / FDS_PAGE], page, memory_order_release);
	}
	if (!error) {
		atomic_fetch_add(&entry->refs, 1);
		atomic_store(&page[fd % FDS_PAGE], entry);
	}
	pthread_mutex_unlock(&fds_lock);
	return error;
}

void preload_put(struct preload_fd *entry)
{
	if (atomic_fetch_sub(&entry->refs, 1) != 1)
		return;
	if (entry->rsocket >= 0)
		rclose(entry->rsocket);
	if (entry->tcp >= 0)
		raw_close(entry->tcp);
	pthread_mutex_destroy(&entry->lock);
	free(entry);
}

void preload_remove(int fd)
{
	struct preload_fd *entry;

	if (!preload_has(fd))
		return;
	pthread_mutex_lock(&fds_lock);
	entry = atomic_exchange(fds_slot_of(fd), NULL);
	pthread_mutex_unlock(&fds_lock);
	if (entry)
		preload_put(entry);
}

static void fds_fork_prepare(void)
{
	pthread_mutex_lock(&fds_lock);
}

static void fds_fork_parent(void)
{
	pthread_mutex_unlock(&fds_lock);
}

/* The parent's listening rsockets are the parent's. Its TCP sockets are the child's as well. */
static void fds_fork_child(void)
{
	for (size_t i = 0; i < FDS_PAGES; i++) {
		fds_slot *page = atomic_load(&fds_pages[i]);

		for (size_t j = 0; page && j < FDS_PAGE; j++) {
			struct preload_fd *entry = atomic_load(&page[j]);

			if (!entry)
				continue;
			pthread_mutex_init(&entry->lock, NULL);
			entry->try_at = 0;
			entry->rsocket = -1;
			entry->is_shared = true;
		}
	}
	pthread_mutex_unlock(&fds_lock);
}

__attribute__((constructor)) static void fds_library_init(void)
{
	pthread_atfork(fds_fork_prepare, fds_fork_parent, fds_fork_child);
}

void preload_log(const char *format, ...)
{
	int saved = errno;
	char line[300];
	va_list args;
	int bytes;

	if (!getenv("RNIC_VERBOSE") && !getenv("RNIC_LOG"))
		return;
	bytes = snprintf(line, sizeof(line), "librspreload(softrnic): ");
	va_start(args, format);
	vsnprintf(line + bytes, sizeof(line) - (size_t)bytes - 1, format, args);
	va_end(args);
	strcat(line, "\n");
	if (syscall(SYS_write, 2, line, strlen(line)) < 0)
		errno = saved;
	errno = saved;
}
