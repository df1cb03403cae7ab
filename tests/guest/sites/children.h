/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Processes of copies: their start, and how they end. */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <sys/types.h>

/* Starts a copy, which does something (act_as). */
pid_t start(const char *path, const char *what, const char *argument);
/* Starts a copy that calls a site for ever, and waits until it does. */
pid_t looping(const char *path);

/* Waits. Returns the exit code, or 128 plus the signal that ended the process. */
int end_of(pid_t child);
/* A process must not have ended by itself. @when: for the message. */
void runs(pid_t child, const char *when);
/* Ends a process that must not have ended by itself. */
void end(pid_t child);

/*
 * Makes a copy do something (act_as). Returns its exit code, or 128 plus the signal that ended it.
 */
int once(const char *path, const char *what, const char *argument);
/* The number of runs after which the kernel has counted all sites. */
#define OFTEN 24
/* Runs a copy once, or OFTEN times. Each run must end with 0. */
void does(const char *path, const char *what, const char *argument);
void often(const char *path, const char *what);

#endif
