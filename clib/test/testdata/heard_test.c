/* SPDX-License-Identifier: Apache-2.0 */
/* Registers memory and prints whether it has moved. BY_DLOPEN: the library is found at run time. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include "check.h"
#include "maps.h"

#ifdef BY_DLOPEN
#ifndef HOW
#define HOW RTLD_NOW
#endif
static void *library;
#define CALL(name) ((__typeof__(&name))dlsym(library, #name))
#else
#define CALL(name) (&name)
#endif

#undef ibv_reg_mr

static bool shared_visit(const struct maps_area *area, void *arg)
{
	const uintptr_t at = *(uintptr_t *)arg;

	if (at < area->start || at >= area->end)
		return true;
	puts(area->shared ? "moved" : "private");
	return false;
}

int main(void)
{
	const size_t length = 1 << 20;
	struct ibv_device **list;
	struct ibv_context *context;
	uintptr_t at;
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	CHECK(memory != MAP_FAILED);
#ifdef BY_DLOPEN
	library = dlopen("libibverbs.so.1", HOW);
	CHECK(library);
#endif
	list = CALL(ibv_get_device_list)(NULL);
	CHECK(list && list[0]);
	context = CALL(ibv_open_device)(list[0]);
	CHECK(context);
	CHECK(CALL(ibv_reg_mr)(CALL(ibv_alloc_pd)(context), memory, length,
			       IBV_ACCESS_LOCAL_WRITE));
	at = (uintptr_t)memory;
	CHECK(maps_walk(shared_visit, &at) == 0);
	return 0;
}
