/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: splitmix64. Each step has its own, whatever the steps before it drew. */
#include "world.h"

static uint64_t chance_state;

static uint64_t chance_next(void)
{
	uint64_t z = chance_state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

void chance_begin(uint64_t seed, unsigned int step)
{
	chance_state = seed * 1000003 + step;
	chance_state = chance_next();
}

unsigned int chance_below(unsigned int bound)
{
	return bound ? chance_next() % bound : 0;
}

bool chance_percent(unsigned int percent)
{
	return chance_below(100) < percent;
}

unsigned int chance_of(const unsigned int *choices, unsigned int count)
{
	return choices[chance_below(count)];
}
