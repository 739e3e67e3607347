/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pair of a stream, its completion queue, and its buffers. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attr.h"
#include "rs.h"

/* Queues up to here every device has. */
#define EP_QUEUE_SURE 1024

static size_t ep_pages(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) & ~(page - 1);
}

void *ep_alloc(size_t bytes)
{
	void *memory = mmap(NULL, ep_pages(bytes), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

void ep_free(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, ep_pages(bytes));
}

static size_t ep_shared_bytes(const struct rs_socket *rs)
{
	return WIRE_TARGETS * sizeof(struct wire_sge) +
	       (size_t)rs->opt.iomap_entries * sizeof(struct wire_iomap);
}

static size_t ep_memory_bytes(const struct rs_socket *rs)
{
	return ep_pages(ep_shared_bytes(rs)) + ep_pages((size_t)rs->ep.recv_half * 2) +
	       ep_pages(rs->opt.send_bytes) +
	       (rs->ep.has_notes ? ep_pages(cq_receives(rs) * WIRE_NOTE_BYTES) : 0);
}

/*
 * All is one region, as registering takes most of the time of a connection. So a peer may write to
 * the send buffer as well: to what it will be sent, that is.
 */
static int ep_buffers(struct rs_socket *rs)
{
	struct rs_endpoint *ep = &rs->ep;

	ep->recv_half = rs->opt.recv_bytes / 2;
	ep->messages = calloc(rs->opt.recv_wrs, sizeof(*ep->messages));
	ep->shared = ep_alloc(ep_memory_bytes(rs));
	if (!ep->messages || !ep->shared)
		return ENOMEM;
	ep->recv_buf = ep->shared + ep_pages(ep_shared_bytes(rs));
	ep->send_buf = ep->recv_buf + ep_pages((size_t)ep->recv_half * 2);
	ep->notes = ep->send_buf + ep_pages(rs->opt.send_bytes);
	/* Only this thread knows the memory yet, so the library may move its pages. */
	ep->mr = ibv_reg_mr(ep->pd, ep->shared, ep_memory_bytes(rs),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				    RNIC_ACCESS_UNSHARED);
	return ep->mr ? 0 : errno;
}

static void ep_choose_sizes(struct rs_socket *rs)
{
	struct rs_options *opt = &rs->opt;
	uint32_t max = WIRE_QUEUE_MAX;
	struct ibv_device_attr attr;

	if (opt->send_wrs > EP_QUEUE_SURE || opt->recv_wrs > EP_QUEUE_SURE) {
		max = EP_QUEUE_SURE;
		if (!ibv_query_device(rs->id->verbs, &attr) && attr.max_qp_wr > 0)
			max = rs_min((uint32_t)attr.max_qp_wr, WIRE_QUEUE_MAX);
		if (!attr.max_cqe || max > (uint32_t)attr.max_cqe / 2)
			max = EP_QUEUE_SURE;
	}
	if (rs->ep.has_notes)
		max = (max - WIRE_NOTES_SPARE) / 2;
	opt->send_wrs = rs_min(opt->send_wrs, max);
	opt->recv_wrs = rs_min(opt->recv_wrs, max);
	if (opt->send_wrs < WIRE_QUEUE_MIN)
		opt->send_wrs = WIRE_QUEUE_MIN;
	if (opt->recv_wrs < WIRE_QUEUE_MIN)
		opt->recv_wrs = WIRE_QUEUE_MIN;
	opt->inline_bytes = rs_min(opt->inline_bytes, WIRE_INLINE_MAX);
	/* Both halves of the receive buffer have room for what is sent at once, if small. */
	if (opt->recv_bytes < 2 * WIRE_LOW_WATER)
		opt->recv_bytes = 2 * WIRE_LOW_WATER;
	if (opt->send_bytes < 2 * WIRE_LOW_WATER)
		opt->send_bytes = 2 * WIRE_LOW_WATER;
}

static int ep_queues(struct rs_socket *rs)
{
	struct rs_endpoint *ep = &rs->ep;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {
			/* Where messages are SENDs, each write may have one. */
			.max_send_wr = rs->opt.send_wrs * (ep->has_notes ? 2 : 1),
			.max_recv_wr = cq_receives(rs),
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = rs->opt.inline_bytes,
		},
	};

	/* What is granted to the peer goes inline in any case. */
	if (attr.cap.max_inline_data < sizeof(struct wire_iomap))
		attr.cap.max_inline_data = sizeof(struct wire_iomap);
	ep->channel = ibv_create_comp_channel(rs->id->verbs);
	if (!ep->channel)
		return errno;
	fcntl(ep->channel->fd, F_SETFL, O_NONBLOCK);
	ep->cq = ibv_create_cq(rs->id->verbs, (int)(attr.cap.max_send_wr + attr.cap.max_recv_wr),
			       rs, ep->channel, 0);
	if (!ep->cq)
		return errno;
	attr.send_cq = attr.recv_cq = ep->cq;
	if (rdma_create_qp(rs->id, NULL, &attr))
		return errno;
	ep->pd = rs->id->pd;
	ep->inline_bytes = rs->opt.inline_bytes;
	return 0;
}

int ep_create(struct rs_socket *rs)
{
	struct rs_endpoint *ep = &rs->ep;
	int error;

	ep->has_notes = rs->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	ep_choose_sizes(rs);
	error = ep_queues(rs);
	if (!error)
		error = ep_buffers(rs);
	if (!error)
		error = cq_post_receives(rs, cq_receives(rs));
	if (error)
		return error;
	ep->send_free = rs->opt.send_bytes;
	ep->send_slots = rs->opt.send_wrs - WIRE_CONTROLS;
	ep->control_slots = WIRE_CONTROLS;
	ep->recv_granted = ep->recv_half; /* by the connection's data; the other half by message */
	ep->recv_free = ep->recv_half;
	ep->grant_at = ep->recv_half;
	ep->recv_told_at = (uint16_t)(rs->opt.recv_wrs / 2);
	return 0;
}

void ep_describe(const struct rs_socket *rs, struct wire_conn *out)
{
	const struct rs_endpoint *ep = &rs->ep;

	*out = (struct wire_conn){
		.credits = (uint16_t)rs->opt.recv_wrs,
		.iomap_entries = rs->opt.iomap_entries,
		.big_endian = wire_host_is_big_endian(),
		.list = {(uintptr_t)ep->shared, ep->mr->rkey, WIRE_TARGETS},
		.buffer = {(uintptr_t)ep->recv_buf, ep->mr->rkey, ep->recv_half},
	};
}

int ep_attach(struct rs_socket *rs, const void *data, size_t bytes)
{
	struct rs_endpoint *ep = &rs->ep;
	struct wire_conn peer;
	int error = wire_conn_read(&peer, data, bytes);

	if (error)
		return error;
	ep->peer_list = peer.list;
	ep->swap = peer.big_endian != wire_host_is_big_endian();
	/* The connection's data are the first entries of both lists. */
	ep->peer_next = 1 % peer.list.length;
	ep->target_next = 1;
	ep->targets[0] = peer.buffer;
	ep->target_count = 1;
	if (ep->has_notes)
		ep->note_reserve = (uint16_t)rs_min(peer.credits / 2u, WIRE_NOTES_RESERVE);
	ep->send_seq_end = (uint16_t)(peer.credits - ep->note_reserve);
	ep->peer_iomap = peer.list.addr + (uint64_t)peer.list.length * sizeof(struct wire_sge);
	ep->peer_iomap_entries = peer.iomap_entries;
	return 0;
}

void ep_destroy(struct rs_socket *rs)
{
	struct rs_endpoint *ep = &rs->ep;

	if (rs->id && rs->id->qp)
		rdma_destroy_qp(rs->id);
	if (ep->mr)
		ibv_dereg_mr(ep->mr);
	if (ep->cq)
		ibv_destroy_cq(ep->cq);
	if (ep->channel)
		ibv_destroy_comp_channel(ep->channel);
	if (ep->shared)
		ep_free(ep->shared, ep_memory_bytes(rs));
	free(ep->messages);
	memset(ep, 0, sizeof(*ep));
}
