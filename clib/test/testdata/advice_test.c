/* SPDX-License-Identifier: Apache-2.0 */
/* What programs may do with pages that have moved, "advice_test CASE". */
#include <linux/aio_abi.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "memory.h"

static uint64_t file_bytes(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Deregistered with a second thread, pages stay in the file; given up, they are zeros, and free. */
static void check_dropped(int advice)
{
	unsigned char *at = map_pages(64);
	struct mem_plan plan;

	memset(at, 7, 64 * PAGE);
	plan_moved(&plan, at, 64 * PAGE);
	start_thread();
	mem_plan_release(&plan);
	CHECK(is_shared(at) && is_all(at, 64 * PAGE, 7));
	CHECK(madvise(at, 64 * PAGE, advice) == 0);
	CHECK(is_all(at, 64 * PAGE, 0) && !is_shared(at) && file_bytes(plan.fd) == 0);
	memset(at, 8, 64 * PAGE);
	CHECK(is_all(at, 64 * PAGE, 8));
}

static void test_dontneed_threads(void)
{
	check_dropped(MADV_DONTNEED);
}

static void test_free(void)
{
	check_dropped(MADV_FREE);
}

static void test_dontneed(void)
{
	unsigned char *at = map_pages(8);
	struct mem_plan plan;

	memset(at, 7, 8 * PAGE);
	plan_moved(&plan, at, 8 * PAGE);
	mem_plan_release(&plan);
	CHECK(madvise(at, 8 * PAGE, MADV_DONTNEED) == 0 && is_all(at, 8 * PAGE, 0));
	CHECK(madvise(at + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
}

/* The program sees zeros and then what it writes; the region goes on with the pages it had. */
static void test_dontneed_registered(void)
{
	unsigned char *at = map_pages(8);
	struct mem_plan plan, again;

	memset(at, 7, 8 * PAGE);
	plan_moved(&plan, at, 8 * PAGE);
	CHECK(madvise(at, 8 * PAGE, MADV_DONTNEED) == 0 && is_all(at, 8 * PAGE, 0));
	memset(at, 9, 8 * PAGE);
	CHECK(nic_read(&plan, 100) == 7);
	nic_write(&plan, 100, 1);
	CHECK(is_all(at, 8 * PAGE, 9));
	plan_moved(&again, at, 8 * PAGE);
	CHECK(nic_read(&again, 100) == 9 && nic_read(&plan, 100) == 1);
	nic_write(&again, 100, 2);
	CHECK(at[100] == 2);
	mem_plan_release(&plan);
	CHECK(at[100] == 2 && is_shared(at));
	mem_plan_release(&again);
	CHECK(at[100] == 2 && !is_shared(at));
}

/* A range of several kinds of memory, with several rights, some of it moved. */
static void test_dontneed_parts(void)
{
	unsigned char *at = map_pages(10);
	struct mem_plan plan;

	memset(at, 7, 10 * PAGE);
	plan_moved(&plan, at + 2 * PAGE, 6 * PAGE);
	CHECK(mprotect(at + 3 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(at + 4 * PAGE, PAGE, PROT_NONE) == 0);
	start_thread();
	CHECK(madvise(at + PAGE, 6 * PAGE, MADV_DONTNEED) == 0);
	CHECK(is_all(at, PAGE, 7) && is_all(at + PAGE, 3 * PAGE, 0));
	CHECK(is_all(at + 5 * PAGE, 2 * PAGE, 0) && is_all(at + 7 * PAGE, 3 * PAGE, 7));
	CHECK(!area_of(at + 3 * PAGE).writable && !area_of(at + 4 * PAGE).readable);
	CHECK(is_shared(at + 7 * PAGE) && !is_shared(at + 6 * PAGE));
	CHECK(munmap(at + 3 * PAGE, PAGE) == 0);
	CHECK(madvise(at, 10 * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
	CHECK(is_all(at, 3 * PAGE, 0) && is_all(at + 7 * PAGE, 3 * PAGE, 0));
	mem_plan_release(&plan);
}

static void test_remove(void)
{
	unsigned char *at = map_pages(4);
	struct mem_plan plan;

	memset(at, 7, 4 * PAGE);
	plan_moved(&plan, at, 4 * PAGE);
	CHECK(madvise(at, 4 * PAGE, MADV_REMOVE) == -1 && errno == EINVAL);
	CHECK(is_all(at, 4 * PAGE, 7));
	mem_plan_release(&plan);
}

/* Locked memory does not move, and is not given up once it has moved. */
static void test_locked(void)
{
	unsigned char *at = map_pages(4);
	struct mem_plan plan;

	memset(at, 7, 4 * PAGE);
	plan_moved(&plan, at, 2 * PAGE);
	CHECK(mlock(at, 4 * PAGE) == 0);
	CHECK(madvise(at, 2 * PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
	CHECK(madvise(at, 2 * PAGE, MADV_FREE) == -1 && errno == EINVAL);
	CHECK(is_all(at, 4 * PAGE, 7));
	mem_plan_release(&plan);
	CHECK(mem_plan_make(&plan, at + 2 * PAGE, 2 * PAGE, true, MEM_MOVE) == 0);
	CHECK(plan.segments[0].fd < 0 && !is_shared(at + 2 * PAGE));
	mem_plan_release(&plan);
}

/* Memory that grows gets zeros, not what comes next in the file. */
static void test_remap_grow(void)
{
	unsigned char *at = map_pages(64), *other = map_pages(16), *grown;
	struct mem_plan plan, next;

	memset(at, 7, 64 * PAGE);
	memset(other, 8, 16 * PAGE);
	CHECK(munmap(at + 16 * PAGE, 48 * PAGE) == 0);
	plan_moved(&plan, at, 16 * PAGE);
	plan_moved(&next, other, 16 * PAGE);
	grown = mremap(at, 16 * PAGE, 20 * PAGE, 0);
	CHECK(grown == at && is_all(at, 16 * PAGE, 7) && is_all(at + 16 * PAGE, 4 * PAGE, 0));
	CHECK(nic_read(&plan, 5) == 7);
	CHECK(mmap(at + 20 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) != MAP_FAILED);
	CHECK(mremap(at, 20 * PAGE, 32 * PAGE, 0) == MAP_FAILED && errno == ENOMEM);
	grown = mremap(at, 20 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
	CHECK(grown != MAP_FAILED && grown != at);
	CHECK(is_all(grown, 16 * PAGE, 7) && is_all(grown + 16 * PAGE, 16 * PAGE, 0));
	nic_write(&plan, 3, 1);
	CHECK(grown[3] == 1);
	memset(grown, 9, 32 * PAGE);
	CHECK(is_all(other, 16 * PAGE, 8));
	mem_plan_release(&plan);
	CHECK(is_all(grown, 32 * PAGE, 9) && !is_shared(grown));
	CHECK(mremap(grown, 32 * PAGE, 2 * PAGE, 0) == grown && is_all(grown, 2 * PAGE, 9));
	mem_plan_release(&next);
}

static void test_remap_move(void)
{
	unsigned char *at = map_pages(16), *to = map_pages(16), *room = map_pages(16);
	struct mem_plan plan, rest;

	memset(at, 7, 16 * PAGE);
	memset(to, 8, 16 * PAGE);
	plan_moved(&plan, at + 2 * PAGE, 6 * PAGE);
	plan_moved(&rest, at + 9 * PAGE, 3 * PAGE);
	start_thread();
	CHECK(mremap(at, 16 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(is_all(to, 10 * PAGE, 7) && is_all(to + 10 * PAGE, 6 * PAGE, 8));
	nic_write(&plan, 0, 1);
	CHECK(to[2 * PAGE] == 1);
	CHECK(mremap(to, 10 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
		     room) == room);
	CHECK(is_all(to, 10 * PAGE, 0) && !is_shared(to + 2 * PAGE));
	CHECK(room[2 * PAGE] == 1 && room[0] == 7 && room[9 * PAGE] == 7);
	mem_plan_release(&plan);
	CHECK(madvise(room, 10 * PAGE, MADV_DONTNEED) == 0 && is_all(room, 10 * PAGE, 0));
	mem_plan_release(&rest);
}

/* What private memory refuses is refused. */
static void test_remap_odd(void)
{
	unsigned char *at = map_pages(8);
	struct mem_plan plan;

	plan_moved(&plan, at, 4 * PAGE);
	CHECK(mremap(at, 0, 4 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(at + 1, PAGE, 4 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(at, 4 * PAGE, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(at, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE) ==
		      MAP_FAILED && errno == EINVAL);
	CHECK(munmap(at + 5 * PAGE, PAGE) == 0);
	CHECK(mremap(at, 8 * PAGE, 9 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	mem_plan_release(&plan);
}

/* A call that is not ours, as the C library's own allocator makes, does not show the file. */
static void test_remap_raw(void)
{
	unsigned char *at = map_pages(64);
	struct mem_plan plan;
	void *got;

	plan_moved(&plan, at, 64 * PAGE);
	got = (void *)syscall(SYS_mremap, at, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);

	CHECK(got == MAP_FAILED && errno == EFAULT);
	mem_plan_release(&plan);
}

/* What the program has said of memory still holds. */
static void test_given_advice(void)
{
	unsigned char *at = map_pages(16);
	struct mem_plan plan;
	pid_t pid;

	memset(at, 7, 16 * PAGE);
	CHECK(madvise(at, 2 * PAGE, MADV_DONTFORK) == 0);
	CHECK(madvise(at + 2 * PAGE, 2 * PAGE, MADV_WIPEONFORK) == 0);
	CHECK(mem_plan_make(&plan, at, 4 * PAGE, true, MEM_MOVE) == 0 && plan.segments[0].fd < 0);
	mem_plan_release(&plan);
	CHECK(area_of(at).flags & MAPS_DONTFORK);
	CHECK(area_of(at + 2 * PAGE).flags & MAPS_WIPEONFORK);
	plan_moved(&plan, at + 4 * PAGE, 2 * PAGE);
	CHECK(madvise(at + 4 * PAGE, 2 * PAGE, MADV_DONTDUMP) == 0);
	CHECK(area_of(at + 4 * PAGE).flags & MAPS_DONTDUMP);
	CHECK(madvise(at + 4 * PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(area_of(at + 4 * PAGE).flags & MAPS_DONTDUMP && !is_shared(at + 4 * PAGE));
	mem_plan_release(&plan);
	CHECK(area_of(at + 5 * PAGE).flags & MAPS_DONTDUMP && !is_shared(at + 5 * PAGE));
	plan_moved(&plan, at + 8 * PAGE, 2 * PAGE);
	CHECK(madvise(at + 8 * PAGE, 2 * PAGE, MADV_DONTFORK) == 0);
	pid = fork();
	if (pid == 0) /* nothing is mapped there */
		_exit(msync(at + 8 * PAGE, PAGE, MS_ASYNC) == -1 && errno == ENOMEM ? 0 : 1);
	expect_child(pid);
	mem_plan_release(&plan);
}

/* Asynchronous file I/O of the kernel knows pages, not addresses: nothing moves under it. */
static void test_pinned(void)
{
	unsigned char *at = map_pages(4);
	aio_context_t context = 0;
	struct mem_plan plan;

	CHECK(syscall(SYS_io_setup, 4, &context) == 0);
	CHECK(mem_plan_make(&plan, at, 4 * PAGE, true, MEM_MOVE) == 0);
	CHECK(plan.segments[0].fd < 0 && !is_shared(at));
	mem_plan_release(&plan);
	CHECK(syscall(SYS_io_destroy, context) == 0);
	plan_moved(&plan, at, 4 * PAGE);
	mem_plan_release(&plan);
}

/* Lets a child look until its parent has written. */
static void wait_for(int fd)
{
	char byte;

	CHECK(read(fd, &byte, 1) == 1);
}

static void check_fork(size_t pages)
{
	unsigned char *at = map_pages(pages);
	struct mem_plan plan, mine;
	int go[2];
	pid_t pid;

	CHECK(pipe(go) == 0);
	memset(at, 7, pages * PAGE);
	plan_moved(&plan, at, pages * PAGE);
	nic_write(&plan, PAGE, 6);
	pid = fork();
	if (pid == 0) {
		wait_for(go[0]);
		CHECK(!is_shared(at) && at[PAGE] == 6);
		at[PAGE] = 7;
		CHECK(is_all(at, pages * PAGE, 7));
		memset(at, 0xee, pages * PAGE);
		mem_plan_release(&plan); /* of the parent, in name only */
		plan_moved(&mine, at, pages * PAGE);
		mem_plan_release(&mine);
		CHECK(is_all(at, pages * PAGE, 0xee));
		_exit(0);
	}
	CHECK(at[PAGE] == 6 && is_shared(at));
	memset(at, 9, pages * PAGE);
	nic_write(&plan, 0, 10);
	CHECK(write(go[1], "", 1) == 1);
	expect_child(pid);
	CHECK(at[0] == 10 && is_all(at + 1, pages * PAGE - 1, 9));
	mem_plan_release(&plan);
	CHECK(munmap(at, pages * PAGE) == 0);
}

/* A child sees what was there at fork, and what either writes later stays its own. */
static void test_fork(void)
{
	check_fork(8);
}

static void test_fork_large(void)
{
	check_fork((80u << 20) / PAGE);
}

/* A child of a child, which has moved memory of its own. */
static void test_fork_nested(void)
{
	unsigned char *at = map_pages(8);
	struct mem_plan plan, mine;
	pid_t pid, second;

	memset(at, 1, 8 * PAGE);
	plan_moved(&plan, at, 8 * PAGE);
	pid = fork();
	if (pid == 0) {
		memset(at, 2, 8 * PAGE);
		plan_moved(&mine, at, 4 * PAGE);
		second = fork();
		if (second == 0) {
			usleep(50000);
			_exit(is_all(at, 8 * PAGE, 2) ? 0 : 1);
		}
		memset(at, 3, 8 * PAGE);
		expect_child(second);
		mem_plan_release(&mine);
		_exit(is_all(at, 8 * PAGE, 3) ? 0 : 1);
	}
	memset(at, 4, 8 * PAGE);
	expect_child(pid);
	CHECK(is_all(at, 8 * PAGE, 4));
	mem_plan_release(&plan);
}

/* Another thread changes what is mapped after the copies were made. */
static void test_fork_changed(void)
{
	unsigned char *at = map_pages(8), *late = map_pages(4);
	struct mem_plan plan, second;
	pid_t pid;

	memset(at, 1, 8 * PAGE);
	memset(late, 5, 4 * PAGE);
	plan_moved(&plan, at, 8 * PAGE);
	mem_fork_prepare();
	CHECK(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == at);
	CHECK(mprotect(at + 4 * PAGE, PAGE, PROT_READ) == 0);
	memset(at, 2, 2 * PAGE);
	plan_moved(&second, late, 4 * PAGE);
	pid = _Fork();
	if (pid == 0) {
		mem_fork_child();
		CHECK(is_all(at, 2 * PAGE, 2) && is_all(at + 2 * PAGE, 6 * PAGE, 1));
		CHECK(is_all(late, 4 * PAGE, 5) && !is_shared(late) && !is_shared(at + 7 * PAGE));
		_exit(0);
	}
	mem_fork_parent();
	expect_child(pid);
	CHECK(is_shared(at + 2 * PAGE) && is_shared(late));
	mem_plan_release(&second);
	mem_plan_release(&plan);
}

static void *register_for_ever(void *arg)
{
	unsigned char *at = map_pages(64);

	setenv("RNIC_MAPPED", "always", 1);
	for (;;) {
		struct mem_plan plan;

		CHECK(mem_plan_make(&plan, at, 64 * PAGE, true, MEM_MOVE) == 0);
		*(volatile int *)arg = 1;
		at[0]++;
		mem_plan_release(&plan);
		CHECK(madvise(at, 32 * PAGE, MADV_DONTNEED) == 0);
	}
	return NULL;
}

/* Other threads register and give up while this one forks. */
static void test_fork_threads(void)
{
	unsigned char *at = map_pages(256);
	struct mem_plan plan;
	pthread_t thread;
	volatile int started = 0;

	memset(at, 1, 256 * PAGE);
	plan_moved(&plan, at, 256 * PAGE);
	CHECK(pthread_create(&thread, NULL, register_for_ever, (void *)&started) == 0);
	while (!started)
		usleep(1000);
	for (int i = 0; i < 50; i++) {
		pid_t pid;

		memset(at, i, 256 * PAGE);
		pid = fork();
		if (pid == 0) {
			usleep(1000);
			_exit(is_all(at, 256 * PAGE, (unsigned char)i) ? 0 : 1);
		}
		memset(at, 0xff, 256 * PAGE);
		expect_child(pid);
	}
	mem_plan_release(&plan);
	_exit(0);
}

/* Buffers of our own libraries cost a fork nothing, and children can still look at them. */
static void test_fork_unshared(void)
{
	unsigned char *at = map_pages(64);
	struct mem_plan plan;
	pid_t pid;

	memset(at, 1, 64 * PAGE);
	CHECK(mem_plan_make(&plan, at, 64 * PAGE, true, MEM_MOVE_UNSHARED) == 0 && is_shared(at));
	pid = fork();
	if (pid == 0) {
		CHECK(!is_shared(at) && is_all(at, 64 * PAGE, 1) && area_of(at).inode);
		memset(at, 2, 64 * PAGE);
		_exit(0);
	}
	expect_child(pid);
	CHECK(is_all(at, 64 * PAGE, 1));
	mem_plan_release(&plan);
}

/* Without memory for a copy the child has none of it, and can still become another program. */
static void test_fork_no_memory(void)
{
	const size_t length = (size_t)512 << 20;
	unsigned char *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct rlimit limit = {(rlim_t)768 << 20, (rlim_t)768 << 20};
	struct mem_plan plan;
	pid_t pid;

	CHECK(at != MAP_FAILED);
	at[5] = 1;
	plan_moved(&plan, at, length);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(!is_shared(at) && !area_of(at).readable);
		execlp("true", "true", NULL);
		_exit(1);
	}
	expect_child(pid);
	at[5]++;
	CHECK(nic_read(&plan, 5) == 2);
	mem_plan_release(&plan);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"dontneed", test_dontneed},
		{"dontneed_registered", test_dontneed_registered},
		{"dontneed_threads", test_dontneed_threads},
		{"dontneed_parts", test_dontneed_parts}, {"free", test_free},
		{"remove", test_remove}, {"locked", test_locked},
		{"remap_grow", test_remap_grow}, {"remap_move", test_remap_move},
		{"remap_odd", test_remap_odd}, {"remap_raw", test_remap_raw},
		{"given_advice", test_given_advice}, {"pinned", test_pinned},
		{"fork", test_fork}, {"fork_large", test_fork_large},
		{"fork_nested", test_fork_nested}, {"fork_changed", test_fork_changed},
		{"fork_threads", test_fork_threads},
		{"fork_unshared", test_fork_unshared}, {"fork_no_memory", test_fork_no_memory},
	};

	CHECK(argc == 2);
	CHECK(pthread_atfork(mem_fork_prepare, mem_fork_parent, mem_fork_child) == 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	}
	fprintf(stderr, "no case %s\n", argv[1]);
	return 2;
}
