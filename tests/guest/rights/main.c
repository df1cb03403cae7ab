// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * rights FOLDER: makes setuid and setgid files in every way that Linux has, and gives a file
 * capabilities and other attributes. Prints the result of each: an error, or the mode that the file
 * then has. Static: it runs in guests and on the host.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static void mode(const char *what, const char *name, int result)
{
	struct stat st;

	if (result < 0 || stat(name, &st))
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: %o\n", what, st.st_mode & 07777);
}

static void attribute(const char *name, const void *value, size_t length)
{
	printf("%s: %s\n", name,
	       setxattr("plain", name, value, length, 0) ? strerror(errno) : "set");
}

int main(int argc, char **argv)
{
	/* Version 2, effective: CAP_SETUID. */
	static const unsigned int capability[] = { 0x02000001, 1 << 7, 0, 0, 0 };
	int fd;

	if (argc != 2 || chdir(argv[1])) {
		perror("rights");
		return 1;
	}
	umask(0);
	fd = open("opened", O_RDWR | O_CREAT | O_EXCL, 06755);
	mode("open", "opened", fd);
	close(fd);
	mode("mknod", "node", mknod("node", S_IFREG | 06755, 0));
	mode("mkdir", "folder", mkdir("folder", 06755));
	mode("chmod folder", "folder", chmod("folder", 06755));
	fd = open("plain", O_RDWR | O_CREAT | O_EXCL, 0755);
	mode("fchmod", "plain", fchmod(fd, 06755));
	mode("chmod", "plain", chmod("plain", 04755));
	mode("fchmodat", "plain", fchmodat(AT_FDCWD, "plain", 02755, 0));
	mode("rename", "renamed", rename("opened", "renamed"));
	mode("link", "linked", link("renamed", "linked"));
	attribute("security.capability", capability, sizeof(capability));
	attribute("trusted.paravane", "x", 1);
	attribute("user.paravane", "x", 1);
	return 0;
}
