/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptor is which socket. What one thread uses another's close does not free. */
#include <unistd.h>

#include "raw.h"
#include "rs.h"

#define TABLE_PAGE 1024
#define TABLE_PAGES 4096

typedef struct rs_socket *_Atomic table_slot;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
/* Pages are never freed. Slots are written under table_lock and may be glanced at without. */
static table_slot *_Atomic table_pages[TABLE_PAGES];

static table_slot *table_slot_of(int fd)
{
	table_slot *page;

	if (fd < 0 || fd >= TABLE_PAGE * TABLE_PAGES)
		return NULL;
	page = atomic_load_explicit(&table_pages[fd / TABLE_PAGE], memory_order_acquire);
	return page ? &page[fd % TABLE_PAGE] : NULL;
}

static int table_page_make(int fd)
{
	table_slot *page;

	if (fd < 0 || fd >= TABLE_PAGE * TABLE_PAGES)
		return EMFILE;
	if (table_slot_of(fd))
		return 0;
	page = calloc(TABLE_PAGE, sizeof(*page));
	if (!page)
		return ENOMEM;
	atomic_store_explicit(&table_pages[fd / TABLE_PAGE], page, memory_order_release);
	return 0;
}

int table_add(struct rs_socket *rs, int fd)
{
	int error;

	pthread_mutex_lock(&table_lock);
	error = table_page_make(fd);
	if (!error) {
		atomic_fetch_add(&rs->refs, 1);
		atomic_store(table_slot_of(fd), rs);
	}
	pthread_mutex_unlock(&table_lock);
	return error;
}

bool table_has(int fd)
{
	table_slot *slot = table_slot_of(fd);

	return slot && atomic_load_explicit(slot, memory_order_relaxed);
}

struct rs_socket *table_get(int fd)
{
	struct rs_socket *rs;

	if (!table_has(fd))
		return NULL;
	pthread_mutex_lock(&table_lock);
	rs = atomic_load(table_slot_of(fd));
	if (rs)
		atomic_fetch_add(&rs->refs, 1);
	pthread_mutex_unlock(&table_lock);
	return rs;
}

/* The reference of the table becomes the caller's. */
struct rs_socket *table_remove(int fd)
{
	struct rs_socket *rs = NULL;

	if (!table_has(fd))
		return NULL;
	pthread_mutex_lock(&table_lock);
	rs = atomic_exchange(table_slot_of(fd), NULL);
	pthread_mutex_unlock(&table_lock);
	return rs;
}

int table_find(const struct rs_socket *rs)
{
	for (int i = 0; i < TABLE_PAGES; i++) {
		table_slot *page = atomic_load(&table_pages[i]);

		for (int j = 0; page && j < TABLE_PAGE; j++) {
			if (atomic_load(&page[j]) == rs)
				return i * TABLE_PAGE + j;
		}
	}
	return -1;
}

void table_put(struct rs_socket *rs)
{
	if (atomic_fetch_sub(&rs->refs, 1) == 1)
		rs_release(rs);
}

void table_visit(void (*visit)(struct rs_socket *rs))
{
	for (size_t i = 0; i < TABLE_PAGES; i++) {
		table_slot *page = atomic_load(&table_pages[i]);

		for (size_t j = 0; page && j < TABLE_PAGE; j++) {
			struct rs_socket *rs = atomic_load(&page[j]);

			if (rs)
				visit(rs);
		}
	}
}

static void table_fork_prepare(void)
{
	pthread_mutex_lock(&table_lock);
}

static void table_fork_parent(void)
{
	pthread_mutex_unlock(&table_lock);
}

/* Threads that are not in the child may have held locks, and counted as users. */
static void table_orphan(struct rs_socket *rs)
{
	if (!rs->is_orphan)
		rs->owner_kick_fd = service_kick_descriptor();
	rs->is_orphan = true;
	rs->is_pumped = false;
	rs->is_served = false;
	pthread_mutex_init(&rs->send_lock, NULL);
	pthread_mutex_init(&rs->recv_lock, NULL);
	pthread_mutex_init(&rs->lock, NULL);
	pthread_cond_init(&rs->changed, NULL);
	rs->has_leader = false;
	rs->waiters = rs->pollers = 0;
	/* Connections that nobody has accepted are no business of the child's. */
	for (struct rs_socket *pending = rs->pending; pending; pending = pending->pending) {
		raw_close(pending->fd);
		raw_close(pending->mirror_fd);
	}
	rs->pending = NULL;
}

static void table_fork_child(void)
{
	table_visit(table_orphan);
	service_fork_child();
	pthread_mutex_unlock(&table_lock);
}

__attribute__((constructor)) static void table_library_init(void)
{
	pthread_atfork(table_fork_prepare, table_fork_parent, table_fork_child);
}

int rs_new(int domain, int type, const struct rs_options *opt, struct rs_socket **out)
{
	struct rs_socket *rs = calloc(1, sizeof(*rs));
	int error;

	if (!rs)
		return ENOMEM;
	rs->domain = domain;
	rs->type = type;
	rs->opt = *opt;
	rs->fd = rs->mirror_fd = -1;
	atomic_init(&rs->refs, 1);
	pthread_mutex_init(&rs->send_lock, NULL);
	pthread_mutex_init(&rs->recv_lock, NULL);
	pthread_mutex_init(&rs->lock, NULL);
	pthread_cond_init(&rs->changed, NULL);
	error = mirror_create(rs);
	if (error) {
		free(rs);
		return error;
	}
	*out = rs;
	return 0;
}

/* The last user is gone; nobody else knows it. The descriptor is already closed, or not made. */
void rs_release(struct rs_socket *rs)
{
	while (rs->pending) {
		struct rs_socket *next = rs->pending->pending;

		rs->pending->pending = NULL;
		raw_close(rs->pending->fd);
		table_put(rs->pending);
		rs->pending = next;
	}
	service_forget(rs);
	/* What a child destroyed of its parent's would be missing in queues that they share. */
	if (!rs->is_orphan) {
		if (rs->dgram)
			dgram_destroy(rs);
		iomap_free_all(rs);
		ep_destroy(rs);
		conn_close(rs);
	}
	mirror_destroy(rs);
	pthread_mutex_destroy(&rs->lock);
	pthread_mutex_destroy(&rs->send_lock);
	pthread_mutex_destroy(&rs->recv_lock);
	pthread_cond_destroy(&rs->changed);
	free(rs);
}
