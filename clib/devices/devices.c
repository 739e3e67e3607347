/* SPDX-License-Identifier: Apache-2.0 */
/*
 * librnicdevices: UCX looks whether the device file of a verbs device is there, before it opens the
 * device, and leaves out those without one. Devices of a SoftRNIC have none, for they need no
 * kernel. Loaded before a program, this library says that their files are there: it answers for
 * /dev/null, which is a character device that everybody may read and write.
 *
 * It calls nothing that it defines, so that it needs to look no function up.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICES_API __attribute__((visibility("default")))

/* Of programs that were linked with a glibc before 2.33. */
DEVICES_API int __xstat(int version, const char *path, struct stat *st);
DEVICES_API int __xstat64(int version, const char *path, struct stat64 *st);

/* What to look at in the place of a path. Devices of the kernel are called uverbsN. */
static const char *stand_in(const char *path)
{
	static const char ours[] = "/dev/infiniband/uverbs-";

	return strncmp(path, ours, sizeof(ours) - 1) ? path : "/dev/null";
}

DEVICES_API int stat(const char *restrict path, struct stat *restrict st)
{
	return fstatat(AT_FDCWD, stand_in(path), st, 0);
}

DEVICES_API int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return fstatat64(AT_FDCWD, stand_in(path), st, 0);
}

DEVICES_API int __xstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return fstatat(AT_FDCWD, stand_in(path), st, 0);
}

DEVICES_API int __xstat64(int version, const char *path, struct stat64 *st)
{
	(void)version;
	return fstatat64(AT_FDCWD, stand_in(path), st, 0);
}

DEVICES_API int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, stand_in(path), mode, 0);
}
