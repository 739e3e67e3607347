/* SPDX-License-Identifier: Apache-2.0 */
/* Identifiers: their table, their addresses, and where their events go. */
#include <arpa/inet.h>

#include "cm.h"

/* Two threads may be at two events of one id. */
static pthread_mutex_t id_route_lock = PTHREAD_MUTEX_INITIALIZER;

void id_fork_child(void)
{
	pthread_mutex_init(&id_route_lock, NULL);
}

static struct cm_id **id_bucket(struct cm_session *session, uint32_t handle)
{
	return &session->ids[handle % CM_BUCKETS];
}

struct cm_id *id_find(struct cm_session *session, uint32_t handle)
{
	struct cm_id *id = *id_bucket(session, handle);

	while (id && id->handle != handle)
		id = id->next;
	return id;
}

void id_insert(struct cm_id *id)
{
	struct cm_id **bucket;

	pthread_mutex_lock(&cm_lock);
	bucket = id_bucket(id->session, id->handle);
	id->next = *bucket;
	*bucket = id;
	pthread_mutex_unlock(&cm_lock);
}

static void id_remove(struct cm_id *id)
{
	struct cm_id **at;

	pthread_mutex_lock(&cm_lock);
	for (at = id_bucket(id->session, id->handle); *at && *at != id; at = &(*at)->next)
		;
	if (*at)
		*at = id->next;
	pthread_mutex_unlock(&cm_lock);
}

/* Makes the object of an id that the NIC knows as handle. It is in no table yet. */
int id_create(struct cm_channel *channel, uint32_t handle, struct cm_id **out)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return ENOMEM;
	id->session = channel->session;
	id->handle = handle;
	id->base.channel = &channel->base;
	*out = id;
	return 0;
}

void id_free(struct cm_id *id)
{
	mcast_free(id);
	free(id->connect_data);
	free(id->ep_attr);
	free(id);
}

int id_ask(struct cm_id *id, uint16_t op)
{
	struct rnic_handle_msg req = {.handle = id->handle};

	return ctl_conn_ask(&id->session->ctl, op, &req, sizeof(req));
}

void id_forget(struct cm_session *session, uint32_t handle)
{
	struct rnic_handle_msg req = {.handle = handle};

	ctl_conn_ask(&session->ctl, RNIC_OP_DESTROY_ID, &req, sizeof(req));
}

static void id_apply_path(struct cm_id *id, const struct rnic_cm_route *route)
{
	/* The selectors are the ones for "exactly". */
	id->path = (struct ibv_sa_path_rec){
		.flow_label = htonl(route->flow_label),
		.hop_limit = (uint8_t)route->hop_limit,
		.traffic_class = (uint8_t)route->traffic_class,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htons((uint16_t)route->pkey),
		.sl = (uint8_t)route->sl,
		.mtu_selector = 2,
		.mtu = (uint8_t)route->path_mtu,
		.rate_selector = 2,
		.packet_life_time_selector = 2,
		.packet_life_time = (uint8_t)route->packet_life,
	};
	memcpy(id->path.sgid.raw, route->sgid, sizeof(route->sgid));
	memcpy(id->path.dgid.raw, route->dgid, sizeof(route->dgid));
	id->base.route.path_rec = &id->path;
	id->base.route.num_paths = 1;
}

static int id_apply_route_locked(struct cm_id *id, const struct rnic_cm_route *route)
{
	struct rdma_addr *addr = &id->base.route.addr;
	char name[sizeof(route->device) + 1] = "";
	int error;

	if (route->src.family)
		addr_from_abi(&addr->src_storage, &route->src);
	if (route->dst.family)
		addr_from_abi(&addr->dst_storage, &route->dst);
	memcpy(name, route->device, sizeof(route->device));
	if (!*name)
		return 0;
	if (!id->device) {
		error = session_device_find(id->session, name, &id->device);
		if (error)
			return error;
		id->base.verbs = id->device->verbs;
		if (!id->base.pd)
			id->base.pd = id->device->pd;
	}
	id->base.port_num = (uint8_t)route->port;
	memcpy(addr->addr.ibaddr.sgid.raw, route->sgid, sizeof(route->sgid));
	memcpy(addr->addr.ibaddr.dgid.raw, route->dgid, sizeof(route->dgid));
	addr->addr.ibaddr.pkey = htons((uint16_t)route->pkey);
	if (route->has_route)
		id_apply_path(id, route);
	return 0;
}

int id_apply_route(struct cm_id *id, const struct rnic_cm_route *route)
{
	int error;

	pthread_mutex_lock(&id_route_lock);
	error = id_apply_route_locked(id, route);
	pthread_mutex_unlock(&id_route_lock);
	return error;
}

int id_query(struct cm_id *id)
{
	struct rnic_handle_msg req = {.handle = id->handle};
	struct ctl_call call = {.op = RNIC_OP_QUERY_ID, .req = &req, .req_bytes = sizeof(req)};
	struct rnic_cm_route route;
	int error = ctl_conn_query(&id->session->ctl, &call, &route, sizeof(route));

	return error ? error : id_apply_route(id, &route);
}

static int id_request(struct cm_channel *channel, struct rdma_cm_id **out, void *context,
		      const struct rnic_create_id_req *req)
{
	struct rnic_handle_msg rsp;
	struct cm_id *id;
	struct ctl_call call = {
		.op = RNIC_OP_CREATE_ID,
		.req = req,
		.req_bytes = sizeof(*req),
	};
	int error = id_create(channel, 0, &id);

	if (error)
		return error;
	error = ctl_conn_query(&channel->session->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		id_free(id);
		return error;
	}
	id->handle = rsp.handle;
	id->base.context = context;
	id->base.ps = (enum rdma_port_space)req->port_space;
	id->base.qp_type = (enum ibv_qp_type)req->qp_type;
	id_insert(id);
	*out = &id->base;
	return 0;
}

/* The user may insist on a device for all ids of a program; else addresses decide. */
static void id_insist(struct rnic_create_id_req *req)
{
	const char *name = getenv("RNIC_DEVICE");

	if (name)
		memcpy(req->device, name, strnlen(name, sizeof(req->device)));
}

/* Creates an id; without a channel, a synchronous one. */
int id_new(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
	   const struct rdma_addrinfo *kind)
{
	struct rnic_create_id_req req = {
		.port_space = (uint32_t)kind->ai_port_space,
		.qp_type = (uint32_t)kind->ai_qp_type,
	};
	struct cm_session *session;
	struct cm_channel *own = channel ? channel_of(channel) : NULL;
	int error = 0;

	if (!own) {
		error = session_get(&session);
		if (!error)
			error = channel_create(session, &own);
		if (error)
			return error;
	}
	req.channel = own->handle;
	id_insist(&req);
	error = id_request(own, out, context, &req);
	if (error && !channel)
		channel_destroy(own);
	if (!error)
		id_of(*out)->is_sync = !channel;
	return error;
}

CM_API int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
			  void *context, enum rdma_port_space ps)
{
	struct rdma_addrinfo kind = {.ai_port_space = (int)ps, .ai_qp_type = IBV_QPT_RC};

	if (ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB)
		kind.ai_qp_type = IBV_QPT_UD;
	return cm_result(id_new(channel, id, context, &kind));
}

CM_API int rdma_destroy_id(struct rdma_cm_id *base)
{
	struct cm_id *id = id_of(base);
	int state = cm_no_cancel();

	event_ack(id);
	/* From here on nobody finds it, so nothing is added to what there is to acknowledge. */
	id_remove(id);
	id_forget(id->session, id->handle);
	if (base->channel)
		channel_purge(channel_of(base->channel));
	event_drain(id, "rdma_destroy_id");
	if (id->is_sync && base->channel)
		channel_destroy(channel_of(base->channel));
	id_free(id);
	pthread_setcancelstate(state, NULL);
	return 0;
}

/*
 * Ids that share a channel, which accepted ones do with their listener, end with it; those that
 * were migrated do not. Their objects remain for rdma_destroy_id.
 */
CM_API void rdma_destroy_event_channel(struct rdma_event_channel *base)
{
	struct cm_channel *channel = channel_of(base);
	struct cm_session *session = channel->session;
	int state = cm_no_cancel();

	for (size_t i = 0; i < CM_BUCKETS;) {
		struct cm_id *id;

		pthread_mutex_lock(&cm_lock);
		for (id = session->ids[i]; id && id->base.channel != base; id = id->next)
			;
		if (id)
			id->base.channel = NULL;
		pthread_mutex_unlock(&cm_lock);
		if (!id) {
			i++;
			continue;
		}
		id_remove(id);
		id_forget(session, id->handle);
		id->handle = 0;
	}
	channel_purge(channel); /* requests that nobody took are turned down */
	channel_destroy(channel);
	pthread_setcancelstate(state, NULL);
}

static int id_migrate(struct cm_id *id, struct cm_channel *to)
{
	struct cm_channel *from = channel_of(id->base.channel);
	struct rnic_cm_migrate_req req = {.id = id->handle, .channel = to->handle};
	int error;

	if (to->session != id->session)
		return EINVAL;
	error = ctl_conn_ask(&id->session->ctl, RNIC_OP_MIGRATE_ID, &req, sizeof(req));
	if (error)
		return error;
	pthread_mutex_lock(&cm_lock);
	id->base.channel = &to->base;
	pthread_mutex_unlock(&cm_lock);
	/* New events go to the new channel; those that came before them are put before them. */
	channel_move(from, to, id->handle);
	return 0;
}

int id_make_sync(struct cm_id *id)
{
	struct cm_channel *own;
	int error = channel_create(id->session, &own);

	if (error)
		return error;
	error = id_migrate(id, own);
	if (error)
		channel_destroy(own);
	else
		id->is_sync = true;
	return error;
}

static int id_change_channel(struct cm_id *id, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *old = id->base.channel;
	bool was_sync = id->is_sync;
	int error;

	if (!old)
		return EINVAL;
	if (was_sync && !channel)
		return 0;
	event_ack(id);
	error = channel ? id_migrate(id, channel_of(channel)) : id_make_sync(id);
	if (error)
		return error;
	event_drain(id, "rdma_migrate_id");
	if (was_sync) {
		id->is_sync = false;
		channel_destroy(channel_of(old));
	}
	return 0;
}

CM_API int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	int state = cm_no_cancel(), error = id_change_channel(id_of(id), channel);

	pthread_setcancelstate(state, NULL);
	return cm_result(error);
}

CM_API int rdma_bind_addr(struct rdma_cm_id *base, struct sockaddr *addr)
{
	struct cm_id *id = id_of(base);
	struct rnic_cm_addr_req req = {.id = id->handle};
	struct rnic_cm_route route;
	struct ctl_call call = {.op = RNIC_OP_BIND_ADDR, .req = &req, .req_bytes = sizeof(req)};
	int error = addr ? addr_to_abi(&req.src, addr) : EINVAL;

	if (!error)
		error = ctl_conn_query(&id->session->ctl, &call, &route, sizeof(route));
	if (!error)
		error = id_apply_route(id, &route);
	return cm_result(error);
}

CM_API int rdma_listen(struct rdma_cm_id *base, int backlog)
{
	struct cm_id *id = id_of(base);
	struct rnic_cm_listen_req req = {
		.id = id->handle,
		.backlog = backlog < 0 ? 0 : (uint32_t)backlog,
	};
	struct rnic_cm_route route;
	struct ctl_call call = {.op = RNIC_OP_LISTEN, .req = &req, .req_bytes = sizeof(req)};
	int error = ctl_conn_query(&id->session->ctl, &call, &route, sizeof(route));

	if (!error)
		error = id_apply_route(id, &route);
	if (!error)
		id->is_listening = true;
	return cm_result(error);
}

static int id_resolve(struct cm_id *id, uint16_t op, const struct rnic_cm_addr_req *req,
		      enum rdma_cm_event_type wanted)
{
	int error = ctl_conn_ask(&id->session->ctl, op, req, sizeof(*req));

	return error ? error : event_complete(id, wanted);
}

CM_API int rdma_resolve_addr(struct rdma_cm_id *base, struct sockaddr *src_addr,
			     struct sockaddr *dst_addr, int timeout_ms)
{
	struct cm_id *id = id_of(base);
	struct rnic_cm_addr_req req = {.id = id->handle, .timeout_ms = (uint32_t)timeout_ms};
	int error = dst_addr ? addr_to_abi(&req.dst, dst_addr) : EINVAL;

	if (!error)
		error = addr_to_abi(&req.src, src_addr);
	if (error)
		return cm_result(error);
	memcpy(&base->route.addr.dst_storage, dst_addr, addr_bytes(dst_addr));
	return cm_result(id_resolve(id, RNIC_OP_RESOLVE_ADDR, &req, RDMA_CM_EVENT_ADDR_RESOLVED));
}

CM_API int rdma_resolve_route(struct rdma_cm_id *base, int timeout_ms)
{
	struct cm_id *id = id_of(base);
	const struct rnic_cm_addr_req req = {.id = id->handle, .timeout_ms = (uint32_t)timeout_ms};

	return cm_result(id_resolve(id, RNIC_OP_RESOLVE_ROUTE, &req,
				    RDMA_CM_EVENT_ROUTE_RESOLVED));
}
