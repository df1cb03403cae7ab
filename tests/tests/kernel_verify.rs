// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `paravane kernel verify` passes on the built kernel and fails when a fault is planted.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used, clippy::panic)]

use object::{Object, ObjectSection, ObjectSymbol};
use paravane_tests::program::{self, Run};
use paravane_tests::{linux, rom, source_root};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the kernel that `paravane kernel build` makes.
fn folder() -> PathBuf {
    linux::kernel().parent().unwrap().to_path_buf()
}

fn verify(kernel: &Path, more: &[&str]) -> Run {
    program::finish(
        program::command()
            .args(["kernel", "verify", "--kernel"])
            .arg(kernel)
            .args(more),
    )
}

/// A copy of the kernel with a modified vmlinux.
fn copy(change: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(folder().join("vmlinux")).unwrap();
    change(&mut bytes);
    fs::write(copy.path().join("vmlinux"), bytes).unwrap();
    fs::copy(folder().join("bzImage"), copy.path().join("bzImage")).unwrap();
    copy
}

/// The file offset of a function's code.
fn place(file: &[u8], name: &str) -> usize {
    let elf = object::File::parse(file).unwrap();
    let symbol = elf.symbols().find(|s| s.name() == Ok(name)).unwrap();
    let section = elf
        .section_by_index(symbol.section_index().unwrap())
        .unwrap();
    let (start, _) = section.file_range().unwrap();
    usize::try_from(start + symbol.address() - section.address()).unwrap()
}

#[test]
fn one_image_boots_everywhere() {
    let run = verify(&folder(), &["--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(report["failed"], 0, "{report}");
    let what = |check: &Value| check["what"].as_str().unwrap().to_string();
    let all: Vec<String> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(what)
        .collect();
    let boots = all.iter().filter(|what| what.starts_with("boots on"));
    // Where KVM is slow or cannot be used, a check says so.
    let expected = if all.iter().any(|what| what == "KVM is left out") {
        5
    } else {
        5 + ON_KVM.len()
    };
    assert_eq!(boots.count(), expected, "{report}");
}

/// The boots on KVM.
const ON_KVM: [&str; 4] = [
    "boots on KVM without a ROM, 2 vCPUs",
    "boots on KVM with the ROM native, 2 vCPUs",
    "boots on KVM with the ROM kvm, 2 vCPUs",
    "boots on KVM, compressed, without a ROM, 1 vCPU",
];

/// With `--on kvm` it boots there alone, and each boot that KVM refuses has failed.
/// `kvm_emulated.rs` tests its output on KVM.
#[test]
fn kvm_that_is_asked_for_must_work() {
    let user = rustix::process::geteuid().as_raw().to_string();
    let mut command = Command::new(program::tool("without"));
    command.args(["kvm-irqchip", &user]).arg(program::path());
    command.args(["kernel", "verify", "--json", "--on", "kvm", "--kernel"]);
    let run = program::finish(command.arg(folder()));
    assert_eq!(run.code, 1, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let boots = checks.filter(|check| check["what"].as_str().unwrap().starts_with("boots on"));
    let boots: Vec<&Value> = boots.collect();
    let names: Vec<&str> = boots
        .iter()
        .filter_map(|check| check["what"].as_str())
        .collect();
    assert_eq!(names, ON_KVM, "{report}");
    for boot in boots {
        assert_eq!(boot["passed"], false, "{boot}");
        let why = boot["lines"][0].as_str().unwrap();
        assert!(why.contains("KVM") || why.contains("/dev/kvm"), "{boot}");
    }
}

/// With `--rom` it boots with that ROM alone, and the kernel must find its layer. A file that is no
/// ROM is refused before anything is checked.
#[test]
fn a_rom_of_ones_own() {
    let files = tempfile::tempdir().unwrap();
    let (good, bad) = (files.path().join("good"), files.path().join("bad"));
    fs::write(&good, paravane_blobs::NATIVE_STATS_ROM).unwrap();
    let other = rom::with(paravane_blobs::NATIVE_ROM, rom::VMI_SIGNATURE, b"none");
    fs::write(&bad, other).unwrap();
    let run = verify(&folder(), &["--json", "--rom", good.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{run:?}");
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().iter();
    let boots: Vec<&str> = checks
        .filter_map(|check| check["what"].as_str()?.strip_prefix("boots on "))
        .collect();
    assert_eq!(
        boots,
        ["bare metal (QEMU) with the ROM native-stats, 2 vCPUs"]
    );
    let run = verify(&folder(), &["--rom", bad.to_str().unwrap()]);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(run.stdout.is_empty(), "{run:?}");
}

/// A kernel never reaches user mode, and a host never reaches the kernel: each boot has a time
/// limit.
#[test]
fn a_boot_that_does_not_end_is_given_up() {
    const EXECVEAT: &str = "322";
    let stops = copy(|file| {
        let at = place(file, "start_kernel");
        // jmp .
        file[at..at + 2].copy_from_slice(&[0xeb, 0xfe]);
    });
    let slow = copy(|_| {});
    let mut on_slow_host = Command::new(program::tool("slow"));
    on_slow_host.arg(EXECVEAT).arg(program::path());
    for (command, kernel, seconds, why) in [
        // So long that a busy host starts the kernel within it.
        (&mut program::command(), &stops, "15", "no end after 15 s"),
        // The machine gets what reading the kernel has left of the three seconds.
        (&mut on_slow_host, &slow, "3", "not done after "),
    ] {
        command.args(["kernel", "verify", "--json", "--timeout", seconds]);
        let run = program::finish(command.arg("--kernel").arg(kernel.path()));
        assert_eq!(run.code, 1, "{run:?}");
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let boots: Vec<_> = checks
            .filter(|check| {
                check["what"]
                    .as_str()
                    .unwrap()
                    .contains("the process hypervisor")
            })
            .collect();
        assert_eq!(boots.len(), 2, "{report}");
        for boot in boots {
            assert!(boot.to_string().contains(why), "{boot}");
        }
    }
}

#[test]
fn a_planted_instruction_is_found() {
    // Functions of every kernel that have no such instruction. The test replaces the first bytes of
    // their code.
    let planted = [
        ("schedule", &[0xfa][..], "schedule: cli"),
        (
            "wake_up_process",
            &[0x0f, 0x01, 0xf8],
            "wake_up_process: swapgs",
        ),
        ("vfs_read", &[0x0f, 0x22, 0xd8], "vfs_read: mov to cr3"),
        ("do_exit", &[0x9d], "do_exit: popfq"),
    ];
    let kernel = copy(|file| {
        for (name, bytes, _) in planted {
            let at = place(file, name);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
    });
    let run = verify(kernel.path(), &["--no-boot"]);
    assert_eq!(run.code, 1, "{run:?}");
    for (_, _, what) in planted {
        assert!(
            run.stdout.contains(what),
            "{what} is not in: {}",
            run.stdout
        );
    }
    // It differs from bzImage, too.
    assert!(
        run.stdout.contains("what is loaded differs"),
        "{}",
        run.stdout
    );
    assert!(run.last_line().ends_with("2 failed"), "{}", run.stdout);
}

#[test]
fn an_entry_for_nothing_is_found() {
    let folder = folder();
    let mut list = fs::read_to_string(source_root().join("guest/linux/privileged.toml")).unwrap();
    list.push_str(
        "\n[[entry]]\ninstructions = [\"cli\"]\nsymbols = [\"nobody_has_this\"]\n\
        why = \"a test\"\n",
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), list).unwrap();
    let run = verify(
        &folder,
        &["--no-boot", "--list", file.path().to_str().unwrap()],
    );
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("nobody_has_this: cli"),
        "{}",
        run.stdout
    );
    assert!(run.last_line().ends_with("1 failed"), "{}", run.stdout);
}

#[test]
fn a_relocation_of_another_type_is_found() {
    let kernel = copy(|file| {
        // The type of the first relocation of .text: R_X86_64_GOTPCREL.
        let elf = object::File::parse(&**file).unwrap();
        let section = elf.section_by_name(".rela.text").unwrap();
        let start = usize::try_from(section.file_range().unwrap().0).unwrap();
        file[start + 8] = 9;
    });
    let run = verify(kernel.path(), &["--no-boot"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stdout.contains("unexpected: 1 of type 9"),
        "{}",
        run.stdout
    );
}

#[test]
fn what_is_no_kernel_is_one_line() {
    let empty = tempfile::tempdir().unwrap();
    let run = verify(empty.path(), &[]);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    fs::write(empty.path().join("vmlinux"), "x").unwrap();
    fs::write(empty.path().join("bzImage"), "x").unwrap();
    let run = verify(empty.path(), &[]);
    assert_eq!((run.code, run.stderr.lines().count()), (2, 1), "{run:?}");
    assert!(run.stderr.contains("not an ELF file"), "{}", run.stderr);
}
