/* SPDX-License-Identifier: Apache-2.0 */
/* Multicast groups that ids have joined. */
#include "cm.h"

struct cm_group {
	struct cm_group *next;
	void *context;
	uint32_t handle;
	bool send_only;
	bool attached; /* the id's QP gets what is sent to the group */
	union ibv_gid gid;
	uint16_t mlid;
	struct sockaddr_storage addr;
};

/* Held while a group is joined too, so that its first event finds it. */
static pthread_mutex_t mcast_lock = PTHREAD_MUTEX_INITIALIZER;

void mcast_fork_child(void)
{
	pthread_mutex_init(&mcast_lock, NULL);
}

static int mcast_join(struct cm_id *id, struct cm_group *group)
{
	struct rnic_cm_multicast_req req = {
		.id = id->handle,
		.flags = group->send_only ? 2 : 1,
	};
	struct rnic_handle_msg rsp;
	struct ctl_call call = {
		.op = RNIC_OP_JOIN_MULTICAST,
		.req = &req,
		.req_bytes = sizeof(req),
	};
	int error = addr_to_abi(&req.addr, (struct sockaddr *)&group->addr);

	pthread_mutex_lock(&mcast_lock);
	if (!error)
		error = ctl_conn_query(&id->session->ctl, &call, &rsp, sizeof(rsp));
	if (!error) {
		group->handle = rsp.handle;
		group->next = id->groups;
		id->groups = group;
	}
	pthread_mutex_unlock(&mcast_lock);
	return error;
}

CM_API int rdma_join_multicast_ex(struct rdma_cm_id *base, struct rdma_cm_join_mc_attr_ex *attr,
				  void *context)
{
	const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	struct cm_id *id = id_of(base);
	struct cm_group *group;
	socklen_t bytes;
	int error;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED)
		return cm_result(ENOTSUP);
	if ((attr->comp_mask & needed) != needed || !attr->addr ||
	    attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return cm_result(EINVAL);
	bytes = addr_bytes(attr->addr);
	if (!bytes)
		return cm_result(EAFNOSUPPORT);
	group = calloc(1, sizeof(*group));
	if (!group)
		return cm_result(ENOMEM);
	group->context = context;
	group->send_only = attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	memcpy(&group->addr, attr->addr, bytes);
	error = mcast_join(id, group);
	if (error) {
		free(group);
		return cm_result(error);
	}
	return cm_result(event_complete(id, RDMA_CM_EVENT_MULTICAST_JOIN));
}

CM_API int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = addr,
	};

	return rdma_join_multicast_ex(id, &attr, context);
}

static int mcast_attach(struct cm_id *id, struct cm_group *group, const struct ibv_ah_attr *ah)
{
	int error;

	group->gid = ah->grh.dgid;
	group->mlid = ah->dlid;
	if (!id->base.qp || group->send_only || group->attached)
		return 0;
	error = ibv_attach_mcast(id->base.qp, &group->gid, group->mlid);
	group->attached = !error;
	return error;
}

/* Completes an event about a group: the QP is attached, and the program gets its context back. */
void mcast_event(struct cm_id *id, const struct rnic_cm_event *record, struct cm_event *event)
{
	struct rdma_ud_param *param = &event->base.param.ud;
	struct cm_group *group;
	int error = 0;

	pthread_mutex_lock(&mcast_lock);
	group = id->groups;
	while (group && group->handle != record->join)
		group = group->next;
	if (group && event->base.event == RDMA_CM_EVENT_MULTICAST_JOIN)
		error = mcast_attach(id, group, &param->ah_attr);
	param->private_data = group ? group->context : NULL;
	param->private_data_len = 0;
	pthread_mutex_unlock(&mcast_lock);
	if (error) {
		event->base.event = RDMA_CM_EVENT_MULTICAST_ERROR;
		event->base.status = -error;
	}
}

CM_API int rdma_leave_multicast(struct rdma_cm_id *base, struct sockaddr *addr)
{
	struct cm_id *id = id_of(base);
	socklen_t bytes = addr ? addr_bytes(addr) : 0;
	struct rnic_handle_msg req;
	struct cm_group **at, *group;
	int error = 0, left;

	if (!bytes)
		return cm_result(EINVAL);
	pthread_mutex_lock(&mcast_lock);
	for (at = &id->groups; *at && memcmp(&(*at)->addr, addr, bytes) != 0; at = &(*at)->next)
		;
	group = *at;
	if (group)
		*at = group->next;
	pthread_mutex_unlock(&mcast_lock);
	if (!group)
		return cm_result(EADDRNOTAVAIL);
	if (group->attached && base->qp)
		error = ibv_detach_mcast(base->qp, &group->gid, group->mlid);
	req = (struct rnic_handle_msg){.handle = group->handle};
	left = ctl_conn_ask(&id->session->ctl, RNIC_OP_LEAVE_MULTICAST, &req, sizeof(req));
	free(group);
	return cm_result(left ? left : error);
}

/* Detaches an id's QP, which is about to go: one that is attached cannot be destroyed. */
void mcast_detach_all(struct cm_id *id)
{
	pthread_mutex_lock(&mcast_lock);
	for (struct cm_group *group = id->groups; group; group = group->next) {
		if (group->attached)
			ibv_detach_mcast(id->base.qp, &group->gid, group->mlid);
		group->attached = false;
	}
	pthread_mutex_unlock(&mcast_lock);
}

/* The NIC leaves the groups of an id that is destroyed. */
void mcast_free(struct cm_id *id)
{
	while (id->groups) {
		struct cm_group *group = id->groups;

		id->groups = group->next;
		free(group);
	}
}
