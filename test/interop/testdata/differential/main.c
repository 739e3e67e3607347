/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays a random program of verbs on the first device and prints what comes of it, in words that
 * do not depend on the device: two devices that do the same print the same.
 *
 *	differential SEED STEPS SETTLE
 *
 * SETTLE is for how many milliseconds nothing may happen until a step is over.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "world.h"

struct world world;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (!list || !list[0])
		die("no device");
	world.context = ibv_open_device(list[0]);
	if (!world.context)
		die("ibv_open_device");
	for (world.gid_index = 0; world.gid_index < 16; world.gid_index++) {
		if (ibv_query_gid(world.context, 1, world.gid_index, &world.gid) == 0 &&
		    !memcmp(world.gid.raw, mapped, sizeof(mapped)))
			return;
	}
	die("no GID of an IPv4 address");
}

static void map_areas(void)
{
	for (int i = 0; i < AREAS; i++) {
		world.areas[i] = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (world.areas[i] == MAP_FAILED)
			die("mmap");
	}
}

/*
 * A step is a safe or a risky one. In a safe one everything is right; in a risky one something may
 * be wrong, and afterwards all queue pairs begin anew and windows are gone, so that devices that
 * differ in one step are the same in the next.
 */
static void play(void)
{
	static const struct {
		void (*step)(void);
		unsigned int weight;
	} steps[] = {
		{step_send, 60}, {step_qp_state, 12}, {step_qp_modify, 12}, {step_qp_lifetime, 6},
		{step_qp_query, 4}, {step_mr, 6}, {step_mw, 10}, {step_srq, 5}, {step_ah, 4},
		{step_pd, 2}, {step_cq, 3},
	};
	unsigned int total = 0, drawn;

	world.risky = chance_percent(45);
	observe_arm();
	for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		total += steps[i].weight;
	drawn = chance_below(total);
	for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (drawn < steps[i].weight) {
			steps[i].step();
			return;
		}
		drawn -= steps[i].weight;
	}
}

int main(int argc, char **argv)
{
	uint64_t seed;
	unsigned int steps;

	if (argc != 4) {
		fprintf(stderr, "usage: differential SEED STEPS SETTLE\n");
		return 2;
	}
	seed = strtoull(argv[1], NULL, 10);
	steps = (unsigned int)strtoul(argv[2], NULL, 10);
	world.settle_ms = (int)strtoul(argv[3], NULL, 10);
	open_device();
	world.channel = ibv_create_comp_channel(world.context);
	if (!world.channel)
		die("ibv_create_comp_channel");
	map_areas();
	chance_begin(seed, 0);
	world.solicited = chance_percent(30);
	objects_begin();
	observe_begin();
	queue_pairs_begin();
	for (world.step = 1; world.step <= steps; world.step++) {
		chance_begin(seed, world.step);
		play();
		observe();
		if (world.risky) {
			queue_pairs_heal();
			objects_heal();
			observe();
		}
	}
	tell("end");
	return 0;
}
