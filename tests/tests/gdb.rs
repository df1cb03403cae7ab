// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane run --gdb`, with gdb itself: it debugs kernel and programs, and the guest notices
//! nothing.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use paravane_tests::gdb::{Client, Machine};
use paravane_tests::lines::Lines;
use paravane_tests::{kvm, program, tree, vm};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A program in a folder. It calls `marker` 200 times, with a system call after each that nothing
/// else makes.
fn program(folder: &Path) -> PathBuf {
    compile(
        folder,
        "program",
        "#include <stdio.h>\n#include <sched.h>\nvolatile int seen;\n\
        __attribute__((noinline)) int marker(int n) { seen += n; return seen; }\n\
        int main(void) {\n\
        for (int i = 0; i < 200; i++) { marker(i); sched_get_priority_max(0); }\n\
        printf(\"sum %d\\n\", seen); return seen == 19900 ? 5 : 6; }\n",
    )
}

/// A program whose text is at the same addresses in each.
fn compile(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).unwrap();
    let cc = Command::new("cc")
        .args(["-O1", "-g", "-static", "-no-pie", "-o"])
        .args([&program, &source])
        .status();
    assert!(cc.unwrap().success());
    program
}

/// From a break in the kernel to the third call of `marker`, in all ways of stopping: gdb does this
/// to a machine that runs the program, between what comes before and what comes after.
fn debug(folder: &Path, options: &[&str], before: &[&str], after: &[&str]) -> (String, Machine) {
    let program = program(folder);
    let volume = format!("{}:/t:ro", folder.display());
    let options = [options, &["--volume", &volume]].concat();
    let machine = Machine::start(":0", &options, &["/t/program"]);
    let load = format!("add-symbol-file {}", program.display());
    let steps = [
        "break __x64_sys_sched_get_priority_max",
        "continue",
        "backtrace 2",
        "delete",
        &load,
        "break marker",
        "continue",
        "backtrace",
        "stepi",
        "stepi",
        "finish",
    ];
    let said = machine.debug(&[before, &steps, after].concat());
    for part in [
        "in __x64_sys_sched_get_priority_max ()",
        "marker (n=n@entry=1)",
        "in main ()",
        "Value returned is $1 = 1",
        "marker (n=n@entry=2)",
        "marker (n=n@entry=3)",
        "(vCPU 0, ",
        "$2 = 3",
        "detached",
    ] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    (said, machine)
}

#[test]
fn kernel_and_program() {
    for cpus in ["1", "2"] {
        let folder = tempfile::tempdir().unwrap();
        let (said, machine) = debug(
            folder.path(),
            &["--cpus", cpus],
            &[
                // Not a value of gdb's history.
                "printf \"at the entry: %d\\n\", $pc == vmi_entry",
                "break ksys_write",
                "continue",
                "backtrace 2",
                "delete",
            ],
            &[
                "continue",
                // From the program into the kernel. The scheduler's work there is unpredictable.
                "stepi 150",
                "info threads",
                "continue",
                "print seen",
                "set var seen = seen + 1000",
                "set var seen = seen - 1000",
                "delete",
                "detach",
            ],
        );
        for part in ["at the entry: 1", "in ksys_write ()", "in do_syscall_64 ()"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        let (code, said, errors) = machine.finish();
        assert_eq!(
            (code, said.as_str(), errors.as_str()),
            (5, "sum 19900\n", "")
        );
    }
}

/// gdb in the kernel and in a program, on hardware's KVM. `kvm_gdb.rs` tests an emulated KVM.
#[test]
fn kernel_and_program_on_kvm() {
    if !kvm::is_fast() {
        return;
    }
    for cpus in ["1", "2"] {
        let folder = tempfile::tempdir().unwrap();
        let (said, machine) = debug(
            folder.path(),
            &["--hypervisor", "kvm", "--append", "nokaslr", "--cpus", cpus],
            // Before the kernel's own page tables.
            &["hbreak start_kernel", "continue", "delete"],
            &[
                "delete",
                "hbreak marker",
                "continue",
                "continue",
                "print seen",
                "info threads",
                "delete",
                "detach",
            ],
        );
        let part = "in start_kernel ()";
        assert!(said.contains(part), "{part} is not in: {said}");
        assert_eq!(machine.finish().0, 5);
    }
}

/// A breakpoint of a program belongs to the program that has stopped. Another one, which the first
/// vCPU has loaded, has its text at the same addresses.
#[test]
fn breakpoints_are_of_the_program_that_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let text = "int main(void) { for (;;) ; }\n";
    compile(folder.path(), "spinner", text);
    let volume = format!("{}:/t:ro", folder.path().display());
    let machine = Machine::start(
        ":0",
        &["--cpus", "2", "--volume", &volume],
        &[
            "sh",
            "-c",
            "taskset 1 /t/spinner & sleep 1; exec taskset 2 /t/program",
        ],
    );
    let load = format!("add-symbol-file {}", program.display());
    let said = machine.debug(&[
        "break __x64_sys_sched_get_priority_max",
        "continue",
        "delete",
        &load,
        "break marker",
        "continue",
        "backtrace",
        "delete",
        "detach",
    ]);
    for part in ["Thread 2 hit", "marker (n=n@entry=1)", "detached"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    let (code, said, errors) = machine.finish();
    assert_eq!(
        (code, said.as_str(), errors.as_str()),
        (5, "sum 19900\n", "")
    );
}

#[test]
fn interrupted_and_come_back() {
    let mut machine = Machine::start(
        ":0",
        &["--cpus", "2"],
        &["sh", "-c", "echo ready; sleep 100; exit 9"],
    );
    // The machine continues and runs until gdb gets the request to interrupt it.
    let gdb = machine
        .gdb(&["continue", "info threads", "detach"])
        .spawn()
        .unwrap();
    let line = machine.output.next_within(program::PATIENCE);
    assert_eq!(line, "ready\n");
    // Only the clock's interrupts run in it.
    tree::wait_idle(&tree::everything(machine.monitor()));
    let pid = rustix::process::Pid::from_child(&gdb);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let run = program::finish_child(gdb);
    for part in [
        "received signal SIGINT",
        "default_idle",
        "(vCPU 1, kernel)",
        "detached",
    ] {
        assert!(run.stdout.contains(part), "{part} is not in: {run:?}");
    }
    // One gdb that disappears without a word while the machine runs, and one that ends the machine.
    let mut gdb = machine
        .gdb(&["break nobody_calls_this", "set debug remote 1", "continue"])
        .spawn()
        .unwrap();
    let mut said = Lines::of(gdb.stderr.take());
    let continued = said
        .each_within(program::PATIENCE)
        .any(|line| line.contains("vCont;c"));
    assert!(continued);
    gdb.kill().unwrap();
    program::wait_within(&mut gdb, program::PATIENCE);
    // Nothing answers any more, and gdb complains.
    program::finish(&mut machine.gdb(&["kill"]));
    let (code, _, errors) = machine.finish();
    assert_eq!(code, 1);
    assert!(errors.contains("the debugger has ended it"), "{errors}");
}

#[test]
fn the_guests_own_breakpoint_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("trap.c");
    let text = "#include <signal.h>\nstatic volatile int traps;\n\
        static void on_trap(int s) { (void)s; traps++; }\n\
        int main(void) { signal(SIGTRAP, on_trap);\n\
        for (int i = 0; i < 3; i++) __asm__ volatile(\"int3\");\nreturn 10 + traps; }\n";
    fs::write(&source, text).unwrap();
    let cc = Command::new("cc")
        .args(["-O1", "-static", "-o"])
        .arg(folder.path().join("trap"))
        .arg(&source)
        .status();
    assert!(cc.unwrap().success());
    let volume = format!("{}:/t:ro", folder.path().display());
    let machine = Machine::start(":0", &["--volume", &volume], &["/t/trap"]);
    let said = machine.debug(&[
        "break __x64_sys_exit_group",
        "continue",
        "delete",
        "continue",
    ]);
    assert!(said.contains("__x64_sys_exit_group"), "{said}");
    assert_eq!(machine.finish().0, 13);
}

#[test]
fn a_socket_in_the_file_system_and_what_is_no_packet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gdb");
    let machine = Machine::start(
        path.to_str().unwrap(),
        &[],
        &["sh", "-c", "sleep 3; exit 4"],
    );
    for bytes in [
        &b"$#00"[..],
        b"$zzzzzzzz#zz",
        b"\x03\x03\x03",
        b"$qSupported:",
        &[0xff; 4096],
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        // The connection may be closed.
        let _ = stream.write_all(bytes);
    }
    assert!(machine.debug(&["detach"]).contains("detached"));
    assert_eq!(machine.finish().0, 4);
}

#[test]
#[ignore = "takes minutes on a busy host"]
fn nothing_is_lost_by_stops_and_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gdb");
    // Processes start and end on two vCPUs, with interrupts between them.
    let script = "work() { n=0; for i in $(seq 2000); do (exit 3); [ $? = 3 ] && n=$((n + 1)); \
        done; return $((n / 20)); }; \
        work & work; a=$?; wait $!; exit $(($? + a - 150))";
    let machine = Machine::start(
        path.to_str().unwrap(),
        &["--cpus", "2"],
        &["sh", "-c", script],
    );
    let mut gdb = Client::connect(&path, Duration::from_secs(60)).unwrap();
    for round in 0u64..60 {
        gdb.send("vCont;c").unwrap();
        thread::sleep(Duration::from_millis(3 + round * 7 % 30));
        gdb.interrupt().unwrap();
        let stop = gdb.receive().unwrap();
        assert!(stop.starts_with("T02"), "round {round}: {stop}");
        for step in 0..round % 9 {
            // Alone, and with the other one running.
            gdb.send(if step % 2 == 0 {
                "vCont;s:1"
            } else {
                "vCont;s:1;c"
            })
            .unwrap();
            let stop = gdb.receive().unwrap();
            assert!(
                stop.starts_with("T05"),
                "round {round}, step {step}: {stop}"
            );
        }
    }
    gdb.send("D").unwrap();
    assert_eq!(gdb.receive().unwrap(), "OK");
    drop(gdb);
    assert_eq!(machine.finish().0, 50);
}

#[test]
fn only_the_loopback() {
    for (address, part) in [
        ("0.0.0.0:0", "--gdb-remote"),
        ("nowhere", "HOST:PORT"),
        ("/nonexistent/x", "/nonexistent/x"),
    ] {
        let run = program::finish(vm::command(["--gdb", address]).args(["--", "true"]));
        assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
        assert!(run.stderr.contains(part), "{}", run.stderr);
    }
}
