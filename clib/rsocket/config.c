/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults, and the files with which an administrator changes them. */
#include <limits.h>
#include <stdio.h>

#include "rs.h"

#define CONFIG_DIR "/etc/rdma/rsocket/"

static struct rs_config config = {
	.opt = {
		.send_bytes = 1 << 17,
		.recv_bytes = 1 << 17,
		.send_wrs = 384,
		.recv_wrs = 384,
		.inline_bytes = 64,
		.keep_idle = 7200,
	},
	.polling_us = 10,
};

/* Each file has one number. What is absent or senseless changes nothing. */
static void config_read(const char *path, uint32_t *value, uint32_t min, uint32_t max)
{
	FILE *file = fopen(path, "re");
	unsigned long number;

	if (!file)
		return;
	if (fscanf(file, "%lu", &number) == 1 && number >= min && number <= max)
		*value = (uint32_t)number;
	fclose(file);
}

static void config_load(void)
{
	uint32_t idle = (uint32_t)config.opt.keep_idle;

	config_read(CONFIG_DIR "polling_time", &config.polling_us, 0, INT_MAX);
	config_read(CONFIG_DIR "inline_default", &config.opt.inline_bytes, 0, UINT16_MAX);
	config_read(CONFIG_DIR "sqsize_default", &config.opt.send_wrs, 1, WIRE_QUEUE_MAX);
	config_read(CONFIG_DIR "rqsize_default", &config.opt.recv_wrs, 1, WIRE_QUEUE_MAX);
	config_read(CONFIG_DIR "mem_default", &config.opt.recv_bytes, 1, INT_MAX);
	config_read(CONFIG_DIR "wmem_default", &config.opt.send_bytes, 1, INT_MAX);
	config_read(CONFIG_DIR "iomap_size", &config.opt.iomap_entries, 0, UINT16_MAX);
	config_read("/proc/sys/net/ipv4/tcp_keepalive_time", &idle, 1, INT_MAX);
	config.opt.keep_idle = (int)idle;
	config.opt.iomap_entries = wire_iomap_entries(config.opt.iomap_entries);
}

const struct rs_config *config_get(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, config_load);
	return &config;
}
