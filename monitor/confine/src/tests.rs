// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policies at work: children enter one and make calls.

mod libraries;
mod processes;
mod rings;
mod sockets;

use super::process_handles;
use super::thread_policies::{MONITOR, compile};
use seccompiler::BpfProgram;
use std::collections::BTreeMap;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The kernel executed it, whatever the result.
    Made,
    /// The filter returned this error (or the kernel did, which makes no difference here).
    Refused(i32),
    /// The caller got a SIGSYS.
    Died,
}

/// Forks a child that enters a policy and makes one call. An alarm ends it if the call hangs.
fn fate(filter: &BpfProgram, number: libc::c_long, args: [u64; 6]) -> Fate {
    // SAFETY: the child only makes system calls; the filter exists already.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: system calls with plain numbers. The addresses are null, and the kernel's answer
        // does not matter.
        unsafe {
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
            libc::signal(libc::SIGSYS, libc::SIG_DFL);
            libc::alarm(60);
            if seccompiler::apply_filter(filter).is_err() {
                libc::_exit(255);
            }
            let [a, b, c, d, e, f] = args;
            let done = libc::syscall(number, a, b, c, d, e, f);
            libc::_exit(if done < 0 {
                *libc::__errno_location()
            } else {
                0
            })
        }
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    match (libc::WIFSIGNALED(status), libc::WEXITSTATUS(status)) {
        (true, _) if libc::WTERMSIG(status) == libc::SIGSYS => Fate::Died,
        (true, _) => panic!("signal {}", libc::WTERMSIG(status)),
        (false, 255) => panic!("no filter"),
        (false, error @ (libc::EPERM | libc::EACCES | libc::ENOSYS)) => Fate::Refused(error),
        (false, _) => Fate::Made,
    }
}

/// The first and the last number of the descriptors that may end processes.
fn reserved() -> (u64, u64) {
    let (first, last) = process_handles::numbers().unwrap();
    (first.try_into().unwrap(), last.try_into().unwrap())
}

fn filters() -> BTreeMap<String, BpfProgram> {
    let policies = compile(MONITOR).unwrap().into_iter();
    let filters = policies.map(|(name, policy)| (name, policy.filter));
    filters.collect()
}

/// Calls that give a program new rights, new code or new ways into the kernel.
#[test]
fn no_thread_gets_further() {
    let new_namespace = u64::try_from(libc::CLONE_NEWUSER).unwrap();
    let (kept, last) = reserved();
    let (parent, kill) = (u64::from(std::os::unix::process::parent_id()), 9);
    let own = u64::from(std::process::id());
    let forbidden: [(libc::c_long, [u64; 6]); 59] = [
        // Signals to any process; -1 means all.
        (libc::SYS_kill, [1 << 30, kill, 0, 0, 0, 0]),
        (libc::SYS_kill, [u64::MAX, kill, 0, 0, 0, 0]),
        (libc::SYS_tkill, [1 << 30, kill, 0, 0, 0, 0]),
        (libc::SYS_tkill, [1 << 30, 6, 0, 0, 0, 0]),
        (libc::SYS_tgkill, [1 << 30, 1 << 30, kill, 0, 0, 0]),
        (libc::SYS_tgkill, [parent, parent, 6, 0, 0, 0]),
        (libc::SYS_rt_sigqueueinfo, [1 << 30, kill, 0, 0, 0, 0]),
        (
            libc::SYS_rt_tgsigqueueinfo,
            [1 << 30, 1 << 30, kill, 0, 0, 0],
        ),
        (libc::SYS_pidfd_send_signal, [kept, 15, 0, 0, 0, 0]),
        // To a process group.
        (libc::SYS_pidfd_send_signal, [kept, kill, 0, 4, 0, 0]),
        // An open folder of /proc also refers to a process.
        (libc::SYS_pidfd_send_signal, [kept - 1, kill, 0, 0, 0, 0]),
        (libc::SYS_pidfd_send_signal, [last + 1, kill, 0, 0, 0, 0]),
        (libc::SYS_close, [kept, 0, 0, 0, 0, 0]),
        (libc::SYS_close, [last, 0, 0, 0, 0, 0]),
        (libc::SYS_close, [1 << 32 | last, 0, 0, 0, 0, 0]),
        (libc::SYS_dup2, [0, kept, 0, 0, 0, 0]),
        (libc::SYS_dup3, [0, last, 0, 0, 0, 0]),
        (libc::SYS_close_range, [0, last, 0, 0, 0, 0]),
        (libc::SYS_pidfd_open, [parent, 0, 0, 0, 0, 0]),
        (libc::SYS_creat, [0; 6]),
        (libc::SYS_execve, [0; 6]),
        (libc::SYS_execveat, [0; 6]),
        (libc::SYS_fork, [0; 6]),
        (libc::SYS_vfork, [0; 6]),
        (libc::SYS_clone, [17, 0, 0, 0, 0, 0]),
        (libc::SYS_clone, [new_namespace | 17, 0, 0, 0, 0, 0]),
        (libc::SYS_unshare, [new_namespace, 0, 0, 0, 0, 0]),
        (libc::SYS_setns, [0; 6]),
        (libc::SYS_ptrace, [0; 6]),
        (libc::SYS_process_vm_writev, [0; 6]),
        (libc::SYS_bpf, [0; 6]),
        (libc::SYS_io_uring_setup, [0; 6]),
        (libc::SYS_userfaultfd, [0; 6]),
        (libc::SYS_perf_event_open, [0; 6]),
        (libc::SYS_keyctl, [0; 6]),
        (libc::SYS_mount, [0; 6]),
        (libc::SYS_chroot, [0; 6]),
        (libc::SYS_setuid, [0; 6]),
        (libc::SYS_memfd_create, [0; 6]),
        (libc::SYS_mmap, [0, 4096, 5, 0x22, u64::MAX, 0]),
        (libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0]),
        (libc::SYS_mprotect, [0, 4096, 4, 0, 0, 0]),
        (libc::SYS_socket, [16, 3, 0, 0, 0, 0]),
        (libc::SYS_socket, [2, 3, 0, 0, 0, 0]),
        // Limits end processes: RLIMIT_CPU of another one, and of this one.
        (libc::SYS_prlimit64, [parent, 0, 1 << 12, 0, 0, 0]),
        (libc::SYS_prlimit64, [parent, 0, 0, 1 << 12, 0, 0]),
        (libc::SYS_prlimit64, [own, 0, 0, 1 << 12, 0, 0]),
        (libc::SYS_prlimit64, [0, 0, 1 << 12, 0, 0, 0]),
        (libc::SYS_setrlimit, [0; 6]),
        // The services of a user: the session's bus, docker, agents of keys.
        (libc::SYS_socket, [1, 1, 0, 0, 0, 0]),
        (libc::SYS_socket, [1, 0x80801, 0, 0, 0, 0]),
        (libc::SYS_socketpair, [1, 2, 0, 0, 0, 0]),
        (libc::SYS_socketpair, [1, 5, 0, 0, 0, 0]),
        (libc::SYS_socketpair, [2, 1, 0, 0, 0, 0]),
        // SO_ATTACH_FILTER, SO_SNDBUFFORCE and SO_PEERPIDFD.
        (libc::SYS_setsockopt, [u64::MAX, 1, 26, 0, 0, 0]),
        (libc::SYS_setsockopt, [u64::MAX, 1, 32, 0, 0, 0]),
        (libc::SYS_getsockopt, [u64::MAX, 1, 77, 0, 0, 0]),
        // TIOCSTI.
        (libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]),
        // Calls with 32-bit numbers on the same processor.
        (0x4000_0000 | libc::SYS_write, [0; 6]),
    ];
    for (name, filter) in filters() {
        for (number, args) in forbidden {
            assert_eq!(
                fate(&filter, number, args),
                Fate::Died,
                "{name}: call {number} {args:x?}"
            );
        }
        // Calls that all threads need.
        assert_eq!(
            fate(&filter, libc::SYS_write, [u64::MAX; 6]),
            Fate::Made,
            "{name}"
        );
        assert_eq!(
            fate(&filter, libc::SYS_mmap, [0, 4096, 3, 0x22, u64::MAX, 0]),
            Fate::Made,
            "{name}"
        );
    }
}

#[test]
fn arguments_decide() {
    let filters = filters();
    let number = |signal: libc::c_int| u64::try_from(signal).unwrap();
    let device = u64::from(libc::S_IFCHR | 0o600);
    let at = u64::MAX;
    let (kept, _) = reserved();
    let own = u64::from(std::process::id());
    let (create, temporary) = (
        number(libc::O_CREAT | libc::O_WRONLY),
        number(libc::O_TMPFILE | libc::O_WRONLY),
    );
    const EPERM: Fate = Fate::Refused(libc::EPERM);
    for (thread, call, args, expected) in [
        ("net-user", libc::SYS_socket, [2, 1, 0, 0, 0, 0], Fate::Made),
        (
            "net-user",
            libc::SYS_socket,
            [10, 0x80802, 0, 0, 0, 0],
            Fate::Made,
        ),
        ("net-user", libc::SYS_socket, [1, 1, 0, 0, 0, 0], Fate::Died),
        (
            "net-user",
            libc::SYS_socket,
            [17, 3, 0, 0, 0, 0],
            Fate::Died,
        ),
        (
            "vsock",
            libc::SYS_socketpair,
            [1, 1, 0, 0, 0, 0],
            Fate::Made,
        ),
        (
            "vsock",
            libc::SYS_socketpair,
            [2, 1, 0, 0, 0, 0],
            Fate::Died,
        ),
        ("vsock", libc::SYS_connect, [0; 6], Fate::Died),
        (
            "rng",
            libc::SYS_openat,
            [at, 0, 0, 0, 0, 0],
            Fate::Refused(libc::EACCES),
        ),
        ("rng", libc::SYS_clone3, [0; 6], Fate::Died),
        ("rng", libc::SYS_read, [0; 6], Fate::Died),
        (
            "disk",
            libc::SYS_clone3,
            [0; 6],
            Fate::Refused(libc::ENOSYS),
        ),
        // Changes neither the size nor the data after the range.
        ("disk", libc::SYS_fallocate, [at, 0, 0, 0, 0, 0], Fate::Died),
        ("disk", libc::SYS_fallocate, [at, 8, 0, 0, 0, 0], Fate::Died),
        ("disk", libc::SYS_fallocate, [at, 3, 0, 0, 0, 0], Fate::Made),
        (
            "fs",
            libc::SYS_mknodat,
            [at, 0, device, 0, 0, 0],
            Fate::Refused(libc::EPERM),
        ),
        (
            "fs",
            libc::SYS_mknodat,
            [at, 0, 0o100_600, 0, 0, 0],
            Fate::Made,
        ),
        // No call that creates a file or changes its mode may set setuid or setgid.
        ("fs", libc::SYS_mknodat, [at, 0, 0o104_600, 0, 0, 0], EPERM),
        ("fs", libc::SYS_mknodat, [at, 0, 0o012_600, 0, 0, 0], EPERM),
        ("fs", libc::SYS_mkdirat, [at, 0, 0o2755, 0, 0, 0], EPERM),
        (
            "fs",
            libc::SYS_mkdirat,
            [at, 0, 0o1755, 0, 0, 0],
            Fate::Made,
        ),
        ("fs", libc::SYS_openat, [at, 0, create, 0o4755, 0, 0], EPERM),
        ("fs", libc::SYS_openat, [at, 0, create, 0o2755, 0, 0], EPERM),
        (
            "fs",
            libc::SYS_openat,
            [at, 0, temporary, 0o4755, 0, 0],
            EPERM,
        ),
        (
            "fs",
            libc::SYS_openat,
            [at, 0, create, 0o1755, 0, 0],
            Fate::Made,
        ),
        // With any value in the unused register.
        ("fs", libc::SYS_openat, [at, 0, 2, 0o7777, 0, 0], Fate::Made),
        ("fs", libc::SYS_openat2, [0; 6], Fate::Refused(libc::ENOSYS)),
        ("fs", libc::SYS_fchmod, [at, 0o4755, 0, 0, 0, 0], EPERM),
        ("fs", libc::SYS_fchmod, [at, 0o2755, 0, 0, 0, 0], EPERM),
        ("fs", libc::SYS_fchmod, [at, 0o1755, 0, 0, 0, 0], Fate::Made),
        ("fs", libc::SYS_fchmodat, [at, 0, 0o4755, 0, 0, 0], EPERM),
        // For folders that are setgid already.
        (
            "fs",
            libc::SYS_fchmodat,
            [at, 0, 0o2755, 0, 0, 0],
            Fate::Made,
        ),
        ("fs", libc::SYS_fchmodat2, [at, 0, 0o2755, 0, 0, 0], EPERM),
        (
            "fs-suid",
            libc::SYS_fchmod,
            [at, 0o6755, 0, 0, 0, 0],
            Fate::Made,
        ),
        (
            "fs-suid",
            libc::SYS_fchmodat,
            [at, 0, 0o6755, 0, 0, 0],
            Fate::Made,
        ),
        (
            "fs-suid",
            libc::SYS_openat,
            [at, 0, create, 0o6755, 0, 0],
            Fate::Made,
        ),
        (
            "fs-suid",
            libc::SYS_mknodat,
            [at, 0, 0o106_600, 0, 0, 0],
            Fate::Made,
        ),
        (
            "fs-suid",
            libc::SYS_mknodat,
            [at, 0, device, 0, 0, 0],
            EPERM,
        ),
        ("fs", libc::SYS_connect, [0; 6], Fate::Died),
        ("fs", libc::SYS_kill, [0, 9, 0, 0, 0, 0], Fate::Died),
        (
            "supervisor",
            libc::SYS_pidfd_send_signal,
            [kept, number(libc::SIGKILL), 0, 0, 0, 0],
            Fate::Made,
        ),
        (
            "supervisor",
            libc::SYS_pidfd_send_signal,
            [kept, number(libc::SIGTERM), 0, 0, 0, 0],
            Fate::Died,
        ),
        (
            "supervisor",
            libc::SYS_sendto,
            [at, 0, 0, 0, 1 << 12, 16],
            Fate::Died,
        ),
        (
            "supervisor",
            libc::SYS_sendto,
            [at, 0, 0, 0, 0, 0],
            Fate::Made,
        ),
        // vCPUs on KVM are threads of this process.
        (
            "vcpu",
            libc::SYS_tgkill,
            [1 << 30, 1 << 30, number(libc::SIGURG), 0, 0, 0],
            Fate::Died,
        ),
        (
            "vcpu",
            libc::SYS_tgkill,
            [own, 1 << 30, number(libc::SIGURG), 0, 0, 0],
            Fate::Made,
        ),
        // One that does work of cards has only open files, too.
        ("vcpu", libc::SYS_writev, [at, 0, 0, 0, 0, 0], Fate::Died),
        (
            "vcpu-cards",
            libc::SYS_writev,
            [at, 0, 0, 0, 0, 0],
            Fate::Made,
        ),
        ("vcpu-cards", libc::SYS_connect, [0; 6], Fate::Died),
        (
            "vcpu-cards",
            libc::SYS_socket,
            [1, 1, 0, 0, 0, 0],
            Fate::Died,
        ),
        (
            "vcpu-cards",
            libc::SYS_tgkill,
            [1 << 30, 1 << 30, number(libc::SIGURG), 0, 0, 0],
            Fate::Died,
        ),
        (
            "alarms",
            libc::SYS_tgkill,
            [1 << 30, 1 << 30, number(libc::SIGURG), 0, 0, 0],
            Fate::Made,
        ),
        (
            "alarms",
            libc::SYS_tgkill,
            [1 << 30, 1 << 30, number(libc::SIGSTOP), 0, 0, 0],
            Fate::Died,
        ),
        ("main", libc::SYS_socket, [1, 1, 0, 0, 0, 0], Fate::Died),
        (
            "main",
            libc::SYS_socketpair,
            [1, 0x80001, 0, 0, 0, 0],
            Fate::Made,
        ),
        // Reads a limit.
        ("main", libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0], Fate::Made),
        (
            "main",
            libc::SYS_setsockopt,
            [at, 1, 20, 0, 0, 0],
            Fate::Died,
        ),
        (
            "main",
            libc::SYS_getsockopt,
            [at, 1, 4, 0, 0, 0],
            Fate::Died,
        ),
        // vbusd's sockets have packets.
        (
            "vbus-join",
            libc::SYS_socket,
            [1, 0x80805, 0, 0, 0, 0],
            Fate::Made,
        ),
        (
            "vbus-join",
            libc::SYS_socket,
            [1, 2, 0, 0, 0, 0],
            Fate::Died,
        ),
    ] {
        assert_eq!(
            fate(&filters[thread], call, args),
            expected,
            "{thread}: call {call} {args:x?}"
        );
    }
}

/// A thread that reads the host's statistics opens nothing for writing and creates or truncates
/// nothing. Landlock denies the same to the supervisor, but not to the other threads.
#[test]
fn the_figures_policy_only_reads() {
    let filters = filters();
    let bits = |flags: libc::c_int| u64::from(flags.unsigned_abs());
    let own_bit = libc::O_TMPFILE & !libc::O_DIRECTORY;
    let writing = [
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_ACCMODE,
        libc::O_CREAT,
        libc::O_TRUNC,
        libc::O_APPEND,
        own_bit,
        libc::O_TMPFILE | libc::O_RDWR,
        libc::O_CLOEXEC | libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
    ];
    for thread in ["watch", "supervisor"] {
        let filter = &filters[thread];
        for flags in [
            libc::O_RDONLY,
            libc::O_CLOEXEC,
            libc::O_DIRECTORY | libc::O_NONBLOCK,
        ] {
            let flags = bits(flags);
            assert_eq!(
                fate(filter, libc::SYS_openat, [0, 0, flags, 0, 0, 0]),
                Fate::Made
            );
            assert_eq!(
                fate(filter, libc::SYS_open, [0, flags, 0, 0, 0, 0]),
                Fate::Made
            );
        }
        for flags in writing.map(bits) {
            let (at, old) = ([0, 0, flags, 0o600, 0, 0], [0, flags, 0o600, 0, 0, 0]);
            assert_eq!(
                fate(filter, libc::SYS_openat, at),
                Fate::Died,
                "{thread}: {flags:o}"
            );
            assert_eq!(
                fate(filter, libc::SYS_open, old),
                Fate::Died,
                "{thread}: {flags:o}"
            );
        }
        // Its flags are in memory, where a filter cannot read them.
        assert_eq!(
            fate(filter, libc::SYS_openat2, [0; 6]),
            Fate::Died,
            "{thread}"
        );
    }
}
