// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Processes of copies: their start, and how they end. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "check.h"
#include "children.h"

int end_of(pid_t child)
{
	int status = 0;

	CHECK(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void runs(pid_t child, const char *when)
{
	int status = 0, ended = waitpid(child, &status, WNOHANG);

	if (ended)
		printf("# %s: a process has ended, %#x\n", when, status);
	CHECK(!ended);
}

void end(pid_t child)
{
	int code;

	kill(child, SIGKILL);
	code = end_of(child);
	if (code != 128 + SIGKILL)
		printf("# a process had ended with %d\n", code);
	CHECK(code == 128 + SIGKILL);
}

pid_t start(const char *path, const char *what, const char *argument)
{
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(path, path, "as", what, argument, NULL);
		_exit(126);
	}
	return child;
}

int once(const char *path, const char *what, const char *argument)
{
	return end_of(start(path, what, argument));
}

void does(const char *path, const char *what, const char *argument)
{
	int code = once(path, what, argument);

	if (code)
		printf("# %s %s: %d\n", path, what, code);
	CHECK(!code);
}

void often(const char *path, const char *what)
{
	int i;

	for (i = 0; i < OFTEN; i++)
		does(path, what, "");
}

pid_t looping(const char *path)
{
	int ready[2];
	char number[16], byte;
	pid_t child;

	CHECK(!pipe(ready));
	snprintf(number, sizeof(number), "%d", ready[1]);
	child = start(path, "loop", number);
	close(ready[1]);
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	return child;
}
