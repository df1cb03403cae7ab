// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines on KVM. Where /dev/kvm cannot be opened, the tests that need it print the reason and do
//! nothing.
//!
//! Some hosts have a KVM that only emulates, a few million instructions a second. Its emulator
//! lacks instructions that the conformance guest and Linux use, and delivers interrupts late. On
//! such a KVM, only tests that do not depend on this run; on hardware all tests run. Time limits
//! are multiplied by the measured slowness, which is printed.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::{is_long, is_root};
use paravane_tests::kvm::{EMULATED, is_fast, speed, usable};
use paravane_tests::program::{self, Ends, Run};
use paravane_tests::sandbox::Status;
use paravane_tests::skip::skip;
use paravane_tests::user::User;
use paravane_tests::vm;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The guest gives up if it stands still for most of 50 ms in each of five measurements of its
/// clock's rate, as on a PC. That happens where the host gives the emulator hardly any time.
const UNMEASURED: &str = "built-in calls: error 19";
/// A user without any rights.
const NOBODY: u32 = 65534;

/// Tests that pass on the emulators that were tried. They need the ROM, ACPI tables, the console,
/// ports, local APICs, other vCPUs, halts and non-maskable interrupts.
const BASIC: [&str; 12] = [
    "boot.*",
    "core.version.sections",
    "core.console_write.length",
    "cpu.port_in.unused",
    "cpu.port_out.device",
    "apic.read.id",
    "apic.write.reads_back",
    "apic.send_ipi.every_vector*",
    "apic.send_ipi.nmi_remote",
    "cpu.halt.race*",
    "cpu.stop.restart",
    "lock.kick.ping_pong",
];

/// A limit of seconds on this KVM, for what takes `fast` seconds at most on one that is just fast.
fn limit(fast: u64) -> String {
    let slowness = speed().map_or(1, |rate| (EMULATED / rate.max(1)).clamp(1, 200));
    eprintln!("limit: {fast} s times {slowness}");
    (fast * slowness).to_string()
}

fn conformance(layer: &str, cpus: u32, filter: Option<&str>) -> Run {
    let cpus = cpus.to_string();
    let limit = limit(if filter.is_some() { 10 } else { 120 });
    let mut words = vec!["conformance", "--hypervisor", "kvm", "--layer", layer];
    words.extend(["--cpus", &cpus, "--timeout", &limit, "--tap"]);
    words.extend(filter.iter().flat_map(|pattern| ["--filter", *pattern]));
    for _ in 0..4 {
        let run = program::run(&words);
        if !run.stdout.contains(UNMEASURED) {
            return run;
        }
        eprintln!("once more: the guest could not measure its clock");
    }
    program::run(words)
}

fn passes(layer: &str, cpus: u32, filter: Option<&str>) {
    let run = conformance(layer, cpus, filter);
    let ok = run.stdout.lines().any(|line| line.starts_with("ok "));
    assert!(
        run.code == 0 && ok,
        "{layer}, {cpus} vCPUs, {filter:?}: {run:?}"
    );
}

fn suite(layer: &str, cpus: u32) {
    let Some(rate) = usable() else {
        return;
    };
    if rate < EMULATED {
        for pattern in BASIC {
            passes(layer, cpus, Some(pattern));
        }
    } else {
        passes(layer, cpus, None);
    }
}

#[test]
fn one_vcpu_without_a_layer() {
    suite("none", 1);
}

#[test]
fn one_vcpu_with_the_native_layer() {
    suite("native", 1);
}

#[test]
fn two_vcpus_without_a_layer() {
    suite("none", 2);
}

#[test]
fn two_vcpus_with_the_native_layer() {
    suite("native", 2);
}

/// A KVM that only emulates offers no hypercalls: the layer then uses its other mechanisms.
#[test]
fn one_vcpu_with_the_layer_of_kvm() {
    suite("kvm", 1);
}

#[test]
fn two_vcpus_with_the_layer_of_kvm() {
    suite("kvm", 2);
}

#[test]
fn more_vcpus_than_cpus() {
    if usable().is_some() {
        passes("native", 5, Some("boot.*"));
        if is_long() {
            suite("native-stats", 4);
        }
    }
}

/// One line that says what is wrong, and exit code 2.
fn refused(run: &Run, parts: &[&str]) {
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    for part in parts {
        assert!(run.stderr.contains(part), "`{part}`: {run:?}");
    }
}

#[test]
fn what_kvm_cannot_do_is_refused() {
    for (words, part) in [
        (
            &["--spaces", "8"][..],
            "--spaces does not work with --hypervisor kvm",
        ),
        (
            &["--debuggable"],
            "--debuggable does not work with --hypervisor kvm",
        ),
    ] {
        let mut command = vm::command(["--hypervisor", "kvm"]);
        refused(
            &program::finish(command.args(words).args(["--", "true"])),
            &[part],
        );
    }
    let run = program::run(["conformance", "--hypervisor", "kvm"]);
    assert!(
        run.code == 2 && run.stderr.contains("--layer, --rom"),
        "{run:?}"
    );
    let run = program::run(["conformance", "--hypervisor", "kvm", "--layer", "process"]);
    refused(&run, &["--layer process only runs on --hypervisor process"]);
}

#[test]
fn memory_that_cannot_be_had_is_told() {
    if usable().is_none() {
        return;
    }
    // Less address space than the guest's memory needs.
    let mut command = program::command();
    command.args([
        "conformance",
        "--hypervisor",
        "kvm",
        "--layer",
        "none",
        "--memory",
        "3G",
    ]);
    // SAFETY: between fork and exec, a system call that touches only its argument.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 1 << 30,
                rlim_max: 1 << 30,
            };
            libc::setrlimit(libc::RLIMIT_AS, &raw const limit);
            Ok(())
        });
    }
    refused(
        &program::finish(&mut command),
        &["cannot make 3072 MiB of guest memory"],
    );
}

/// Runs as a user without access to the device.
#[test]
fn no_permission_is_told_and_auto_takes_processes() {
    let Ok(device) = fs::metadata("/dev/kvm") else {
        skip("there is no /dev/kvm");
        return;
    };
    if !rustix::process::geteuid().is_root() || device.permissions().mode() & 0o006 != 0 {
        skip("not root, or everyone may open /dev/kvm");
        return;
    }
    // The target folder may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open).unwrap();
    let copy = folder.path().join("paravane");
    fs::copy(program::path(), &copy).unwrap();
    // So may the cache with the kernel.
    let kernel = vm::kernel().unwrap_or_else(paravane_tests::linux::kernel);
    let vmlinux = folder.path().join("vmlinux");
    fs::copy(kernel, &vmlinux).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&copy);
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command.env("HOME", "/nonexistent");
        program::finish(command.args(words))
    };
    let why = "this user may not open /dev/kvm";
    let run = as_nobody(&["conformance", "--hypervisor", "kvm", "--layer", "none"]);
    refused(&run, &[why, "--hypervisor process"]);
    let vmlinux = vmlinux.display().to_string();
    let options = ["run", "--kernel", &vmlinux, "--net", "none"];
    let command = ["--", "sh", "-c", "exit 7"];
    let run = as_nobody(&[&options[..], &["--hypervisor", "kvm"], &command].concat());
    refused(&run, &[why, "--hypervisor process"]);
    let auto = ["--hypervisor", "auto", "--verbose"];
    let run = as_nobody(&[&options[..], &auto, &command].concat());
    let begins = format!("paravane: hypervisor process: {why}");
    assert!(run.code == 7 && run.stderr.starts_with(&begins), "{run:?}");
}

/// The program on a host that lacks something of KVM.
fn without(lacks: &str) -> Command {
    let mut command = Command::new(program::tool("without"));
    command.args([lacks, &rustix::process::geteuid().as_raw().to_string()]);
    command.arg(program::path());
    command
}

/// A KVM that does not report its number of vCPUs has four.
#[test]
fn too_many_vcpus_are_told() {
    if usable().is_none() {
        return;
    }
    let why = "--cpus 5: 1 to 4 virtual CPUs are possible with this host's KVM";
    let kvm = ["--hypervisor", "kvm", "--cpus", "5"];
    let mut command = without("kvm-vcpus");
    command.args(["conformance", "--layer", "none"]).args(kvm);
    refused(&program::finish(&mut command), &[why]);
    let mut command = without("kvm-vcpus");
    let kernel = vm::kernel().unwrap_or_else(paravane_tests::linux::kernel);
    command.arg("run").arg("--kernel").arg(kernel).args(kvm);
    refused(&program::finish(command.args(["--", "true"])), &[why]);
}

/// KVM is refused with these words, and `auto` takes processes and says them. `with` makes a
/// command that runs the program.
fn refused_and_auto(with: &dyn Fn() -> Command, why: &str) {
    let mut command = with();
    command.args(["conformance", "--hypervisor", "kvm", "--layer", "none"]);
    refused(&program::finish(&mut command), &[why]);
    let kernel = vm::kernel().unwrap_or_else(paravane_tests::linux::kernel);
    let mut command = with();
    command.arg("run").arg("--kernel").arg(kernel);
    command.args(["--verbose", "--net", "none", "--hypervisor", "auto"]);
    let run = program::finish(command.args(["--", "sh", "-c", "exit 7"]));
    let begins = format!("paravane: hypervisor process: {why}");
    assert!(run.code == 7 && run.stderr.starts_with(&begins), "{run:?}");
}

/// A KVM with another version of its interface, and one without a capability.
#[test]
fn a_kvm_that_lacks_something_is_told_and_auto_takes_processes() {
    if usable().is_none() {
        return;
    }
    for (lacks, why) in [
        (
            "kvm-version",
            "/dev/kvm has version 0 of its interface, 12 is needed",
        ),
        (
            "kvm-irqchip",
            "the host's KVM lacks SplitIrqchip, which local APICs without an I/O APIC need",
        ),
    ] {
        refused_and_auto(&|| without(lacks), why);
    }
}

/// Another device is in its place.
#[test]
fn a_device_that_is_no_kvm_is_told_and_auto_takes_processes() {
    if !is_root("put another device in the place of KVM") || usable().is_none() {
        return;
    }
    let with = || {
        let mut command = Command::new("unshare");
        let script = "mount --bind /dev/null /dev/kvm && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(program::path());
        command
    };
    refused_and_auto(&with, "/dev/kvm is not a KVM");
}

/// `--verbose`, `inspect` and `stat` report what runs a machine, and why.
#[test]
fn auto_chooses_and_says_why() {
    let user = User::new();
    let name = user.detach(&["--hypervisor", "auto"], "sleep 1000");
    let name = name.trim();
    let expected = match speed() {
        Ok(rate) if rate >= EMULATED => ("kvm", "/dev/kvm is fast"),
        Ok(_) => ("process", "/dev/kvm is not fast"),
        Err(_) => ("process", "/dev/kvm"),
    };
    let inspected = user.inspect(name);
    assert_eq!(inspected["hypervisor"]["name"], expected.0, "{inspected}");
    let why = inspected["hypervisor"]["why"].as_str().unwrap();
    assert!(why.contains(expected.1), "{why}");
    let stat = user.ok(&["stat", name]);
    let line = format!("hypervisor {}: {why}", expected.0);
    assert!(stat.lines().any(|l| l == line), "{stat}");
    user.ok(&["kill", name]);
    let mut command = vm::command(["--hypervisor", "auto", "--verbose", "--", "true"]);
    let run = program::finish(&mut command);
    let begins = format!("paravane: hypervisor {}: ", expected.0);
    assert!(run.code == 0 && run.stderr.starts_with(&begins), "{run:?}");
}

/// The threads of a machine that stands still, after it has run: each of its vCPUs' has a filter of
/// its own and can gain no privileges.
#[test]
fn the_thread_of_each_vcpu_is_confined() {
    if usable().is_none() {
        return;
    }
    let mut command = program::command();
    command.args(["conformance", "--hypervisor", "kvm", "--layer", "none"]);
    command.args(["--cpus", "2", "--append", "end=shutdown"]);
    let mut child = Ends(command.stdout(Stdio::piped()).spawn().unwrap());
    // The guest is there.
    let line = program::first_line(&mut child.0);
    assert!(!line.is_empty());
    let of_program = Status::of(child.0.id()).unwrap();
    let mut vcpus = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", child.0.id())).unwrap() {
        let task = task.unwrap();
        let name = fs::read_to_string(task.path().join("comm")).unwrap();
        if name.starts_with("vcpu-") {
            let status = Status::of(task.file_name().to_str().unwrap().parse().unwrap()).unwrap();
            let confined = status.filters > of_program.filters && status.no_new_privs;
            vcpus.push((name.trim().to_string(), confined));
        }
    }
    vcpus.sort_unstable();
    let expected = ["vcpu-0", "vcpu-1"].map(|name| (name.to_string(), true));
    assert_eq!(vcpus, expected);
}

/// KVM runs a command with the kernel file that all back ends use.
#[test]
fn linux_runs_a_command() {
    // Emulators lack instructions that Linux uses.
    if !is_fast() {
        return;
    }
    for cpus in ["1", "2"] {
        let mut command = vm::command(["--hypervisor", "kvm", "--cpus", cpus]);
        let run = program::finish(command.args(["--", "sh", "-c", "uname -s; nproc; exit 7"]));
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(
            (run.code, lines),
            (7, vec!["Linux", cpus]),
            "{}",
            run.stderr
        );
    }
}
