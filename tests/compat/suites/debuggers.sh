#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Programs with hot system calls, whose sites a guest's kernel has rewritten: seen by gdb, unloaded,
# and after vfork.

. /suites/lib.sh
mkdir -p /tmp/debuggers
cd /tmp/debuggers

cat >site.S <<'END'
	.globl	site
	.type	site, @function
site:	movl	$NUMBER, %eax
	syscall
	ret
	.size	site, . - site
	.section .note.GNU-stack, "", @progbits
END
cat >hot.c <<'END'
/* Calls a site until it has been replaced, then for as long as it is asked to. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

long site(void);
volatile long rounds, wrong;

int main(int argc, char **argv)
{
	long i, times = argc > 1 ? atol(argv[1]) : 0;
	pid_t parent = getppid();

	for (i = 0; !times || i < times; i++) {
		wrong += site() != parent;
		rounds++;
	}
	printf("%ld wrong of %ld\n", wrong, rounds);
	return wrong != 0;
}
END
cat >reload.c <<'END'
/* Two libraries in turn, most often at the same address: each one's call must be its own. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	int i, j, same = 0, wrong = 0;
	void *before = NULL;

	for (i = 0; i < 200; i++) {
		void *library = dlopen(i & 1 ? "./second.so" : "./first.so", RTLD_NOW);
		long (*site)(void) = library ? (long (*)(void))dlsym(library, "site") : NULL;

		if (!site)
			return 2;
		same += (void *)site == before;
		before = (void *)site;
		for (j = 0; j < 500; j++)
			wrong += site() != (i & 1 ? getpid() : getppid());
		dlclose(library);
	}
	printf("%d wrong, %d at the same address\n", wrong, same);
	return wrong || !same;
}
END
cat >vforks.c <<'END'
/* Children in their parent's memory, which call hot sites there before they go. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

long site(void);

int main(void)
{
	int i, j, status, wrong = 0;
	pid_t me = getpid(), parent = getppid(), child;

	for (i = 0; i < 1000; i++) {
		for (j = 0; j < 100; j++)
			wrong += site() != parent;
		child = vfork();
		if (child == 0) {
			for (j = 0; j < 100; j++)
				if (site() != me)
					_exit(1);
			if (i & 1)
				_exit(0);
			execl("/bin/true", "true", (char *)NULL);
			_exit(2);
		}
		if (waitpid(child, &status, 0) != child || status)
			wrong++;
	}
	printf("%d wrong\n", wrong);
	return wrong != 0;
}
END
# A site in the file: mov $110,%eax; syscall; ret.
gap='[[:space:]]*'
bytes="0xb8${gap}0x6e${gap}0x00${gap}0x00${gap}0x00${gap}0x0f${gap}0x05${gap}0xc3"

build() {
	gcc -O1 -DNUMBER=110 -c -o site.o site.S
	gcc -O1 -Wall -Werror -g -o hot hot.c site.o
	gcc -O1 -Wall -Werror -o vforks vforks.c site.o
	gcc -O1 -Wall -Werror -o reload reload.c
	gcc -shared -DNUMBER=110 -o first.so site.S
	gcc -shared -DNUMBER=39 -o second.so site.S
}

# Breakpoints on each instruction of the site, and single steps through it, from the start.
breakpoints() {
	gdb -nx -batch -ex 'break *(char *)site' -ex 'break *((char *)site + 5)' \
		-ex 'break *((char *)site + 7)' -ex 'run 3000' \
		-ex 'continue' -ex 'continue' -ex 'continue 2999' \
		-ex 'print rounds' -ex 'stepi' -ex 'stepi' -ex 'stepi' \
		-ex 'x/8xb site' -ex 'delete' -ex 'continue' ./hot >out 2>&1
	cat out
	grep -q '^0 wrong of 3000$\|0 wrong of 3000' out && grep -q 'exited normally' out &&
		grep -q "$bytes" out
}

# A debugger attaches to a process that has been hot for a while, and detaches.
attached() {
	./hot & pid=$!
	sleep 1
	for _ in 1 2 3; do
		gdb -nx -batch -p $pid -ex 'x/8xb site' -ex 'break *((char *)site + 5)' \
			-ex 'continue' -ex 'stepi' -ex 'print $rip == (long)site + 7' \
			-ex 'delete' -ex 'print wrong' -ex 'detach' ./hot >out 2>&1
		cat out
		grep -q "$bytes" out && grep -q '^\$1 = 1$' out && grep -q '^\$2 = 0$' out || break
		sleep 0.2
		kill -0 $pid || break
		good=$((${good:-0} + 1))
	done
	kill $pid
	[ "${good:-0}" = 3 ]
}

# gdb writes a core dump and reads it.
core() {
	./hot & pid=$!
	sleep 1
	gcore -o core $pid
	kill $pid
	gdb -nx -batch -ex 'x/8xb site' -ex 'print wrong' -ex 'print rounds > 1000' \
		./hot core.$pid >out 2>&1
	cat out
	grep -q "$bytes" out && grep -q '^\$1 = 0$' out && grep -q '^\$2 = 1$' out
}

# strace sees each call.
traced() {
	strace -o trace -e trace=getppid ./hot 2000 && [ "$(grep -c '^getppid()' trace)" = 2001 ]
}

if [ "${1:-}" = one ]; then
	set -x
	"$2"
	exit
fi
for name in build breakpoints attached core traced; do
	part "debuggers_$name" sh -eu "$0" one "$name"
done
part debuggers_hot ./hot 1000000
part debuggers_reload ./reload
part debuggers_vfork ./vforks
