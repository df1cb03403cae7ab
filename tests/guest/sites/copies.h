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

/* A copy of this program in /tmp, which nobody has run; its path, till the next one is made. */
const char *copy(const char *name);
/* Has it do something (act_as); its exit code, or 128 and the signal that has ended it. */
int once(const char *path, const char *what, const char *argument);
/* After so many runs all are counted. */
#define OFTEN 24

/* Acts that are in learning.c. */
int as_sleeper(const char *unused);
int as_spinner(const char *unused);
int as_parent(const char *unused);
int as_asker(const char *unused);
int as_refuser(const char *unused);

/* A place of this program's text. */
extern int site_marker(void);

#endif
