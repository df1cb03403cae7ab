// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * What rights a file gives, as the kernel sees it.
 *
 * privs mode FILE: prints the file's mode, and asks for nothing else of it.
 * privs give FILE, privs take FILE: gives the file a capability, and takes all.
 * privs start FILE: as user 1000, who has no capabilities, starts the file.
 * privs: prints the effective capabilities of this program.
 *
 * All print on one line, without its end.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static int mode(const char *name)
{
	struct statx stx;

	if (statx(AT_FDCWD, name, 0, STATX_MODE, &stx)) {
		perror(name);
		return 1;
	}
	printf("%o", stx.stx_mode & 07777);
	return 0;
}

static int give(const char *name)
{
	/* Version 2, effective: CAP_SETUID. */
	static const unsigned int capability[] = { 0x02000001, 1 << 7, 0, 0, 0 };

	if (setxattr(name, "security.capability", capability, sizeof(capability), 0))
		perror(name);
	return 0;
}

static int take(const char *name)
{
	if (removexattr(name, "security.capability"))
		perror(name);
	return 0;
}

static int start(const char *name)
{
	if (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000)) {
		perror("privs");
		return 1;
	}
	execl(name, name, NULL);
	perror(name);
	return 1;
}

static int effective(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long long all;
	char line[256];

	while (status && fgets(line, sizeof(line), status)) {
		if (sscanf(line, "CapEff: %llx", &all) == 1) {
			printf("%llx", all);
			return 0;
		}
	}
	return 1;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "mode"))
		return mode(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "give"))
		return give(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "take"))
		return take(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "start"))
		return start(argv[2]);
	return effective();
}
