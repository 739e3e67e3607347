/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the NIC, the devices opened on it, and what a fork does to both. */
#include <fcntl.h>
#include <unistd.h>

#include "cm.h"

const char rnic_library[] = "librdmacm";

pthread_mutex_t cm_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t session_open_lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by cm_lock; the newest first, and only that one may be alive. */
static struct cm_session *session_list;

static int session_open(struct cm_session **out)
{
	struct cm_session *session = calloc(1, sizeof(*session));
	struct ctl_call call = {.op = RNIC_OP_OPEN_CM};
	struct rnic_handle_msg rsp;
	int error;

	if (!session)
		return ENOMEM;
	error = ctl_conn_open(&session->ctl, NULL);
	if (!error) {
		error = ctl_conn_query(&session->ctl, &call, &rsp, sizeof(rsp));
		if (error)
			ctl_conn_close(&session->ctl);
	}
	if (error) {
		free(session);
		/* No NIC is no device, which is what programs expect to be told. */
		return error == ECONNREFUSED || error == ENOENT ? ENODEV : error;
	}
	pthread_mutex_init(&session->devices_lock, NULL);
	pthread_mutex_lock(&cm_lock);
	session->next = session_list;
	session_list = session;
	pthread_mutex_unlock(&cm_lock);
	*out = session;
	return 0;
}

int session_get(struct cm_session **out)
{
	int error = 0, state = cm_no_cancel();

	pthread_mutex_lock(&session_open_lock);
	pthread_mutex_lock(&cm_lock);
	*out = session_list;
	pthread_mutex_unlock(&cm_lock);
	if (!*out || ctl_conn_is_dead(&(*out)->ctl))
		error = session_open(out);
	pthread_mutex_unlock(&session_open_lock);
	pthread_setcancelstate(state, NULL);
	return error;
}

static uint8_t session_depth(int max)
{
	return (uint8_t)(max < UINT8_MAX ? max : UINT8_MAX - 1);
}

static int session_device_open(struct ibv_device *base, struct cm_device **out)
{
	struct cm_device *device = calloc(1, sizeof(*device));
	struct ibv_device_attr attr;

	if (!device)
		return ENOMEM;
	device->verbs = ibv_open_device(base);
	if (!device->verbs)
		goto fail;
	errno = ibv_query_device(device->verbs, &attr);
	if (errno)
		goto fail;
	device->pd = ibv_alloc_pd(device->verbs);
	if (!device->pd)
		goto fail;
	device->max_responder_resources = session_depth(attr.max_qp_rd_atom);
	device->max_initiator_depth = session_depth(attr.max_qp_init_rd_atom);
	*out = device;
	return 0;
fail:;
	int error = errno;

	rnic_log("open device %s: %s", base->name, strerror(error));
	if (device->verbs)
		ibv_close_device(device->verbs);
	free(device);
	return error;
}

struct ibv_xrcd *session_device_xrcd(struct cm_session *session, struct cm_device *device)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	pthread_mutex_lock(&session->devices_lock);
	if (!device->xrcd)
		device->xrcd = ibv_open_xrcd(device->verbs, &attr);
	xrcd = device->xrcd;
	pthread_mutex_unlock(&session->devices_lock);
	return xrcd;
}

/* Returns a device that is open; devices_lock is held. */
static struct cm_device *session_device_known(struct cm_session *session, const char *name)
{
	struct cm_device *device = session->devices;

	while (device && strcmp(ibv_get_device_name(device->verbs->device), name) != 0)
		device = device->next;
	return device;
}

/* Returns the open device, or opens it; devices_lock is held. */
static int session_device_get(struct cm_session *session, struct ibv_device *base,
			      struct cm_device **out)
{
	int error;

	*out = session_device_known(session, base->name);
	if (*out)
		return 0;
	error = session_device_open(base, out);
	if (error)
		return error;
	(*out)->next = session->devices;
	session->devices = *out;
	return 0;
}

int session_device_find(struct cm_session *session, const char *name, struct cm_device **device)
{
	struct ibv_device **list = NULL;
	int error = 0, state = cm_no_cancel();

	pthread_mutex_lock(&session->devices_lock);
	*device = session_device_known(session, name);
	if (!*device) {
		list = ibv_get_device_list(NULL);
		error = list ? ENODEV : errno;
	}
	for (int i = 0; list && list[i]; i++) {
		if (!strcmp(list[i]->name, name)) {
			error = session_device_get(session, list[i], device);
			break;
		}
	}
	pthread_mutex_unlock(&session->devices_lock);
	if (list)
		ibv_free_device_list(list);
	pthread_setcancelstate(state, NULL);
	return error;
}

/* A device that cannot be opened is left out, rather than making the others unusable. */
static int session_open_all(struct ibv_context ***out, int *count)
{
	struct cm_session *session;
	struct ibv_device **list;
	int total = 0, error = session_get(&session);

	if (error)
		return error;
	list = ibv_get_device_list(&total);
	*out = calloc((size_t)total + 1, sizeof(struct ibv_context *));
	pthread_mutex_lock(&session->devices_lock);
	for (int i = 0; list && *out && i < total; i++) {
		struct cm_device *device;

		if (!session_device_get(session, list[i], &device))
			(*out)[(*count)++] = device->verbs;
	}
	pthread_mutex_unlock(&session->devices_lock);
	error = list && *out ? 0 : ENOMEM;
	if (list)
		ibv_free_device_list(list);
	return error ? error : *count ? 0 : ENODEV;
}

CM_API struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **out = NULL;
	int count = 0, state = cm_no_cancel(), error = session_open_all(&out, &count);

	pthread_setcancelstate(state, NULL);
	if (num_devices)
		*num_devices = count;
	if (error) {
		free(out);
		errno = error;
		return NULL;
	}
	return out;
}

CM_API void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}

static void session_fork_prepare(void)
{
	pthread_mutex_lock(&cm_lock);
}

static void session_fork_parent(void)
{
	pthread_mutex_unlock(&cm_lock);
}

/*
 * A child must neither speak on its parent's connection nor take its parent's events. What it
 * inherits is dead, what it creates is its own.
 */
static void session_fork_child(void)
{
	for (struct cm_session *s = session_list; s; s = s->next) {
		atomic_store(&s->ctl.dead, true);
		if (s->ctl.fd >= 0)
			close(s->ctl.fd);
		s->ctl.fd = -1;
		/* Threads that are not in the child may have held these. */
		pthread_mutex_init(&s->ctl.lock, NULL);
		pthread_mutex_init(&s->devices_lock, NULL);
		for (struct cm_channel *c = s->channels; c; c = c->next)
			channel_fork_child(c);
	}
	pthread_mutex_init(&session_open_lock, NULL);
	channel_fork_child_all();
	id_fork_child();
	event_fork_child();
	mcast_fork_child();
	pthread_mutex_unlock(&cm_lock);
}

__attribute__((constructor)) static void session_library_init(void)
{
	pthread_atfork(session_fork_prepare, session_fork_parent, session_fork_child);
}
