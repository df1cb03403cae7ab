// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's kernel and processor.

use super::child::works;
use super::{Finding, Status};
use paravane_confine as confine;
use paravane_hypervisor::process::host_cpu::{cpuid_faulting, fsgsbase};
use paravane_hypervisor::process::procfs;
use paravane_hypervisor::process::signal_scope::SignalScope;
use paravane_hypervisor::process::{large_pages_work, limits, space_cost};

/// The guest memory for which limits are reported, in bytes.
const MEMORY: u64 = 256 << 20;

/// All findings about the host, except /dev/kvm and the trial machine.
pub fn findings() -> Vec<Finding> {
    vec![
        kernel(),
        processors(),
        Finding::of(
            "fsgsbase",
            fsgsbase(),
            Status::Bad,
            "programs may set the FS and GS bases themselves",
            "programs may not set the FS and GS bases themselves: it needs Linux 5.9 and a processor with FSGSBASE",
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
            "can be made: address spaces are cut off from the network and from other namespaces, too",
            "cannot be made: address spaces share this program's, seccomp alone keeps them from using them",
        ),
        mappings(),
        processes(),
        Finding::of(
            "page_tables",
            procfs::page_tables(std::process::id()).is_some(),
            Status::Note,
            "what a guest costs in page tables can be read (VmPTE) and is limited",
            "what a guest costs in page tables cannot be read (/proc is missing): a hostile guest can use up the host's \
             memory, unless a control group limits it",
        ),
        large_pages(),
        Finding::of(
            "protection_keys",
            // SAFETY: system calls with plain numbers, in a child.
            works(|| unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, 0) >= 0 }),
            Status::Note,
            "present",
            "not present: nothing needs them yet",
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
            "not present, for guests neither",
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
            ": before 5.14 pages cannot be filled many at once",
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
        "seccomp_filter",
        works(|| install_filter(libc::SECCOMP_FILTER_FLAG_TSYNC)),
        Status::Bad,
        "can be installed: this is what keeps a guest in",
        "cannot be installed (is this program in a sandbox that forbids it?): without it guest code could call the host",
    )
}

fn spec_allow() -> Finding {
    Finding::of(
        "seccomp_spec_allow",
        works(|| {
            install_filter(libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW)
        }),
        Status::Bad,
        "known: no speculation barrier at each hand-over; a guest's programs are kept from each other's speculation \
         as the host keeps ordinary programs",
        "not known: Linux 4.17 or later is needed",
    )
}

fn landlock() -> Finding {
    let version = confine::landlock_version();
    let (status, text) = match version {
        0 => (
            Status::Note,
            "is not there: what the monitor's threads may open is bounded by seccomp and this user's rights alone"
                .to_string(),
        ),
        1 => (
            Status::Note,
            "version 1: keeps the monitor's threads to the machine's files, but for folders given with --volume or \
             --rootfs, whose renames it would forbid"
                .to_string(),
        ),
        _ => (
            Status::Ok,
            format!("version {version}: keeps the monitor's threads to the files that the machine was given"),
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
            "of a machine's processes scope that machine only: Landlock's word, from version 6 on",
        ),
        SignalScope::PidNamespace => (
            Status::Ok,
            "of a machine's processes scope that machine only: it has a namespace of process ids, since Landlock here is older \
             than version 6 or missing",
        ),
        SignalScope::Monitor => (
            Status::Note,
            "of a machine's processes are sent by its monitor, which takes several times longer: this host has neither \
             version 6 of Landlock (Linux 6.12) nor namespaces of process ids for this user",
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
    // SAFETY: system calls with plain numbers and a pointer to a program of one instruction, in a child.
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
        "address spaces kept at a time, of a guest with 256 MiB: {} with 1 vCPU (limited by {}), {} with 4 (by {})",
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
    let collapse = works(large_pages_work);
    let (status, more) = if collapse {
        (Status::Ok, "can be made on request (MADV_COLLAPSE)")
    } else if ["always", "force", "within_size", "advise"].contains(&chosen.as_str()) {
        (Status::Ok, "come from the host's policy, not on request")
    } else {
        (
            Status::Note,
            "not to be had: mapping the kernel's memory into a new address space is several times slower",
        )
    };
    let text = format!(
        "large pages for guest memory {more}; the host's policy for shared memory is `{chosen}`"
    );
    Finding::new("large_pages", status, collapse, text)
}

fn thread_descriptors() -> Finding {
    Finding::of(
        "set_thread_area",
        works(set_thread_area),
        Status::Note,
        "the 32-bit call works: system-call sites in guest programs can be rewritten with any number of vCPUs",
        "the 32-bit call does not work here: system-call sites in guest programs are rewritten with 1 vCPU only, with more each \
         guest system call is trapped, which takes several times longer",
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
            "the host keeps time by the time-stamp counter, as guests do",
        ),
        Some(other) => Finding::new(
            "clock",
            Status::Note,
            other,
            format!(
                "the host keeps time by `{other}`: it may not trust the time-stamp counter, by which guests keep theirs"
            ),
        ),
        None => Finding::new(
            "clock",
            Status::Note,
            "unknown",
            "the host does not say what it keeps time by",
        ),
    }
}

fn ptrace() -> Finding {
    let scope = procfs::number("/proc/sys/kernel/yama/ptrace_scope");
    let text = match scope {
        None | Some(0) => "debuggers can attach to --debuggable guests",
        Some(1) => {
            "debuggers can attach to --debuggable guests as root, or where they are their parent (Yama)"
        }
        Some(_) => "debuggers can attach to --debuggable guests as root at most (Yama)",
    };
    Finding::new("ptrace", Status::Ok, scope.unwrap_or(0), text)
}

fn lock_limit() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let text = match limit {
        None => "memory may be locked without limit".to_string(),
        Some(bytes) => format!(
            "{} KiB of memory may be locked: nothing needs it",
            bytes >> 10
        ),
    };
    Finding::new("memlock", Status::Ok, limit, text)
}
