/* SPDX-License-Identifier: Apache-2.0 */
/* Where the NIC's socket is. The rule is that of internal/ctl, which creates it. */
#include "ctl_path.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"

/*
 * What the environment said when the program started: some, nginx among them, empty it before they
 * fork those who do the work.
 */
static char *ctl_path_first_socket, *ctl_path_first_run;

__attribute__((constructor)) static void ctl_path_library_init(void)
{
	const char *path = getenv("RNIC_SOCKET"), *run = getenv("XDG_RUNTIME_DIR");

	ctl_path_first_socket = path ? strdup(path) : NULL;
	ctl_path_first_run = run ? strdup(run) : NULL;
}

static const char *ctl_path_variable(const char *name, const char *first)
{
	const char *value = getenv(name);

	return value ? value : first;
}

/* After su the variable may still name the directory of another user. */
static bool ctl_path_is_usable(const char *run)
{
	struct stat st;

	return run && *run == '/' && stat(run, &st) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid();
}

/*
 * In a directory that somebody else could have made or may write to there could be a stranger's
 * NIC, which would be handed our memory.
 */
static int ctl_path_check_owner(const char *dir)
{
	struct stat st;

	if (lstat(dir, &st) != 0)
		return errno;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
		rnic_log("%s is not a private directory of this user; set RNIC_SOCKET", dir);
		return EPERM;
	}
	return 0;
}

int ctl_path_find(struct sockaddr_un *addr)
{
	const char *path = ctl_path_variable("RNIC_SOCKET", ctl_path_first_socket);
	const char *run = ctl_path_variable("XDG_RUNTIME_DIR", ctl_path_first_run);
	char dir[sizeof(addr->sun_path)];
	struct stat ns;
	int len, error;

	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	if (path && *path) {
		len = snprintf(addr->sun_path, sizeof(addr->sun_path), "%s", path);
		return (size_t)len < sizeof(addr->sun_path) ? 0 : ENAMETOOLONG;
	}
	if (stat("/proc/thread-self/ns/net", &ns) != 0)
		return errno;
	if (ctl_path_is_usable(run))
		len = snprintf(dir, sizeof(dir), "%s/rnic", run);
	else
		len = snprintf(dir, sizeof(dir), "/tmp/rnic-%u", (unsigned int)geteuid());
	if ((size_t)len >= sizeof(dir))
		return ENAMETOOLONG;
	error = ctl_path_check_owner(dir);
	if (error)
		return error;
	len = snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/%llu.sock", dir,
		       (unsigned long long)ns.st_ino);
	return (size_t)len < sizeof(addr->sun_path) ? 0 : ENAMETOOLONG;
}
