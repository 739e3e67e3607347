/* SPDX-License-Identifier: Apache-2.0 */
/* For an allocator that gives freed memory back at once, and knows then that it is zeros. */
#include "setup.h"

#define BLOCKS 20
#define BLOCK_BYTES ((size_t)4 << 20)

static struct ibv_pd *pd;

static void *wait_for_ever(void *arg)
{
	(void)arg;
	pause();
	return NULL;
}

static void start_thread(void *(*run)(void *))
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
}

/* Uses blocks for a region each, frees them, and wants zeroed ones. */
static void check_zeros(bool thread, bool dereg)
{
	unsigned char *block[BLOCKS];
	struct ibv_mr *mr[BLOCKS];

	pd = ibv_alloc_pd(open_device());
	CHECK(pd);
	for (int i = 0; i < BLOCKS; i++) {
		block[i] = malloc(BLOCK_BYTES);
		memset(block[i], 7, BLOCK_BYTES);
		mr[i] = ibv_reg_mr(pd, block[i], BLOCK_BYTES, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr[i]);
	}
	if (thread)
		start_thread(wait_for_ever);
	for (int i = 0; i < BLOCKS; i++) {
		CHECK(!dereg || ibv_dereg_mr(mr[i]) == 0);
		free(block[i]);
	}
	for (int i = 0; i < BLOCKS; i++) {
		unsigned char *zeros = calloc(1, BLOCK_BYTES);

		for (size_t at = 0; at < BLOCK_BYTES; at += 512)
			CHECK(zeros[at] == 0);
		memset(zeros, 8, BLOCK_BYTES);
	}
}

static void test_dereg(void)
{
	check_zeros(false, true);
}

static void test_dereg_threads(void)
{
	check_zeros(true, true);
}

static void test_registered(void)
{
	check_zeros(false, false);
}

static void *allocate_for_ever(void *arg)
{
	(void)arg;
	for (;;) {
		void *block = malloc(BLOCK_BYTES);

		memset(block, 9, 4096);
		free(block);
	}
	return NULL;
}

/* The allocator locks itself around fork, and calls us while it is locked: no deadlock. */
static void test_fork(void)
{
	check_zeros(false, false);
	for (int i = 0; i < 3; i++)
		start_thread(allocate_for_ever);
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			_exit(malloc(BLOCK_BYTES) ? 0 : 1);
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{"dereg", test_dereg},
		{"dereg_threads", test_dereg_threads},
		{"registered", test_registered},
		{"fork", test_fork},
	};

	return RUN_CASES(cases, argc, argv);
}
