/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Host system calls: numbers and structures of the x86-64 Linux ABI, since there is no libc here.
 * In an address-space process the filter admits calls only from ph_host_call, and only those that
 * monitor/policies/address-space.json lists.
 */
#ifndef PROCESS_CALL_H
#define PROCESS_CALL_H

#include "state/state.h"

enum {
	HOST_read = 0, HOST_write = 1, HOST_close = 3, HOST_mmap = 9, HOST_mprotect = 10,
	HOST_munmap = 11, HOST_rt_sigaction = 13, HOST_rt_sigprocmask = 14, HOST_rt_sigreturn = 15,
	HOST_sched_yield = 24, HOST_madvise = 28, HOST_getpid = 39, HOST_sendto = 44,
	HOST_recvfrom = 45, HOST_clone = 56, HOST_exit = 60, HOST_wait4 = 61, HOST_getppid = 110,
	HOST_sigaltstack = 131, HOST_prctl = 157, HOST_arch_prctl = 158, HOST_gettid = 186,
	HOST_futex = 202, HOST_sched_setaffinity = 203, HOST_clock_gettime = 228,
	HOST_exit_group = 231, HOST_tgkill = 234, HOST_seccomp = 317, HOST_ppoll = 271,
	HOST_rt_sigtimedwait = 128, HOST_waitid = 247, HOST_signalfd4 = 289,
};

#define HOST_E2BIG 7
#define HOST_ENOMEM 12
#define HOST_ETIMEDOUT 110

#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_FIXED 0x10
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define MAP_POPULATE 0x8000
#define MADV_DONTNEED 4
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9

#define SIGILL 4
#define SIGTRAP 5
#define SIGBUS 7
#define SIGFPE 8
#define SIGKILL 9
#define SIGSEGV 11
#define SIGCHLD 17
#define SIGURG 23
#define SIGSYS 31

#define SIG_SETMASK 2

#define CLOCK_MONOTONIC 1
#define CLOCK_THREAD_CPUTIME_ID 3

struct host_timespec {
	s64 sec, nsec;
};

s64 ph_host_call(u64 nr, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f);

#define host0(nr) ph_host_call(HOST_##nr, 0, 0, 0, 0, 0, 0)
#define host1(nr, a) ph_host_call(HOST_##nr, (u64)(a), 0, 0, 0, 0, 0)
#define host2(nr, a, b) ph_host_call(HOST_##nr, (u64)(a), (u64)(b), 0, 0, 0, 0)
#define host3(nr, a, b, c) ph_host_call(HOST_##nr, (u64)(a), (u64)(b), (u64)(c), 0, 0, 0)
#define host4(nr, a, b, c, d) \
	ph_host_call(HOST_##nr, (u64)(a), (u64)(b), (u64)(c), (u64)(d), 0, 0)
#define host6(nr, a, b, c, d, e, f) \
	ph_host_call(HOST_##nr, (u64)(a), (u64)(b), (u64)(c), (u64)(d), (u64)(e), (u64)(f))

/* Makes a thread and returns its id. */
s64 ph_clone(u64 flags, void *stack, void (*start)(void *), void *argument);
/* Gives the calling thread a descriptor. Returns 0 or an error of the host. */
s64 ph_set_thread_area(void *description);
/* Abandons this stack and runs a function on another one. */
noreturn void ph_on_stack(u64 top, void (*function)(void *), void *argument);

#endif
