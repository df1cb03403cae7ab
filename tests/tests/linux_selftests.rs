// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A selection of Linux's own tests (kselftest) in guests with few and many vCPUs: those that take
//! at most seconds, and need only a C compiler and the host's root. `compatibility.rs` runs more.
//!
//! Not among them: `futex_requeue`, whose tasks must all wait within 30 ms; `ptrace_syscall`, which
//! makes 32-bit system calls; `mincore_selftest`, for which no page is there before its first use;
//! `breakpoint_test`, which needs debug registers.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, vm};
use std::path::Path;
use std::process::Command;

/// vCPUs of the guests: as `compatibility.rs` has them.
const CPUS: [&str; 3] = ["1", "4", "16"];

/// A folder below tools/testing/selftests, files that each of its programs has besides its own,
/// and the programs.
struct Part {
    folder: &'static str,
    with: &'static [&'static str],
    programs: &'static [&'static str],
}

const SELECTION: [Part; 11] = [
    part(
        "futex/functional",
        &[],
        &[
            "futex_requeue_pi",
            "futex_requeue_pi_mismatched_ops",
            "futex_requeue_pi_signal_restart",
            "futex_wait",
            "futex_wait_private_mapped_file",
            "futex_wait_timeout",
            "futex_wait_wouldblock",
            "futex_waitv",
        ],
    ),
    part("clone3", &[], &["clone3", "clone3_clear_sighand"]),
    part("sigaltstack", &[], &["sas"]),
    part("kcmp", &[], &["kcmp_test"]),
    part(
        "pidfd",
        &[],
        &[
            "pidfd_fdinfo_test",
            "pidfd_getfd_test",
            "pidfd_open_test",
            "pidfd_poll_test",
            "pidfd_wait",
        ],
    ),
    part("syscall_user_dispatch", &[], &["sud_test"]),
    part("ptrace", &[], &["get_syscall_info", "peeksiginfo"]),
    part(
        "timens",
        &[],
        &[
            "clock_nanosleep",
            "exec",
            "futex",
            "procfs",
            "timens",
            "timer",
            "timerfd",
            "vfork_exec",
        ],
    ),
    part(
        "x86",
        &["thunks.S"],
        &[
            "corrupt_xstate_header",
            "mov_ss_trap",
            "nx_stack",
            "sigaltstack",
            "sigreturn",
            "sigtrap_loop",
            "single_step_syscall",
            "syscall_arg_fault",
            "syscall_nt",
            "syscall_numbering",
            "sysret_ss_attrs",
            "test_mremap_vdso",
            "test_syscall_vdso",
        ],
    ),
    part("rseq", &["rseq.c"], &["basic_test"]),
    part(
        "vDSO",
        &["parse_vdso.c"],
        &[
            "vdso_test_abi",
            "vdso_test_clock_getres",
            "vdso_test_correctness",
            "vdso_test_getcpu",
            "vdso_test_gettimeofday",
        ],
    ),
];

const fn part(
    folder: &'static str,
    with: &'static [&'static str],
    programs: &'static [&'static str],
) -> Part {
    Part {
        folder,
        with,
        programs,
    }
}

impl Part {
    /// Compiles its programs into a folder. Returns their names there.
    fn compile(&self, selftests: &Path, to: &Path) -> Vec<String> {
        let from = selftests.join(self.folder);
        let kind = self.folder.split('/').next().unwrap();
        let mut names = Vec::new();
        for program in self.programs {
            let name = format!("{kind}-{program}");
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-w", "-D_GNU_SOURCE", "-pthread", "-o"]);
            compiler.arg(to.join(&name));
            // As their Makefiles have it.
            let headers = match kind {
                "futex" => &["futex/include"][..],
                "rseq" => &["rseq", "../../include"],
                _ => &[],
            };
            for folder in headers.iter().chain(&[""]) {
                compiler.arg("-I").arg(selftests.join(folder));
            }
            if kind == "x86" {
                compiler.args(["-no-pie", "-static"]);
            }
            compiler.arg(from.join(format!("{program}.c")));
            compiler.args(self.with.iter().map(|file| from.join(file)));
            let output = compiler.args(["-lrt", "-ldl"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {said}");
            names.push(name);
        }
        names
    }
}

/// Runs each program in `/x`, and says its name and exit code; what one that fails has printed is
/// before that. A program of the futexes gets three tries: some of them wake a task of theirs after
/// 10 ms, and fail if it does not wait by then. With a kernel that is wrong, all three fail.
const RUN: &str = "mount -t tmpfs none /tmp && cd /tmp || exit 99\n\
    for program in /x/*; do\n\
    tries=1; case $program in /x/futex-*) tries=3;; esac\n\
    for try in $(seq $tries); do\n\
    code=0; timeout -k 5 60 \"$program\" >/tmp/said 2>&1 </dev/null || code=$?\n\
    [ $code != 0 ] || break\n\
    tail -n 40 /tmp/said\n\
    done\n\
    echo \"result ${program#/x/} $code\"\n\
    done";

/// A test that may fail because the host is a virtual machine: some hypervisors do not set RF after
/// a breakpoint at a `mov %ss`, and the breakpoint repeats for ever.
const OF_THE_HOST: &str = "x86-mov_ss_trap";

/// Whether that program passes on the host.
fn host_passes(program: &Path) -> bool {
    let mut command = Command::new("timeout");
    let run = command.args(["-k", "5", "10"]).arg(program).output();
    let passes = run.unwrap().status.success();
    if !passes {
        eprintln!("left out: {OF_THE_HOST}, which fails on this host, too");
    }
    passes
}

/// All pass with one vCPU, with four, and with sixteen.
#[test]
fn linux_passes_a_selection_of_its_own_tests() {
    let selftests = linux::source().join("tools/testing/selftests");
    let folder = tempfile::tempdir().unwrap();
    let parts = SELECTION.iter();
    let mut programs: Vec<String> = parts
        .flat_map(|part| part.compile(&selftests, folder.path()))
        .collect();
    let of_the_host = folder.path().join(OF_THE_HOST);
    if !host_passes(&of_the_host) {
        std::fs::remove_file(&of_the_host).unwrap();
        programs.retain(|name| name != OF_THE_HOST);
    }
    let mut expected: Vec<String> = programs
        .iter()
        .map(|name| format!("result {name} 0"))
        .collect();
    expected.sort_unstable();
    let volume = format!("{}:/x:ro", folder.path().display());
    for cpus in CPUS {
        let mut command = vm::command(["--rootfs", "/", "--cpus", cpus, "--memory", "512M"]);
        command.args(["--volume", &volume, "--", "sh", "-c", RUN]);
        let run = program::finish(&mut command);
        let results = run
            .stdout
            .lines()
            .filter(|line| line.starts_with("result "));
        let mut results: Vec<_> = results.map(str::to_string).collect();
        results.sort_unstable();
        assert_eq!(
            (run.code, &results),
            (0, &expected),
            "{cpus} vCPUs: {run:?}"
        );
    }
}
