/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Copies of this program, and their text. */
#ifndef COPIES_H
#define COPIES_H

#include <stddef.h>
#include <sys/types.h>

/* A copy's file, and where its text is in it and in a process. */
struct image {
	unsigned char *bytes;
	size_t size, offset, length;
	unsigned char *text;
};

/* Where a process has the text of this file; NULL if it has not. */
unsigned char *text_of(pid_t pid, const char *path);
struct image image_of(const char *path, pid_t pid);

/* How many bytes of a process's text are not the file's. */
size_t differences(pid_t pid, const char *path);

/* A place of this program's text. */
extern int site_marker(void);

#endif
