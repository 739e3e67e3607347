/* SPDX-License-Identifier: Apache-2.0 */
/* The table of devices that the application has seen. */
#ifndef RNIC_DEVICE_H
#define RNIC_DEVICE_H

#include "rnic.h"

static inline struct rnic_device *device_of(struct ibv_device *device)
{
	return (struct rnic_device *)device;
}

/* A context holds its device. */
void device_hold(struct rnic_device *device);
void device_drop(struct rnic_device *device);

#endif
