/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl.h"

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rnic_device *device_table; /* guarded by device_lock, as are the counts in it */

void device_hold(struct rnic_device *device)
{
	pthread_mutex_lock(&device_lock);
	device->refs++;
	pthread_mutex_unlock(&device_lock);
}

void device_drop(struct rnic_device *device)
{
	struct rnic_device **at;

	pthread_mutex_lock(&device_lock);
	if (--device->refs == 0) {
		for (at = &device_table; *at != device; at = &(*at)->next)
			;
		*at = device->next;
		free(device);
	}
	pthread_mutex_unlock(&device_lock);
}

static void device_fill(struct rnic_device *device, const struct rnic_device_info *info)
{
	struct ibv_device *base = &device->base;

	snprintf(base->name, sizeof(base->name), "%.63s", (const char *)info->name);
	snprintf(base->dev_name, sizeof(base->dev_name), "uverbs-%.56s", base->name);
	snprintf(base->dev_path, sizeof(base->dev_path), "/sys/class/infiniband_verbs/%s",
		 base->dev_name);
	snprintf(base->ibdev_path, sizeof(base->ibdev_path), "/sys/class/infiniband/%s",
		 base->name);
	base->node_type = (enum ibv_node_type)info->node_type;
	base->transport_type = (enum ibv_transport_type)info->transport;
	device->guid = info->node_guid;
	device->index = info->index;
}

/*
 * Returns a held device. One that the application still has is returned again, so that pointers
 * from two lists compare equal.
 */
static struct rnic_device *device_find_or_add(const struct rnic_device_info *info)
{
	struct rnic_device *device;

	pthread_mutex_lock(&device_lock);
	for (device = device_table; device; device = device->next) {
		if (device->guid == info->node_guid &&
		    !strncmp(device->base.name, (const char *)info->name, sizeof(info->name) - 1))
			break;
	}
	if (!device) {
		device = calloc(1, sizeof(*device));
		if (device) {
			device_fill(device, info);
			device->next = device_table;
			device_table = device;
		}
	}
	if (device)
		device->refs++;
	pthread_mutex_unlock(&device_lock);
	return device;
}

/* Asks the NIC for its devices. Returns their number; without a NIC there are none. */
static size_t device_query(struct rnic_device_info *infos, size_t max)
{
	struct ctl_conn conn;
	struct ctl_call call = {.op = RNIC_OP_LIST_DEVICES, .rsp_any_length = true};
	int error = ctl_conn_open(&conn, NULL);

	if (error)
		return 0;
	error = ctl_conn_query(&conn, &call, infos, max * sizeof(*infos));
	ctl_conn_close(&conn);
	return error ? 0 : call.rsp_got / sizeof(*infos);
}

/* The device that the user has chosen comes first: most programs take the first. */
static void device_prefer(struct rnic_device_info *infos, size_t count)
{
	const char *name = getenv("RNIC_DEVICE");

	for (size_t i = 0; name && i < count; i++) {
		struct rnic_device_info chosen = infos[i];

		if (strncmp((const char *)chosen.name, name, sizeof(chosen.name)))
			continue;
		memmove(infos + 1, infos, i * sizeof(*infos));
		infos[0] = chosen;
		break;
	}
}

VERBS_API struct ibv_device **ibv_get_device_list(int *num_devices)
{
	enum { max = RNIC_MAX_MESSAGE / sizeof(struct rnic_device_info) };
	struct rnic_device_info *infos = malloc(max * sizeof(*infos));
	size_t found = infos ? device_query(infos, max) : 0;
	struct ibv_device **list = calloc(found + 1, sizeof(*list));
	size_t listed = 0;

	if (infos)
		device_prefer(infos, found);
	for (size_t i = 0; list && i < found; i++) {
		struct rnic_device *device = device_find_or_add(&infos[i]);

		if (device)
			list[listed++] = &device->base;
	}
	free(infos);
	if (num_devices)
		*num_devices = (int)listed;
	if (!list)
		errno = ENOMEM;
	return list;
}

VERBS_API void ibv_free_device_list(struct ibv_device **list)
{
	if (!list)
		return;
	for (size_t i = 0; list[i]; i++)
		device_drop(device_of(list[i]));
	free(list);
}

VERBS_API const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

VERBS_API __be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(device_of(device)->guid);
}

VERBS_API int ibv_get_device_index(struct ibv_device *device)
{
	return (int)device_of(device)->index;
}
