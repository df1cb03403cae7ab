/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Copies of this program, and their text. */
#ifndef COPIES_H
#define COPIES_H

#include <stddef.h>
#include <sys/types.h>

/* A copy's file, and the position of its text in the file and in a process. */
struct image {
	unsigned char *bytes;
	size_t size, offset, length;
	unsigned char *text;
};

/* Where a process maps the text of this file, NULL if it does not. */
unsigned char *text_of(pid_t pid, const char *path);
struct image image_of(const char *path, pid_t pid);

/* How many bytes of a process's text differ from the file. */
size_t differences(pid_t pid, const char *path);

/* A new copy of this program in /tmp that has never run. The path is valid until the next copy. */
const char *copy(const char *name);
/* The exit code of a reader that has found other bytes than those of the file. */
#define READ_OTHER 3

/* Acts that are in learning.c. */
int as_sleeper(const char *unused);
int as_opener(const char *unused);
int as_second(const char *path);
int as_looper(const char *path);
int as_spinner(const char *unused);
int as_parent(const char *unused);
int as_asker(const char *unused);
int as_refuser(const char *unused);

/* An address in this program's text. */
extern int site_marker(void);

#endif
