/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that outlive a fork. A queue pair stays with the process that made it. So where
 * another process has the descriptor as well, and uses it, or is the only one that has it left,
 * the mirror becomes the way of the bytes: threads of the process that has the queue pair carry
 * them between it and the pair of UNIX sockets, whose end the kernel serves to everybody.
 *
 * Which way it is, all processes see in memory that they share.
 */
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "preload.h"

#define PUMP_SOCKETS 65536
#define PUMP_BYTES 65536
#define PUMP_STACK (256 << 10)
#define PUMP_WAIT_MS 10000
#define PUMP_EXIT_MS 5000

enum pump_mode { PUMP_DIRECT, PUMP_WANTED, PUMP_RUNS };

/* Shared by a process and all that it forks. An index is used once. */
static struct pump_shared {
	atomic_uint next;
	atomic_uchar modes[PUMP_SOCKETS];
} *pump_shared;

static atomic_bool pump_any; /* some socket in the table may not be direct */

void pump_register(struct rs_socket *rs)
{
	uint32_t index = pump_shared ? atomic_fetch_add(&pump_shared->next, 1) : PUMP_SOCKETS;

	if (index < PUMP_SOCKETS)
		rs->mode = &pump_shared->modes[index];
}

/* Bytes that come out of the program go to the peer. */
static void *pump_send(void *arg)
{
	struct rs_socket *rs = arg;
	unsigned char *buf = malloc(PUMP_BYTES);
	ssize_t got = buf ? 1 : -1;

	while (got > 0) {
		struct iovec iov = {buf, 0};
		struct rs_vector v;

		do {
			got = raw_recv(rs->mirror_fd, buf, PUMP_BYTES, 0);
		} while (got < 0 && errno == EINTR);
		iov.iov_len = got > 0 ? (size_t)got : 0;
		if (vector_init(&v, &iov, 1) || (got > 0 && stream_send(rs, &v, 0) < 0))
			got = -1;
	}
	if (got < 0)
		raw_shutdown(rs->mirror_fd, SHUT_RD);
	pthread_mutex_lock(&rs->lock);
	conn_shutdown(rs, SHUT_WR);
	rs->pump_has_sent = true;
	pthread_mutex_unlock(&rs->lock);
	free(buf);
	rs_leave(rs);
	return NULL;
}

/* Bytes that come from the peer go to the program. */
static void *pump_recv(void *arg)
{
	struct rs_socket *rs = arg;
	unsigned char *buf = malloc(PUMP_BYTES);
	ssize_t got = buf ? 1 : -1;

	while (got > 0) {
		struct iovec iov = {buf, PUMP_BYTES};
		struct rs_vector v;
		ssize_t done = 0, sent = 0;

		if (!vector_init(&v, &iov, 1))
			got = stream_recv(rs, &v, 0);
		while (done < got && sent >= 0) {
			sent = raw_send(rs->mirror_fd, buf + done, (size_t)(got - done),
					MSG_NOSIGNAL);
			done += sent > 0 ? sent : 0;
		}
		if (sent < 0)
			got = -1; /* nobody has the other end any more */
	}
	raw_shutdown(rs->mirror_fd, SHUT_WR);
	free(buf);
	rs_leave(rs);
	return NULL;
}

static bool pump_thread(struct rs_socket *rs, void *(*run)(void *))
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, PUMP_STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	atomic_fetch_add(&rs->refs, 1);
	rs->pump_threads++;
	error = pthread_create(&thread, &attr, run, rs);
	if (error) {
		rs->pump_threads--;
		atomic_fetch_sub(&rs->refs, 1);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return !error;
}

/* The mirror shows nothing any more, and has room; lock is held. */
static void pump_clear_mirror(struct rs_socket *rs)
{
	const int buffer = PUMP_BYTES * 2;

	mirror_clear(rs);
	raw_setsockopt(rs->fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	raw_setsockopt(rs->mirror_fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	rs->is_pumped = true;
}

/* Starts to carry bytes; lock is held and the mirror clear. */
static bool pump_start(struct rs_socket *rs)
{
	rs->nonblocking = false; /* of the program's end the kernel knows */
	if (!pump_thread(rs, pump_recv))
		return false;
	if (!pump_thread(rs, pump_send))
		raw_shutdown(rs->mirror_fd, SHUT_RD);
	atomic_store(&pump_any, true);
	if (rs->mode)
		atomic_store(rs->mode, PUMP_RUNS);
	return true;
}

/* Another process wants to use one of our sockets. */
static void pump_serve(struct rs_socket *rs)
{
	pthread_mutex_lock(&rs->lock);
	if (rs->mode && atomic_load(rs->mode) == PUMP_WANTED && !rs->is_pumped &&
	    rs->mirror_fd >= 0) {
		pump_clear_mirror(rs);
		pump_start(rs);
	}
	pthread_mutex_unlock(&rs->lock);
}

/*
 * Asks the process that has the queue pair, and waits until it carries the bytes. A child of vfork
 * shares everything with its parent but the thread.
 */
void pump_ask(struct rs_socket *rs)
{
	const int kick = rs->is_orphan ? rs->owner_kick_fd : service_kick_descriptor();
	const struct timespec moment = {.tv_nsec = 300000};
	const uint64_t one = 1, until = rs_now_us() + PUMP_WAIT_MS * 1000ull;
	unsigned char direct = PUMP_DIRECT;

	if (!rs->mode || rs->is_pumped)
		return;
	if (atomic_compare_exchange_strong(rs->mode, &direct, PUMP_WANTED) &&
	    syscall(SYS_write, kick, &one, sizeof(one)) < 0)
		preload_log("cannot wake the parent, which sees to the connection when it closes");
	while (atomic_load(rs->mode) != PUMP_RUNS && rs_now_us() < until)
		nanosleep(&moment, NULL);
	if (rs->is_orphan)
		rs->is_pumped = true;
}

bool pump_is_direct(int fd)
{
	struct rs_socket *rs;
	bool direct;

	if (!table_has(fd))
		return false;
	if (!atomic_load_explicit(&pump_any, memory_order_relaxed))
		return true;
	rs = table_get(fd);
	if (!rs)
		return false;
	if (rs->is_orphan)
		pump_ask(rs);
	direct = !rs->is_orphan && !rs->is_pumped;
	table_put(rs);
	return direct;
}

/* Whether some process still has the program's end. */
static bool pump_is_held(const struct rs_socket *rs)
{
	struct pollfd pfd = {.fd = rs->mirror_fd};

	return rs->mirror_fd >= 0 && REAL(poll)(&pfd, 1, 0) >= 0 && !(pfd.revents & POLLHUP);
}

bool pump_close(struct rs_socket *rs, int fd)
{
	bool held = false, maybe;

	pthread_mutex_lock(&rs->lock);
	maybe = !rs->is_orphan && !rs->is_pumped && rs->mirror_fd >= 0 &&
		(rs->state == RS_CONNECTED || rs->state == RS_ACCEPTING ||
		 (rs->state == RS_CLOSED && rs->ep.recv_ready));
	if (maybe)
		pump_clear_mirror(rs);
	held = rs->is_pumped && !maybe && !rs->is_orphan;
	rs->fd = -1;
	pthread_mutex_unlock(&rs->lock);
	REAL(close)(fd);
	if (!maybe)
		return held;
	pthread_mutex_lock(&rs->lock);
	held = pump_is_held(rs) && pump_start(rs);
	rs->is_pumped = held;
	pthread_mutex_unlock(&rs->lock);
	return held;
}

static bool pump_is_busy; /* while the process exits */

/*
 * The process exits. What it has written is to arrive, as TCP's would: by a socket of its own it
 * says that this was all, and of those that it pumps for others it sends what there is.
 */
static void pump_finish(struct rs_socket *rs)
{
	struct pollfd pfd = {.events = POLLIN};

	pthread_mutex_lock(&rs->lock);
	pfd.fd = rs->mirror_fd;
	if (!rs->is_pumped && rs->state == RS_CONNECTED && (rs->can_write || rs->can_read))
		conn_shutdown(rs, SHUT_RDWR);
	wait_progress(rs);
	if (rs->is_pumped && !rs->pump_has_sent)
		pump_is_busy |= pfd.fd >= 0 && REAL(poll)(&pfd, 1, 0) > 0;
	else if (rs->state == RS_CONNECTED)
		pump_is_busy |= !conn_is_flushed(rs);
	pthread_mutex_unlock(&rs->lock);
}

__attribute__((destructor)) static void pump_library_exit(void)
{
	const uint64_t until = rs_now_us() + PUMP_EXIT_MS * 1000;
	const struct timespec moment = {.tv_nsec = 500000};

	do {
		pump_is_busy = false;
		service_visit(pump_finish);
		if (pump_is_busy)
			nanosleep(&moment, NULL);
	} while (pump_is_busy && rs_now_us() < until);
}

static void pump_fork_child(void)
{
	atomic_store(&pump_any, true);
}

__attribute__((constructor)) static void pump_library_init(void)
{
	void *shared = mmap(NULL, sizeof(*pump_shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	pump_shared = shared == MAP_FAILED ? NULL : shared;
	service_on_kick(pump_serve);
	pthread_atfork(NULL, NULL, pump_fork_child);
}
