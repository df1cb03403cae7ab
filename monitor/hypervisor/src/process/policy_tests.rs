// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the filter decides, found by running it.

use super::*;
use paravane_confine::policy_language::JUMP;
use proptest::prelude::*;
use seccompiler::sock_filter;

const HOST_CALL: u64 = 0x7f00_1234;
const PARAMETERS: Parameters = Parameters {
    host_call: HOST_CALL,
    ram_first: 5,
    ram_last: 8,
    signal_scope: SignalScope::Landlock,
};
const ALLOW: u32 = 0x7fff_0000;
const RET_KILL_PROCESS: u32 = 0x8000_0000;

/// A call as the filter sees it.
#[derive(Clone, Copy, Debug)]
struct Data {
    number: u32,
    arch: u32,
    pointer: u64,
    args: [u64; 6],
}

impl Data {
    fn layer(number: i64, args: [u64; 6]) -> Self {
        let number = u32::try_from(number).unwrap();
        Data {
            number,
            arch: AUDIT_ARCH_X86_64,
            pointer: HOST_CALL,
            args,
        }
    }

    fn word(&self, offset: u32) -> u32 {
        let half = |value: u64| {
            u32::try_from(if offset.is_multiple_of(8) {
                value & 0xffff_ffff
            } else {
                value >> 32
            })
            .unwrap()
        };
        match offset {
            0 => self.number,
            4 => self.arch,
            8 | 12 => half(self.pointer),
            _ => half(self.args[offset as usize / 8 - 2]),
        }
    }
}

fn filter() -> BpfProgram {
    compile(ADDRESS_SPACE, &PARAMETERS).unwrap()
}

/// Runs a filter as the host kernel does.
fn run(program: &[sock_filter], data: &Data) -> u32 {
    let (mut at, mut a) = (0usize, 0u32);
    loop {
        let i = &program[at];
        at += 1;
        let jump = |condition: bool| usize::from(if condition { i.jt } else { i.jf });
        match i.code {
            LOAD => a = data.word(i.k),
            JUMP => at += i.k as usize,
            JUMP_EQUAL => at += jump(a == i.k),
            0x25 => at += jump(a > i.k),
            0x35 => at += jump(a >= i.k),
            0x45 => at += jump(a & i.k != 0),
            0x54 => a &= i.k,
            RETURN => return i.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn decide(number: i64, args: [u64; 6]) -> u32 {
    run(&filter(), &Data::layer(number, args))
}

#[test]
fn numbers_belong_to_their_names() {
    let policy: Policy = serde_json::from_str(ADDRESS_SPACE).unwrap();
    let known = [
        ("futex", libc::SYS_futex),
        ("mmap", libc::SYS_mmap),
        ("mprotect", libc::SYS_mprotect),
        ("munmap", libc::SYS_munmap),
        ("tgkill", libc::SYS_tgkill),
        ("clock_gettime", libc::SYS_clock_gettime),
        ("rt_sigreturn", libc::SYS_rt_sigreturn),
        ("madvise", libc::SYS_madvise),
        ("sched_yield", libc::SYS_sched_yield),
        ("arch_prctl", libc::SYS_arch_prctl),
        ("restart_syscall", libc::SYS_restart_syscall),
        ("exit_group", libc::SYS_exit_group),
    ];
    let written: Vec<_> = policy
        .calls
        .iter()
        .map(|c| (c.name.as_str(), i64::from(c.number)))
        .collect();
    assert_eq!(written, known);
}

#[test]
fn it_fits_and_the_hot_calls_are_short() {
    let program = filter();
    assert!(
        program.len() <= usize::try_from(paravane_abi::process::PHV_FILTER_MAX).unwrap(),
        "{}",
        program.len()
    );
}

/// A clock id as the host makes it of a process, thread or descriptor and a kind.
fn clock_of(id: u32, kind: u32) -> u64 {
    u64::from(!id << 3 | kind)
}

#[test]
fn what_the_layer_needs_is_admitted() {
    let map = 0x11;
    for (number, args) in [
        (libc::SYS_futex, [0, 0, 0, 0, 0, 0]),
        (libc::SYS_futex, [0, 1, 0, 0, 0, 0]),
        (libc::SYS_futex, [0, 9, 0, 0, 0, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, map, 5, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, map | 0x8000, 8, 0]),
        (libc::SYS_mprotect, [0; 6]),
        (libc::SYS_munmap, [0; 6]),
        (libc::SYS_madvise, [0, 0, 4, 0, 0, 0]),
        (libc::SYS_madvise, [0, 0, 22, 0, 0, 0]),
        (libc::SYS_madvise, [0, 0, 23, 0, 0, 0]),
        (libc::SYS_tgkill, [1, 1, 23, 0, 0, 0]),
        (libc::SYS_rt_sigreturn, [0; 6]),
        (libc::SYS_clock_gettime, [3, 0, 0, 0, 0, 0]),
        (libc::SYS_clock_gettime, [1, 0, 0, 0, 0, 0]),
        // CPU time of a thread, by its id.
        (libc::SYS_clock_gettime, [clock_of(4711, 6), 0, 0, 0, 0, 0]),
        (libc::SYS_sched_yield, [0; 6]),
        (libc::SYS_arch_prctl, [0x1012, 0, 0, 0, 0, 0]),
        (libc::SYS_arch_prctl, [0x1012, 1, 0, 0, 0, 0]),
        (libc::SYS_restart_syscall, [0; 6]),
        (libc::SYS_exit_group, [0; 6]),
    ] {
        assert_eq!(decide(number, args), ALLOW, "{number} {args:x?}");
    }
}

#[test]
fn nothing_beyond_it_is() {
    let map = 0x11;
    for (number, args) in [
        (libc::SYS_futex, [0, 128, 0, 0, 0, 0]),
        (libc::SYS_futex, [0, 3, 0, 0, 0, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, map, 4, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, map, 9, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, map, u64::MAX, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, 0x12, 5, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, 0x31, 5, 0]),
        (libc::SYS_mmap, [0x1000, 4096, 7, 0x1, 5, 0]),
        (libc::SYS_madvise, [0, 0, 8, 0, 0, 0]),
        (libc::SYS_madvise, [0, 0, 9, 0, 0, 0]),
        (libc::SYS_madvise, [0, 0, 100, 0, 0, 0]),
        (libc::SYS_tgkill, [1, 1, 9, 0, 0, 0]),
        (libc::SYS_clock_gettime, [2, 0, 0, 0, 0, 0]),
        // CPU time of a process, user time of a thread, a descriptor's clock; not negative.
        (libc::SYS_clock_gettime, [clock_of(4711, 2), 0, 0, 0, 0, 0]),
        (libc::SYS_clock_gettime, [clock_of(4711, 5), 0, 0, 0, 0, 0]),
        (libc::SYS_clock_gettime, [clock_of(4, 3), 0, 0, 0, 0, 0]),
        (libc::SYS_clock_gettime, [6, 0, 0, 0, 0, 0]),
        (libc::SYS_arch_prctl, [0x1012, 2, 0, 0, 0, 0]),
        (libc::SYS_arch_prctl, [0x1012, 1 << 32, 0, 0, 0, 0]),
        (libc::SYS_arch_prctl, [0x1002, 0, 0, 0, 0, 0]),
        (libc::SYS_arch_prctl, [0x1001, 1, 0, 0, 0, 0]),
        (libc::SYS_execve, [0; 6]),
        (libc::SYS_open, [0; 6]),
        (libc::SYS_clone, [0; 6]),
        (libc::SYS_ptrace, [0; 6]),
        (0x4000_0000 | libc::SYS_futex, [0; 6]),
    ] {
        assert_eq!(decide(number, args), RET_KILL_PROCESS, "{number} {args:x?}");
    }
}

/// Which signals may leave a process depends on what keeps them in the machine.
#[test]
fn without_a_wall_no_signal_is_admitted() {
    for (signal_scope, expected) in [
        (SignalScope::Landlock, ALLOW),
        (SignalScope::PidNamespace, ALLOW),
        (SignalScope::Monitor, RET_KILL_PROCESS),
    ] {
        let program = compile(
            ADDRESS_SPACE,
            &Parameters {
                signal_scope,
                ..PARAMETERS
            },
        )
        .unwrap();
        let decide = |number, args| run(&program, &Data::layer(number, args));
        for pid in [2, 1000, u64::MAX] {
            assert_eq!(
                decide(libc::SYS_tgkill, [pid, pid, 23, 0, 0, 0]),
                expected,
                "{signal_scope:?}"
            );
            assert_eq!(
                decide(libc::SYS_tgkill, [pid, pid, 9, 0, 0, 0]),
                RET_KILL_PROCESS
            );
        }
        // The parent of all processes, where its id is known.
        let of_parent = if signal_scope == SignalScope::PidNamespace {
            RET_KILL_PROCESS
        } else {
            expected
        };
        assert_eq!(
            decide(libc::SYS_tgkill, [1, 1, 23, 0, 0, 0]),
            of_parent,
            "{signal_scope:?}"
        );
        assert_eq!(decide(libc::SYS_sched_yield, [0; 6]), ALLOW);
    }
}

#[test]
fn calls_of_the_guest_are_trapped() {
    let data = Data::layer(libc::SYS_futex, [0; 6]);
    let program = filter();
    for data in [
        Data {
            pointer: HOST_CALL + 1,
            ..data
        },
        Data {
            pointer: HOST_CALL | 1 << 32,
            ..data
        },
        Data { pointer: 0, ..data },
        Data {
            arch: 0x4000_0003,
            ..data
        },
    ] {
        assert_eq!(run(&program, &data), RET_TRAP, "{data:x?}");
    }
}

#[test]
fn a_policy_that_is_not_clear_is_refused() {
    let with = |rules: &str| {
        let text = format!(
            r#"{{"license": "", "about": "", "calls":
                [{{"name": "x", "number": 1, "reason": "y", "rules": {rules}}}]}}"#
        );
        compile(&text, &PARAMETERS).unwrap_err()
    };
    assert!(format!("{:#}", with("[]")).contains("no rule"));
    assert!(format!("{:#}", with("[[], []]")).contains("useless"));
    assert!(
        format!(
            "{:#}",
            with(r#"[[{"arg": 1, "bits": 32, "is": "O_NOTHING"}]]"#)
        )
        .contains("O_NOTHING")
    );
    assert!(
        format!(
            "{:#}",
            with(r#"[[{"arg": 1, "bits": 16, "is": "SIGURG"}]]"#)
        )
        .contains("16 bits")
    );
    assert!(format!("{:#}", with(r#"[[{"arg": 1, "bits": 32}]]"#)).contains("one of"));
}

proptest! {
    #[test]
    fn no_other_number_is_ever_admitted(
        number: u32, args: [u64; 6],
        arch in prop_oneof![Just(AUDIT_ARCH_X86_64), any::<u32>()],
    ) {
        let admitted = [202, 9, 10, 11, 15, 24, 28, 158, 219, 228, 231, 234];
        let decision = run(&filter(), &Data { number, arch, pointer: HOST_CALL, args });
        if arch != AUDIT_ARCH_X86_64 {
            prop_assert_eq!(decision, RET_TRAP);
        } else if !admitted.contains(&number) {
            prop_assert_eq!(decision, RET_KILL_PROCESS);
        }
    }

    #[test]
    fn memory_comes_from_the_ram_files_only(
        args: [u64; 6],
        flags in prop_oneof![Just(0x11u64), Just(0x8011), any::<u64>()],
        file in 0u64..12,
    ) {
        let args = [args[0], args[1], args[2], flags, file, args[5]];
        let wanted = (5..=8).contains(&file) && [0x11, 0x8011].contains(&(flags & 0xffff_ffff));
        prop_assert_eq!(decide(libc::SYS_mmap, args) == ALLOW, wanted);
    }
}
