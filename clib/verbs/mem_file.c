/* SPDX-License-Identifier: Apache-2.0 */
#include "mem_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Guarded by the lock of mem_extent.c. */
static int file_fd = -1;
static uint64_t file_size;
static uint64_t file_inode;
static uint32_t file_major, file_minor;

int mem_file_fd(void)
{
	return file_fd;
}

bool mem_file_owns(const struct maps_area *area)
{
	return file_fd >= 0 && area->shared && area->inode == file_inode &&
	       area->major == file_major && area->minor == file_minor;
}

/*
 * The file is sparse and has its final size from the start, so that the NIC maps it once. Twice
 * the machine's memory is more than can be in it. A file longer than RLIMIT_FSIZE would raise a
 * signal, not just fail.
 */
static uint64_t file_choose_size(void)
{
	const uint64_t least = 16ull << 30;
	uint64_t size = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) * 2;
	struct rlimit limit;

	if (size < least)
		size = least;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
		size = limit.rlim_cur;
	return size & ~((uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

static int file_create(void)
{
	const unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	const unsigned int noexec_seal = 8; /* MFD_NOEXEC_SEAL, of kernel 6.3 */
	int fd = memfd_create("rnic-memory", flags | noexec_seal);

	return fd < 0 && errno == EINVAL ? memfd_create("rnic-memory", flags) : fd;
}

uint64_t mem_file_open(void)
{
	struct stat st;

	if (file_fd >= 0)
		return file_size;
	file_size = file_choose_size();
	file_fd = file_create();
	if (file_fd < 0)
		return 0;
	/* The NIC maps only files that cannot shrink under it. */
	if (ftruncate(file_fd, (off_t)file_size) != 0 ||
	    fcntl(file_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
	    fstat(file_fd, &st) != 0) {
		mem_file_forget();
		return 0;
	}
	file_inode = st.st_ino;
	file_major = major(st.st_dev);
	file_minor = minor(st.st_dev);
	return file_size;
}

void mem_file_forget(void)
{
	if (file_fd >= 0)
		close(file_fd);
	file_fd = -1;
	file_inode = 0;
}

static bool file_write(uintptr_t addr, size_t length, uint64_t offset)
{
	while (length) {
		ssize_t done = pwrite(file_fd, (const void *)addr, length, (off_t)offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		addr += (size_t)done;
		length -= (size_t)done;
		offset += (uint64_t)done;
	}
	return true;
}

/*
 * Copies into the file. Pages that were never touched are skipped, so that sparse memory stays
 * sparse; the kernel's page map tells which those are (bit 63: present, bit 62: swapped out).
 */
static bool file_copy_in(uintptr_t addr, size_t length, uint64_t offset)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t entries[512];
	size_t at = 0;
	bool ok = true;
	int map = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);

	while (ok && at < length) {
		size_t want = (length - at) / page, run = 0, have = 0;

		if (want > sizeof(entries) / sizeof(entries[0]))
			want = sizeof(entries) / sizeof(entries[0]);
		if (map >= 0) {
			ssize_t got = pread(map, entries, want * 8,
					    (off_t)((addr + at) / page * 8));
			have = got > 0 ? (size_t)got / 8 : 0;
		}
		if (have == 0) { /* no page map: copy everything */
			ok = file_write(addr + at, want * page, offset + at);
			at += want * page;
			continue;
		}
		for (size_t i = 0; ok && i <= have; i++) {
			if (i < have && entries[i] >> 62) {
				run++;
				continue;
			}
			if (run)
				ok = file_write(addr + at + (i - run) * page, run * page,
						offset + at + (i - run) * page);
			run = 0;
		}
		at += have * page;
	}
	if (map >= 0)
		close(map);
	return ok;
}

int mem_file_advise(uintptr_t addr, size_t length, int advice)
{
	return (int)syscall(SYS_madvise, addr, length, advice);
}

/*
 * An allocator that lets a block grow by mremap, with a call that is not ours, would get the pages
 * of the file that come next. Over two mappings that call fails, and the allocator copies. A last
 * page with another advice is a mapping of its own; to memory of this kind the advice means
 * nothing. Smaller blocks do not grow like that.
 */
#define FILE_SPLIT_BYTES (64u << 10)

static void file_split(uintptr_t addr, size_t length)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (length >= FILE_SPLIT_BYTES)
		mem_file_advise(addr + length - page, page, MADV_RANDOM);
}

bool mem_file_move_in(uintptr_t addr, size_t length, uint64_t offset)
{
	sigset_t all, before;
	bool ok;

	/* A signal handler's write between copy and remap would be lost. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ok = file_copy_in(addr, length, offset) &&
	     mmap((void *)addr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_fd,
		  (off_t)offset) != MAP_FAILED;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ok)
		file_split(addr, length);
	else
		mem_file_punch(offset, length);
	return ok;
}

static int area_prot(const struct maps_area *part)
{
	return (part->readable ? PROT_READ : 0) | (part->writable ? PROT_WRITE : 0) |
	       (part->executable ? PROT_EXEC : 0);
}

/* What the program has said of a mapping holds for what takes its place. */
static void area_repeat_advice(const struct maps_area *part)
{
	const size_t length = part->end - part->start;

	if (part->flags & MAPS_DONTFORK)
		mem_file_advise(part->start, length, MADV_DONTFORK);
	if (part->flags & MAPS_DONTDUMP)
		mem_file_advise(part->start, length, MADV_DONTDUMP);
}

/* Copies the file's data between offset and offset+length to memory that reads as zeros. */
static bool file_copy_out(unsigned char *to, size_t length, uint64_t offset)
{
	const off_t end = (off_t)(offset + length);
	off_t at = lseek(file_fd, (off_t)offset, SEEK_DATA);

	while (at >= 0 && at < end) {
		off_t hole = lseek(file_fd, at, SEEK_HOLE);

		if (hole < 0)
			return false;
		if (hole > end)
			hole = end;
		while (at < hole) {
			ssize_t got = pread(file_fd, to + (at - (off_t)offset), (size_t)(hole - at),
					    at);
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				return false;
			at += got;
		}
		at = lseek(file_fd, at, SEEK_DATA);
	}
	return at >= 0 || errno == ENXIO; /* ENXIO: no data behind this point */
}

/*
 * The new memory is made in its place and then filled. Made elsewhere and moved there, it could not
 * join its neighbours again (the kernel counts an anonymous page's offset from where it was first
 * touched), and a program that registers many small pieces would run out of mappings.
 */
bool mem_file_move_out(const struct maps_area *part)
{
	const size_t length = part->end - part->start;
	void *const at = (void *)part->start;
	sigset_t all, before;
	bool ok;

	/* Nobody may look meanwhile: the process has one thread, and signals wait. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ok = mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		  0) != MAP_FAILED &&
	     file_copy_out(at, length, part->offset) && mprotect(at, length, area_prot(part)) == 0;
	if (!ok)
		mmap(at, length, area_prot(part), MAP_SHARED | MAP_FIXED, file_fd,
		     (off_t)part->offset);
	area_repeat_advice(part);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ok;
}

bool mem_file_zero(const struct maps_area *part)
{
	const size_t length = part->end - part->start;

	if (mmap((void *)part->start, length, area_prot(part),
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return false;
	area_repeat_advice(part);
	return true;
}

void *mem_file_copy(const struct maps_area *part)
{
	const size_t length = part->end - part->start;
	void *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return NULL;
	if (file_copy_out(copy, length, part->offset) &&
	    mprotect(copy, length, area_prot(part)) == 0)
		return copy;
	munmap(copy, length);
	return NULL;
}

void mem_file_replace(const struct maps_area *part, void *copy)
{
	const size_t length = part->end - part->start;
	void *const at = (void *)part->start;

	if (copy && (void *)syscall(SYS_mremap, copy, length, length,
				    MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
		return;
	mmap(at, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void mem_file_make_private(const struct maps_area *part)
{
	if (mmap((void *)part->start, part->end - part->start, area_prot(part),
		 MAP_PRIVATE | MAP_FIXED, file_fd, (off_t)part->offset) == MAP_FAILED)
		mem_file_replace(part, NULL);
}

uint64_t mem_file_bytes(void)
{
	struct stat st;

	return file_fd >= 0 && fstat(file_fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

void mem_file_punch(uint64_t offset, uint64_t length)
{
	if (file_fd >= 0)
		fallocate(file_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			  (off_t)length);
}
