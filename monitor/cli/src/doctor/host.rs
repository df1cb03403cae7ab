// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's kernel and processor.

use super::child::works;
use super::{Finding, Status};
use paravane_confine as confine;
use paravane_hypervisor::process::host_cpu::{cpuid_faulting, fsgsbase};
use paravane_hypervisor::process::procfs;
use paravane_hypervisor::process::signal_scope::SignalScope;
use paravane_hypervisor::process::{LargePages, limits, space_cost};

/// The guest memory for which limits are reported, in bytes.
const MEMORY: u64 = 256 << 20;

/// The name of the finding about seccomp filters.
pub const SECCOMP: &str = "seccomp_filter";

/// All findings about the host, except /dev/kvm and the trial machine.
pub fn findings() -> Vec<Finding> {
    vec![
        kernel(),
        processors(),
        Finding::of(
            "fsgsbase",
            fsgsbase(),
            Status::Bad,
            "programs can set the FS and GS bases themselves",
            "programs cannot set the FS and GS bases themselves: Linux 5.9 and a processor \
             with FSGSBASE are needed",
        ),
        seccomp(),
        spec_allow(),
        landlock(),
        signals(),
        Finding::of(
            "user_namespaces",
            // SAFETY: a system call with a plain number, in a child with one thread.
            works(|| unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0 }),
            Status::Note,
            "can be created: a machine's processes have no network and no access to other \
             namespaces",
            "cannot be created: a machine's processes share this program's namespaces, and \
             only seccomp keeps them from using them",
        ),
        mappings(),
        processes(),
        Finding::of(
            "page_tables",
            procfs::page_tables(std::process::id()).is_some(),
            Status::Note,
            "the memory for a guest's page tables can be read (VmPTE) and is limited",
            "the memory for a guest's page tables cannot be read (/proc is missing): a \
             hostile guest can use up the host's memory, unless a control group limits it",
        ),
        large_pages(),
        Finding::of(
            "protection_keys",
            // SAFETY: system calls with plain numbers, in a child.
            works(|| unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) >= 0 }),
            Status::Note,
            "present",
            "not present; not needed yet",
        ),
        Finding::of(
            "cpuid_faulting",
            works(cpuid_faulting),
            Status::Note,
            "cpuid in guest programs can be answered by the guest's kernel",
            "cpuid in guest programs shows the host's processor",
        ),
        Finding::of(
            "avx512",
            std::arch::is_x86_feature_detected!("avx512f"),
            Status::Ok,
            "present: guests see it",
            "not present, so guests do not have it",
        ),
        thread_descriptors(),
        clock_source(),
        ptrace(),
        lock_limit(),
    ]
}

fn kernel() -> Finding {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (status, more) = match version {
        v if v < (5, 9) => (Status::Bad, ": 5.9 or later is needed"),
        v if v < (5, 14) => (
            Status::Note,
            ": before 5.14 pages are mapped one at a time, which is slower",
        ),
        v if v < (6, 1) => (
            Status::Note,
            ": before 6.1 guest memory gets large pages only where the host always gives them",
        ),
        _ => (Status::Ok, ""),
    };
    Finding::new(
        "kernel",
        status,
        release.clone(),
        format!("Linux {release}{more}"),
    )
}

fn processors() -> Finding {
    let count = paravane_hypervisor::process::allowed_cpus();
    let text = match count {
        1 => "1 processor may be used: more than one vCPU works, but takes turns".to_string(),
        n => format!("{n} processors may be used"),
    };
    Finding::new(
        "processors",
        if count > 1 { Status::Ok } else { Status::Note },
        count,
        text,
    )
}

fn seccomp() -> Finding {
    Finding::of(
        SECCOMP,
        works(|| install_filter(libc::SECCOMP_FILTER_FLAG_TSYNC)),
        Status::Bad,
        "can be installed: the filter keeps a guest inside of its machine",
        "cannot be installed (a sandbox around this program may forbid it): without the \
             filter guest code could call the host",
    )
}

fn spec_allow() -> Finding {
    Finding::of(
        "seccomp_spec_allow",
        works(|| {
            install_filter(libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW)
        }),
        Status::Bad,
        "supported: no speculation barrier at each hand-over; guest programs are \
             protected from each other's speculation as ordinary programs are",
        "not supported: Linux 4.17 or later is needed",
    )
}

fn landlock() -> Finding {
    let version = confine::landlock_version();
    let (status, text) = match version {
        0 => (
            Status::Note,
            "not available: only seccomp and this user's rights limit what the monitor's \
             threads open"
                .to_string(),
        ),
        1 => (
            Status::Note,
            "version 1: limits the monitor's threads to the machine's files, except for \
             threads that serve --volume or --rootfs folders: it would forbid renames there"
                .to_string(),
        ),
        _ => (
            Status::Ok,
            format!("version {version}: limits the monitor's threads to the machine's files"),
        ),
    };
    Finding::new("landlock", status, version, text)
}

/// What keeps a guest's signals away from other programs of this user.
fn signals() -> Finding {
    let scope = SignalScope::of_this_host();
    let (status, text) = match scope {
        SignalScope::Landlock => (
            Status::Ok,
            "of a machine's processes reach only that machine: Landlock version 6 or later \
             keeps them inside",
        ),
        SignalScope::PidNamespace => (
            Status::Ok,
            "of a machine's processes reach only that machine: it has a PID namespace, \
             because Landlock is missing or older than version 6",
        ),
        SignalScope::Monitor => (
            Status::Note,
            "of a machine's processes are sent by its monitor, which takes several times \
             longer: this host has neither Landlock version 6 (Linux 6.12) nor PID \
             namespaces for this user",
        ),
    };
    Finding::new("signals", status, scope.word(), text)
}

/// Installs a filter that admits everything.
fn install_filter(flags: libc::c_ulong) -> bool {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    let mut code = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: ALLOW,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: code.as_mut_ptr(),
    };
    // SAFETY: system calls with plain numbers and a pointer to a program of one instruction, in a
    // child.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            ) == 0
    }
}

fn mappings() -> Finding {
    const USUAL: u32 = 65530;
    let count = limits::mappings();
    let text = format!("{count} mappings for each address space");
    if count >= USUAL {
        return Finding::new("max_map_count", Status::Ok, count, text);
    }
    let text = format!(
        "{text}, fewer than usual: large guest programs will lose mappings (raise vm.max_map_count)"
    );
    Finding::new("max_map_count", Status::Note, count, text)
}

fn processes() -> Finding {
    let (tasks, memory) = (limits::tasks(), limits::memory());
    let with = |vcpus: u64| limits::processes(vcpus, space_cost(MEMORY, vcpus), &tasks, &memory);
    let (one, four) = (with(1), with(4));
    let text = format!(
        "address spaces kept at a time for a guest with 256 MiB: {} with 1 vCPU \
             (limited by {}), {} with 4 (by {})",
        one.left, one.source, four.left, four.source
    );
    let status = match one.left {
        0..2 => Status::Bad,
        2..64 => Status::Note,
        _ => Status::Ok,
    };
    Finding::new("processes", status, one.left, text)
}

fn large_pages() -> Finding {
    let policy =
        procfs::text("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let chosen = policy
        .split(['[', ']'])
        .nth(1)
        .unwrap_or("unknown")
        .to_string();
    let pages = paravane_hypervisor::process::large_pages();
    let (status, more) = match pages {
        LargePages::All => (Status::Ok, "come with the first touch"),
        LargePages::Image => (
            Status::Note,
            "come for the kernel only, on request: the rest takes the first touch of each small \
             page in each address space; a user namespace would allow more",
        ),
        LargePages::None => (
            Status::Note,
            "are not available: mapping the kernel's memory into a new address space is \
             several times slower",
        ),
    };
    let text = format!(
        "large pages for guest memory {more}; the host's policy for shared memory is `{chosen}`"
    );
    Finding::new("large_pages", status, pages != LargePages::None, text)
}

fn thread_descriptors() -> Finding {
    Finding::of(
        "set_thread_area",
        works(set_thread_area),
        Status::Note,
        "the 32-bit call works: system-call sites in guest programs can be rewritten \
             with any number of vCPUs",
        "the 32-bit call does not work: system-call sites in guest programs are \
             rewritten with 1 vCPU only; with more, each guest system call is trapped, \
             which takes several times longer",
    )
}

/// Creates a segment descriptor by a call that 64-bit programs have only in its 32-bit form. The
/// host may kill the process for it.
fn set_thread_area() -> bool {
    const NUMBER: u64 = 243;
    const PAGE: usize = 4096;
    // SAFETY: system calls in a child. The page is a new mapping below 4 GiB, where the call can
    // address it, and it contains the four words of the descriptor. The compiler reserves rbx, so
    // it is restored.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return false;
        }
        // Any free entry, base 0, limit 0, a 32-bit data segment.
        page.cast::<[u32; 4]>()
            .write_volatile([u32::MAX, 0, 0, 0x41]);
        let mut result = NUMBER;
        std::arch::asm!(
            "xchg {page}, rbx",
            "int 0x80",
            "xchg {page}, rbx",
            page = inout(reg) page.addr() => _,
            inout("rax") result,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
        result == 0
    }
}

fn clock_source() -> Finding {
    let name = procfs::text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match name.as_deref() {
        Some("tsc") => Finding::new(
            "clock",
            Status::Ok,
            "tsc",
            "the host's clock source is the time-stamp counter, as a guest's is",
        ),
        Some(other) => Finding::new(
            "clock",
            Status::Note,
            other,
            format!(
                "the host's clock source is `{other}`: the host may not trust the time-stamp \
             counter, which guests use"
            ),
        ),
        None => Finding::new(
            "clock",
            Status::Note,
            "unknown",
            "the host does not report its clock source",
        ),
    }
}

fn ptrace() -> Finding {
    let scope = procfs::number("/proc/sys/kernel/yama/ptrace_scope");
    let text = match scope {
        None | Some(0) => "debuggers can trace --debuggable guests",
        Some(1) => "debuggers can trace --debuggable guests as root, or as their parent (Yama)",
        Some(_) => "debuggers can trace --debuggable guests only as root, if at all (Yama)",
    };
    Finding::new("ptrace", Status::Ok, scope.unwrap_or(0), text)
}

fn lock_limit() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let text = match limit {
        None => "memory may be locked without limit".to_string(),
        Some(bytes) => format!("{} KiB of memory may be locked; not needed", bytes >> 10),
    };
    Finding::new("memlock", Status::Ok, limit, text)
}
