/* SPDX-License-Identifier: Apache-2.0 */
/* Event channels: pipes that the NIC writes events to. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "cm.h"

/* What a mark in the pipe has for an event; the NIC has no such event. */
#define CHANNEL_MARK UINT32_MAX

/* A pipe to wait with, see channel_wait; guarded by cm_lock, −1 while there is none. */
static int channel_wait_pipe[2] = {-1, -1};

int channel_create(struct cm_session *session, struct cm_channel **out)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));
	struct rnic_handle_msg rsp;
	struct ctl_call call = {
		.op = RNIC_OP_CREATE_EVENT_CHANNEL,
		.num_fds_in = 1,
	};
	int error;

	if (!channel)
		return ENOMEM;
	call.fds_in = &channel->base.fd;
	error = ctl_conn_query(&session->ctl, &call, &rsp, sizeof(rsp));
	if (error) {
		free(channel);
		return error;
	}
	channel->session = session;
	channel->handle = rsp.handle;
	channel->queue_end = &channel->queue;
	pthread_mutex_init(&channel->lock, NULL);
	pthread_mutex_lock(&cm_lock);
	channel->next = session->channels;
	session->channels = channel;
	pthread_mutex_unlock(&cm_lock);
	*out = channel;
	return 0;
}

static void channel_drop_queue(struct cm_channel *channel)
{
	while (channel->queue) {
		struct cm_record *record = channel->queue;

		channel->queue = record->next;
		free(record);
	}
}

static void channel_release(struct cm_channel *channel)
{
	struct rnic_handle_msg req = {.handle = channel->handle};

	ctl_conn_ask(&channel->session->ctl, RNIC_OP_DESTROY_EVENT_CHANNEL, &req, sizeof(req));
	channel_drop_queue(channel);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
}

/*
 * Many programs end while a thread of theirs waits for events. As with the kernel it goes on
 * waiting, for nothing, rather than telling of an error; so the pipe must not end either.
 */
void channel_destroy(struct cm_channel *channel)
{
	struct cm_channel **at;
	bool in_use;

	pthread_mutex_lock(&cm_lock);
	for (at = &channel->session->channels; *at != channel; at = &(*at)->next)
		;
	*at = channel->next;
	channel->is_ended = true;
	in_use = channel->readers > 0;
	if (channel->base.fd >= 0)
		close(channel->base.fd);
	channel->base.fd = -1;
	pthread_mutex_unlock(&cm_lock);
	if (!in_use)
		channel_release(channel);
}

void channel_enter(struct cm_channel *channel)
{
	pthread_mutex_lock(&cm_lock);
	channel->readers++;
	pthread_mutex_unlock(&cm_lock);
}

void channel_leave(void *arg)
{
	struct cm_channel *channel = arg;
	bool last;

	pthread_mutex_lock(&cm_lock);
	last = --channel->readers == 0 && channel->is_ended;
	pthread_mutex_unlock(&cm_lock);
	if (last)
		channel_release(channel);
}

/* The child takes no events of its parent, those that its parent has set aside neither. */
void channel_fork_child(struct cm_channel *channel)
{
	if (channel->base.fd >= 0)
		close(channel->base.fd);
	channel->base.fd = -1;
	channel->queue = NULL; /* a thread that is not here may have been at it */
	channel->queue_end = &channel->queue;
	channel->queued = channel->marks = channel->readers = 0;
	pthread_mutex_init(&channel->lock, NULL);
}

void channel_fork_child_all(void)
{
	for (int i = 0; i < 2; i++) {
		if (channel_wait_pipe[i] >= 0)
			close(channel_wait_pipe[i]);
		channel_wait_pipe[i] = -1;
	}
}

static void channel_enqueue(struct cm_channel *channel, struct cm_record *record)
{
	record->next = NULL;
	*channel->queue_end = record;
	channel->queue_end = &record->next;
	channel->queued++;
}

static struct cm_record *channel_dequeue(struct cm_channel *channel)
{
	struct cm_record *record = channel->queue;

	channel->queue = record->next;
	if (!channel->queue)
		channel->queue_end = &channel->queue;
	channel->queued--;
	return record;
}

/*
 * Writes marks until there is one for each record in the queue, or the pipe is full. The pipe's
 * other end is the NIC's; ours is opened for the moment, lest it hide the death of the NIC.
 */
static void channel_mark(struct cm_channel *channel)
{
	const struct rnic_cm_event mark = {.event = CHANNEL_MARK};
	char path[32];
	int fd;

	if (channel->marks >= channel->queued)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", channel->base.fd);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		rnic_log("events of channel %d may not wake those who poll it: %s",
			 channel->base.fd, strerror(errno));
		return;
	}
	while (channel->marks < channel->queued && write(fd, &mark, sizeof(mark)) == sizeof(mark))
		channel->marks++;
	close(fd);
}

/* Reads what the pipe has now: 0, EAGAIN, or EIO at the end of it. */
static int channel_read_pipe(struct cm_channel *channel, struct rnic_cm_event *record)
{
	struct pollfd pfd = {.fd = channel->base.fd, .events = POLLIN};
	ssize_t got;

	if (channel->base.fd < 0)
		return EIO;
	if (poll(&pfd, 1, 0) <= 0)
		return EAGAIN;
	do {
		got = read(channel->base.fd, record, sizeof(*record));
	} while (got < 0 && errno == EINTR);
	if (got == (ssize_t)sizeof(*record))
		return 0;
	return got < 0 && errno == EAGAIN ? EAGAIN : EIO;
}

int channel_read(struct cm_channel *channel, struct rnic_cm_event *record)
{
	struct cm_record *first;
	int error = 0;

	/* Records without a mark come first: the pipe was full, so it stays readable. */
	if (channel->queued <= channel->marks) {
		error = channel_read_pipe(channel, record);
		if (error == EIO)
			channel->marks = 0;
		else if (error)
			return error;
		else if (record->event == CHANNEL_MARK && channel->marks)
			channel->marks--;
		else if (channel->queued) {
			/* The event is younger than those in the queue, whose marks are behind it. */
			struct cm_record *last = malloc(sizeof(*last));

			if (!last)
				return 0; /* out of turn, but not lost */
			last->event = *record;
			channel_enqueue(channel, last);
		} else {
			return 0;
		}
	}
	if (!channel->queued)
		return error ? error : EAGAIN;
	first = channel_dequeue(channel);
	*record = first->event;
	free(first);
	return 0;
}

/* Moves everything from the pipe into the queue, and the marks out of the pipe. */
static void channel_gather(struct cm_channel *channel)
{
	struct cm_record *record;

	while ((record = malloc(sizeof(*record)))) {
		if (channel_read_pipe(channel, &record->event))
			break;
		if (record->event.event != CHANNEL_MARK)
			channel_enqueue(channel, record);
		else if (channel->marks)
			channel->marks--, free(record);
		else
			free(record);
	}
	free(record);
}

static bool channel_request_to(const struct rnic_cm_event *event, uint32_t listener)
{
	return event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->listen_id == listener;
}

/* Reports whether the queue has a request that brings the id. */
static bool channel_brings(const struct cm_channel *channel, uint32_t id)
{
	for (struct cm_record *r = channel->queue; r; r = r->next) {
		if (r->event.event == RDMA_CM_EVENT_CONNECT_REQUEST && r->event.id == id)
			return true;
	}
	return false;
}

static bool channel_is_wanted(struct cm_channel *channel, const struct rnic_cm_event *event)
{
	const bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	bool wanted;

	pthread_mutex_lock(&cm_lock);
	wanted = id_find(channel->session, request ? event->listen_id : event->id) != NULL;
	pthread_mutex_unlock(&cm_lock);
	return wanted || (!request && channel_brings(channel, event->id));
}

/* Takes a record out of the middle of the queue. */
static struct cm_record *channel_unlink(struct cm_channel *channel, struct cm_record **at)
{
	struct cm_record *record = *at;

	*at = record->next;
	if (!*at)
		channel->queue_end = at;
	channel->queued--;
	return record;
}

void channel_purge(struct cm_channel *channel)
{
	struct cm_record **at;

	pthread_mutex_lock(&channel->lock);
	channel_gather(channel);
	for (at = &channel->queue; *at;) {
		struct cm_record *record;

		if (channel_is_wanted(channel, &(*at)->event)) {
			at = &(*at)->next;
			continue;
		}
		record = channel_unlink(channel, at);
		if (record->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			id_forget(channel->session, record->event.id);
		free(record);
	}
	channel_mark(channel);
	pthread_mutex_unlock(&channel->lock);
}

/* Collects in out what the id, or with by_listener a request to it, waits for in the queue. */
static void channel_extract(struct cm_channel *from, struct cm_channel *out, uint32_t id,
			    bool by_listener)
{
	struct cm_record **at;

	for (at = &from->queue; *at;) {
		const struct rnic_cm_event *event = &(*at)->event;

		if (by_listener ? channel_request_to(event, id) : event->id == id)
			channel_enqueue(out, channel_unlink(from, at));
		else
			at = &(*at)->next;
	}
}

void channel_move(struct cm_channel *from, struct cm_channel *to, uint32_t id)
{
	/* Not a channel, only its queue. */
	struct cm_channel moved = {.queue_end = &moved.queue};
	uint32_t requests;

	pthread_mutex_lock(&from->lock);
	channel_gather(from);
	channel_extract(from, &moved, id, true);
	requests = moved.queued;
	/* The ids that the requests bring come along, with what has happened to them since. */
	for (struct cm_record *r = moved.queue; requests > 0; r = r->next, requests--) {
		struct rnic_cm_migrate_req req = {.id = r->event.id, .channel = to->handle};

		ctl_conn_ask(&from->session->ctl, RNIC_OP_MIGRATE_ID, &req, sizeof(req));
		channel_gather(from);
		channel_extract(from, &moved, r->event.id, false);
	}
	channel_extract(from, &moved, id, false);
	channel_mark(from);
	pthread_mutex_unlock(&from->lock);

	pthread_mutex_lock(&to->lock);
	while (moved.queued)
		channel_enqueue(to, channel_dequeue(&moved));
	channel_mark(to);
	pthread_mutex_unlock(&to->lock);
}

static int channel_wait_pipe_get(int out[2])
{
	int error = 0;

	pthread_mutex_lock(&cm_lock);
	if (channel_wait_pipe[0] < 0 && pipe2(channel_wait_pipe, O_CLOEXEC) != 0)
		error = errno;
	memcpy(out, channel_wait_pipe, sizeof(channel_wait_pipe));
	pthread_mutex_unlock(&cm_lock);
	return error;
}

/*
 * Waiting must not take the record, because another thread may be about to move it. And a signal
 * must end the wait exactly when its handler was installed without SA_RESTART, as it does in a
 * read; poll knows no restart. Copying a byte with tee does both.
 */
static int channel_wait_byte(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	unsigned char byte;
	int pipe[2];
	ssize_t got;

	if (channel_wait_pipe_get(pipe))
		return poll(&pfd, 1, -1) < 0 ? errno : 0;
	got = tee(fd, pipe[1], 1, 0);
	if (got > 0 && read(pipe[0], &byte, 1) < 0)
		return errno;
	if (got >= 0 || errno == EAGAIN)
		return 0;
	if (errno == EINTR || errno == EBADF)
		return errno;
	/* A sandbox may forbid it. */
	return poll(&pfd, 1, -1) < 0 ? errno : 0;
}

int channel_wait(struct cm_channel *channel)
{
	int fd = channel->base.fd, flags = fcntl(fd, F_GETFL), state, error;

	if (flags < 0)
		return errno;
	if (flags & O_NONBLOCK)
		return EAGAIN;
	/* Here, where it holds nothing, a thread may be cancelled. */
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	error = channel_wait_byte(fd);
	pthread_setcancelstate(state, NULL);
	return error;
}

CM_API struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct cm_session *session;
	struct cm_channel *channel;
	int error = session_get(&session);

	if (!error)
		error = channel_create(session, &channel);
	if (error) {
		errno = error;
		return NULL;
	}
	return &channel->base;
}
