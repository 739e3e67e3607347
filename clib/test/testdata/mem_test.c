/* SPDX-License-Identifier: Apache-2.0 */
/* Exercises the memory layer alone, "mem_test CASE", and reads the file as the NIC would. */
#include "mem.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"

#define PAGE 4096u

static unsigned char *map_pages(size_t count)
{
	unsigned char *at = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void fill(unsigned char *at, size_t length, unsigned int seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static bool is_filled(const unsigned char *at, size_t length, unsigned int seed)
{
	for (size_t i = 0; i < length; i++) {
		if (at[i] != (unsigned char)(i * 7 + i / 251 + seed))
			return false;
	}
	return true;
}

/* The segments must cover the region without gaps, and mapped ones show the same bytes. */
static void check_plan(const struct mem_plan *plan, const unsigned char *at, size_t length)
{
	uintptr_t next = (uintptr_t)at;

	CHECK(plan->count >= 1 && plan->count <= RNIC_MAX_MR_SEGMENTS);
	for (uint32_t i = 0; i < plan->count; i++) {
		const struct rnic_segment *segment = &plan->segments[i];
		unsigned char *bytes = malloc(segment->length);

		CHECK(segment->addr == next && segment->length > 0);
		next += segment->length;
		if (segment->fd >= 0) {
			CHECK(segment->addr % PAGE == 0 && segment->length % PAGE == 0);
			CHECK(segment->fd_offset % PAGE == 0 && plan->fd >= 0);
			CHECK(pread(plan->fd, bytes, segment->length, (off_t)segment->fd_offset) ==
			      (ssize_t)segment->length);
			CHECK(!memcmp(bytes, (void *)segment->addr, segment->length));
		}
		free(bytes);
	}
	CHECK(next == (uintptr_t)at + length);
}

static uint64_t mapped_bytes(const struct mem_plan *plan)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < plan->count; i++)
		total += plan->segments[i].fd >= 0 ? plan->segments[i].length : 0;
	return total;
}

static void nic_write(const struct mem_plan *plan, size_t offset, unsigned char byte)
{
	CHECK(pwrite(plan->fd, &byte, 1, (off_t)(plan->segments[0].fd_offset + offset)) == 1);
}

/* Whole pages move, fringes stay, contents stay, and both sides see each other's writes. */
static void test_move(void)
{
	unsigned char *at = map_pages(8);
	struct mem_plan plan, whole;

	fill(at, 8 * PAGE, 1);
	CHECK(mem_plan_make(&plan, at + 100, 5 * PAGE, true, true) == 0);
	check_plan(&plan, at + 100, 5 * PAGE);
	CHECK(plan.count == 3 && mapped_bytes(&plan) == 4 * PAGE);
	CHECK(is_filled(at, 8 * PAGE, 1));
	at[2 * PAGE] ^= 0xff;
	check_plan(&plan, at + 100, 5 * PAGE);
	mem_plan_release(&plan);

	CHECK(mem_plan_make(&whole, at, 8 * PAGE, true, true) == 0);
	CHECK(whole.count == 1 && mapped_bytes(&whole) == 8 * PAGE);
	nic_write(&whole, 3, 42);
	CHECK(at[3] == 42);
	mem_plan_release(&whole);
	CHECK(at[3] == 42);
}

struct find_shared {
	uintptr_t addr;
	bool shared;
};

static bool find_visit(const struct maps_area *area, void *arg)
{
	struct find_shared *find = arg;

	if (find->addr >= area->start && find->addr < area->end)
		find->shared = area->shared;
	return true;
}

static bool is_shared(const void *addr)
{
	struct find_shared find = {(uintptr_t)addr, false};

	CHECK(maps_walk(find_visit, &find) == 0);
	return find.shared;
}

/* The last plan's release gives private memory back, and the file's memory to the system. */
static void test_release(void)
{
	unsigned char *at = map_pages(64);
	struct mem_plan a, b;
	struct stat st;
	int fd;

	fill(at, 64 * PAGE, 2);
	CHECK(mem_plan_make(&a, at, 64 * PAGE, true, true) == 0);
	CHECK(mem_plan_make(&b, at + 10 * PAGE, 5 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&b) == 5 * PAGE && b.fd == a.fd);
	CHECK(b.segments[0].fd_offset == a.segments[0].fd_offset + 10 * PAGE);
	fd = a.fd;
	mem_plan_release(&a);
	CHECK(is_shared(at + 10 * PAGE));
	nic_write(&b, 0, 99);
	CHECK(at[10 * PAGE] == 99);
	mem_plan_release(&b);
	CHECK(!is_shared(at) && at[10 * PAGE] == 99);
	at[10 * PAGE] = (unsigned char)(10 * PAGE * 7 + 10 * PAGE / 251 + 2);
	CHECK(is_filled(at, 64 * PAGE, 2));
	CHECK(fstat(fd, &st) == 0 && st.st_blocks == 0);
}

/* Memory that is unmapped or lacks the right is refused; reading needs only reading. */
static void test_fault(void)
{
	unsigned char *at = map_pages(4);
	struct mem_plan plan;

	CHECK(munmap(at + PAGE, PAGE) == 0);
	CHECK(mprotect(at + 2 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(at + 3 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(mem_plan_make(&plan, at, 2 * PAGE, true, true) == EFAULT);
	CHECK(mem_plan_make(&plan, at + PAGE, 1, false, true) == EFAULT);
	CHECK(mem_plan_make(&plan, at + 2 * PAGE, PAGE, true, true) == EFAULT);
	CHECK(mem_plan_make(&plan, at + 3 * PAGE, 1, false, false) == EFAULT);
	CHECK(mem_plan_make(&plan, (void *)-100, 200, false, false) == EFAULT);
	CHECK(mem_plan_make(&plan, NULL, 1, false, false) == EFAULT);
	CHECK(mem_plan_make(&plan, at + 2 * PAGE, PAGE, false, false) == 0);
	CHECK(mapped_bytes(&plan) == 0);
	check_plan(&plan, at + 2 * PAGE, PAGE);
	mem_plan_release(&plan);
}

/* More pieces than a request can name: the smallest are reached remotely. */
static void test_scattered(void)
{
	unsigned char *at = map_pages(100);
	struct mem_plan plan;

	fill(at, 100 * PAGE, 3);
	for (size_t i = 1; i < 100; i += 2)
		CHECK(mmap(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	CHECK(mem_plan_make(&plan, at, 100 * PAGE, true, true) == 0);
	check_plan(&plan, at, 100 * PAGE);
	CHECK(mapped_bytes(&plan) > 0);
	mem_plan_release(&plan);
}

/* Pages that the NIC may be writing to across process borders do not move under it. */
static void test_in_use(void)
{
	unsigned char *at = map_pages(4);
	struct mem_plan part, whole;

	CHECK(mem_plan_make(&part, at + PAGE + 8, 100, true, true) == 0);
	CHECK(mapped_bytes(&part) == 0);
	CHECK(mem_plan_make(&whole, at, 4 * PAGE, true, true) == 0);
	check_plan(&whole, at, 4 * PAGE);
	CHECK(mapped_bytes(&whole) == 3 * PAGE && !is_shared(at + PAGE));
	mem_plan_release(&whole);
	CHECK(mem_plan_make(&whole, at + 2 * PAGE, PAGE, true, true) == 0);
	mem_plan_release(&part);
	CHECK(mem_plan_make(&part, at + 2 * PAGE + 8, 100, true, true) == 0);
	mem_plan_release(&whole);
	CHECK(is_shared(at + 2 * PAGE)); /* it may be written through the fringe */
	mem_plan_release(&part);
	CHECK(!is_shared(at + 2 * PAGE));
}

/* The application reuses the addresses: an old plan must not be taken for the new memory. */
static void test_reuse(void)
{
	unsigned char *at = map_pages(16), *again;
	struct mem_plan old, plan;

	fill(at, 16 * PAGE, 4);
	CHECK(mem_plan_make(&old, at, 16 * PAGE, true, true) == 0);
	CHECK(munmap(at, 16 * PAGE) == 0);
	again = mmap(at, 16 * PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == at);
	fill(at, 16 * PAGE, 5);
	CHECK(mem_plan_make(&plan, at, 16 * PAGE, true, true) == 0);
	CHECK(plan.segments[0].fd_offset != old.segments[0].fd_offset);
	check_plan(&plan, at, 16 * PAGE);
	mem_plan_release(&old);
	CHECK(is_filled(at, 16 * PAGE, 5));
	nic_write(&plan, 7, 1);
	CHECK(at[7] == 1);
	mem_plan_release(&plan);
	CHECK(at[7] == 1);
}

static void *idle(void *arg)
{
	pthread_mutex_lock(arg);
	pthread_mutex_unlock(arg);
	return NULL;
}

static bool first_thread_has_ended(void)
{
	char path[64], stat[512];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getpid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	got = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	CHECK(got > 0);
	stat[got] = '\0';
	return strstr(stat, ") Z ") != NULL;
}

static void *plan_later(void *at)
{
	struct mem_plan plan;

	while (!first_thread_has_ended())
		usleep(1000);
	CHECK(mem_plan_make(&plan, at, 4 * PAGE, true, true) == 0);
	CHECK(plan.count == 1 && mapped_bytes(&plan) == 0);
	mem_plan_release(&plan);
	exit(0);
}

/* A program may end its first thread and go on with others. */
static void test_first_thread_ended(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, plan_later, map_pages(4)) == 0);
	pthread_exit(NULL);
}

/* With a second thread nothing moves, unless that was asked for. */
static void test_threads(void)
{
	unsigned char *at = map_pages(8);
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
	struct mem_plan plan, early;
	pthread_t thread;

	CHECK(maps_threads() == 1);
	CHECK(mem_plan_make(&early, at + 4 * PAGE, PAGE, true, true) == 0);
	CHECK(mapped_bytes(&early) == PAGE);
	pthread_mutex_lock(&gate);
	CHECK(pthread_create(&thread, NULL, idle, &gate) == 0);
	CHECK(maps_threads() == 2);
	CHECK(mem_plan_make(&plan, at, 4 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&plan) == 0);
	mem_plan_release(&plan);
	mem_plan_release(&early);
	CHECK(is_shared(at + 4 * PAGE)); /* it could not move back, but it is found again */
	CHECK(mem_plan_make(&early, at + 4 * PAGE, PAGE, true, true) == 0);
	CHECK(mapped_bytes(&early) == PAGE);
	mem_plan_release(&early);
	setenv("RNIC_MAPPED", "always", 1);
	CHECK(mem_plan_make(&plan, at, 4 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&plan) == 4 * PAGE);
	mem_plan_release(&plan);
	setenv("RNIC_MAPPED", "never", 1);
	pthread_mutex_unlock(&gate);
	CHECK(pthread_join(thread, NULL) == 0);
	at = map_pages(4);
	CHECK(mem_plan_make(&plan, at, 4 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&plan) == 0);
	mem_plan_release(&plan);
}

/* Untouched pages of a large region cost nothing. */
static void test_sparse(void)
{
	const size_t length = (size_t)1 << 30;
	unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct mem_plan plan;
	struct stat st;

	CHECK(at != MAP_FAILED);
	at[0] = 1;
	at[length / 2 + 5] = 2;
	at[length - 1] = 3;
	CHECK(mem_plan_make(&plan, at, length, true, true) == 0);
	CHECK(mapped_bytes(&plan) == length);
	CHECK(fstat(plan.fd, &st) == 0 && st.st_blocks * 512 <= (16 << 20));
	CHECK(at[0] == 1 && at[length / 2 + 5] == 2 && at[length - 1] == 3 && at[PAGE] == 0);
	mem_plan_release(&plan);
	CHECK(at[0] == 1 && at[length / 2 + 5] == 2 && at[length - 1] == 3 && at[PAGE] == 0);
}

/* The heap, static data, the stack, and a limit on file sizes. */
static void test_kinds(void)
{
	static unsigned char data[16 * PAGE];
	unsigned char stack[4 * PAGE];
	unsigned char *heap = malloc(100000), *large = malloc(1 << 22);
	struct rlimit limit = {1 << 20, 1 << 20};
	struct mem_plan plan[5];

	fill(heap, 100000, 7);
	fill(large, 1 << 22, 8);
	fill(stack, sizeof(stack), 9);
	fill(data, sizeof(data), 10);
	CHECK(mem_plan_make(&plan[0], heap, 100000, true, true) == 0);
	CHECK(mem_plan_make(&plan[1], large, 1 << 22, true, true) == 0);
	CHECK(mem_plan_make(&plan[2], stack, sizeof(stack), true, true) == 0);
	CHECK(mapped_bytes(&plan[2]) == 0);
	CHECK(mem_plan_make(&plan[3], data, sizeof(data), true, true) == 0);
	CHECK(mapped_bytes(&plan[1]) > 0);
	check_plan(&plan[0], heap, 100000);
	check_plan(&plan[1], large, 1 << 22);
	CHECK(is_filled(heap, 100000, 7) && is_filled(large, 1 << 22, 8));
	CHECK(is_filled(stack, sizeof(stack), 9) && is_filled(data, sizeof(data), 10));
	heap = realloc(heap, 300000);
	CHECK(heap && is_filled(heap, 100000, 7));
	for (int i = 0; i < 4; i++)
		mem_plan_release(&plan[i]);
	CHECK(is_filled(heap, 100000, 7) && is_filled(data, sizeof(data), 10));
	free(heap);
	free(large);
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(mem_plan_make(&plan[4], data, sizeof(data), true, true) == 0);
	mem_plan_release(&plan[4]);
	CHECK(is_filled(data, sizeof(data), 10));
}

/* The first file that is made under a limit is shorter than it, and never raises SIGXFSZ. */
static void test_limit(void)
{
	unsigned char *at = map_pages(64);
	struct rlimit limit = {16 * PAGE, 16 * PAGE};
	struct mem_plan small, large;

	fill(at, 64 * PAGE, 11);
	CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK(mem_plan_make(&large, at, 64 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&large) == 0);
	mem_plan_release(&large);
	CHECK(mem_plan_make(&small, at, 8 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&small) == 8 * PAGE);
	mem_plan_release(&small);
	CHECK(is_filled(at, 64 * PAGE, 11));
}

struct count_areas {
	uintptr_t start;
	uintptr_t end;
	int count;
};

static bool count_visit(const struct maps_area *area, void *arg)
{
	struct count_areas *in = arg;

	in->count += area->start < in->end && area->end > in->start;
	return true;
}

/* Pages that were registered one by one are one mapping again: mappings are a scarce resource. */
static void test_mappings(void)
{
	unsigned char *at = map_pages(256);
	struct count_areas in = {(uintptr_t)at, (uintptr_t)at + 256 * PAGE, 0};
	struct mem_plan plan;

	fill(at, 256 * PAGE, 12);
	for (size_t i = 0; i < 256; i++) {
		size_t page = i * 7 % 256;

		CHECK(mem_plan_make(&plan, at + page * PAGE, PAGE, true, true) == 0);
		CHECK(mapped_bytes(&plan) == PAGE);
		at[page * PAGE] ^= 0xff;
		mem_plan_release(&plan);
		at[page * PAGE] ^= 0xff;
	}
	CHECK(maps_walk(count_visit, &in) == 0 && in.count <= 2);
	CHECK(is_filled(at, 256 * PAGE, 12));
}

/* Moved memory in a thousand mappings leaves the process those that it needs for itself. */
static void test_many(void)
{
	unsigned char *at = map_pages(1100), *more = map_pages(8);
	struct mem_plan plan, next;

	fill(more, 8 * PAGE, 13);
	CHECK(mem_plan_make(&plan, at, 1100 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&plan) == 1100 * PAGE);
	for (size_t i = 0; i < 1100; i += 2)
		CHECK(mprotect(at + i * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mem_plan_make(&next, more, 8 * PAGE, true, true) == 0);
	check_plan(&next, more, 8 * PAGE);
	CHECK(mapped_bytes(&next) == 0);
	mem_plan_release(&next);
	CHECK(mprotect(at, 1100 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(mem_plan_make(&next, more, 8 * PAGE, true, true) == 0);
	CHECK(mapped_bytes(&next) == 8 * PAGE);
	mem_plan_release(&next);
	mem_plan_release(&plan);
	CHECK(is_filled(more, 8 * PAGE, 13));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"move", test_move}, {"release", test_release}, {"fault", test_fault},
		{"scattered", test_scattered}, {"in_use", test_in_use}, {"reuse", test_reuse},
		{"threads", test_threads}, {"sparse", test_sparse},
		{"kinds", test_kinds}, {"limit", test_limit},
		{"first_thread_ended", test_first_thread_ended},
		{"mappings", test_mappings}, {"many", test_many},
	};

	CHECK(argc == 2);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no case %s\n", argv[1]);
	return 2;
}
