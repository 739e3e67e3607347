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

static void play(void)
{
	static const struct {
		void (*step)(void);
		unsigned int weight;
	} steps[] = {
		{step_send, 40}, {step_receive, 22}, {step_qp_connect, 5}, {step_qp_modify, 6},
		{step_qp_lifetime, 5}, {step_qp_query, 2}, {step_mr, 5}, {step_mw, 5},
		{step_srq, 3}, {step_ah, 3}, {step_pd, 1}, {step_cq, 2},
	};
	unsigned int total = 0, drawn;

	if (queue_pairs_are_broken() && chance_percent(70)) {
		step_qp_connect();
		return;
	}
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
	map_areas();
	chance_begin(seed, 0);
	objects_begin();
	observe_begin();
	queue_pairs_begin();
	for (world.step = 1; world.step <= steps; world.step++) {
		chance_begin(seed, world.step);
		play();
		observe();
	}
	tell("end");
	return 0;
}
