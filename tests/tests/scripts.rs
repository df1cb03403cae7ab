// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `make test` makes of a failure: scripts/failed.sh, with a cargo of the test's own. And a
//! first build that would fill the disk: scripts/setup.sh, with a df of the test's own.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::program::Run;
use paravane_tests::source_root;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// What cargo prints of two programs with a failure each.
const TWO: &str = "
     Running unittests src/lib.rs (target/debug/deps/paravane_abi-df1241a0284e8f2f)
test sums::adds ... ok
test sums::steady ... FAILED
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
     Running tests/conformance.rs (target/debug/deps/conformance-df1241a0284e8f2f)
test fault::BROKEN::native::1_vcpus   ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
error: 2 targets failed:
    `-p paravane-abi --lib`
    `-p paravane-tests --test conformance`
";

/// Sources the script with a cargo that passes for arguments with the word `steady`, and runs more.
fn script(log: &str, more: &str) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    fs::write(
        &cargo,
        "#!/bin/sh\necho \"cargo $*\" >&2\ncase $* in\n\
         *steady*) echo 'test result: ok. 1 passed; 0 failed'; exit 0 ;;\n\
         *unknown*) echo 'test result: ok. 0 passed; 0 failed'; exit 0 ;;\nesac\nexit 101\n",
    )
    .unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let file = folder.path().join("log");
    fs::write(&file, log).unwrap();
    let all = format!(
        ". {0}/lib.sh; . {0}/failed.sh; PATH={1}:$PATH; log={2}; {more}",
        source_root().join("scripts").display(),
        folder.path().display(),
        file.display()
    );
    let output = Command::new("bash").arg("-c").arg(all).output().unwrap();
    Run::of(&output)
}

#[test]
fn a_failure_runs_again_alone() {
    let run = script(TWO, "failed_again \"$log\" 2 --release");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    for line in [
        "cargo test --locked --package paravane-abi --lib --release -- --include-ignored --exact \
         sums::steady",
        "==> unsteady: sums::steady failed beside other tests and passed alone",
        "cargo test --locked --workspace --test conformance --release -- --include-ignored --exact \
         fault::BROKEN::native::1_vcpus",
        "==> failed: fault::BROKEN::native::1_vcpus",
    ] {
        assert!(
            run.stderr.lines().any(|said| said == line),
            "{line}: {run:?}"
        );
    }
}

#[test]
fn what_has_no_name_has_failed() {
    // More failures than names, more than a few, none.
    for (count, expected) in [(3, "3\n"), (40, "40\n"), (0, "0\n")] {
        let run = script(TWO, &format!("failed_again \"$log\" {count}"));
        assert_eq!((run.code, run.stdout.as_str()), (0, expected), "{run:?}");
        assert!(!run.stderr.contains("cargo test"), "{run:?}");
    }
    // Output of another process has cut the line with the name.
    let cut =
        "test sums::adds ... noise FAILED\ntest sums::\ntest result: FAILED. 0 passed; 1 failed;\n";
    let run = script(cut, "failed_again \"$log\" 1");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    assert!(!run.stderr.contains("cargo test"), "{run:?}");
    // No program has a test of that name.
    let unknown = TWO.replace("sums::steady", "sums::unknown");
    let run = script(&unknown, "failed_again \"$log\" 2");
    assert_eq!((run.code, run.stdout.as_str()), (0, "2\n"), "{run:?}");
    // A test in documentation.
    let documentation = "   Doc-tests paravane_abi\ntest abi/src/lib.rs - (line 3) ... FAILED\n";
    let run = script(documentation, "failed_again \"$log\" 1");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"), "{run:?}");
    assert!(!run.stderr.contains("cargo test"), "{run:?}");
}

#[test]
fn a_program_without_a_result_is_seen() {
    let judge = "all_have_results \"$log\" && echo all || echo some";
    assert_eq!(script(TWO, judge).stdout, "all\n");
    let died = format!("{TWO}    `-p paravane-tests --test gdb`\n");
    assert_eq!(script(&died, judge).stdout, "some\n");
}

/// A first build is refused where it would fill the disk, in a line; a later one is not.
#[test]
fn a_full_disk_is_told_before_the_first_build() {
    let folder = tempfile::tempdir().unwrap();
    let df = folder.path().join("df");
    let said = "#!/bin/sh\necho 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n\
                echo '/dev/vda 1000 500 8900000 50% /'\n";
    fs::write(&df, said).unwrap();
    fs::set_permissions(&df, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        folder.path().display(),
        std::env::var("PATH").unwrap()
    );
    let setup = |purpose, target: &str| {
        let mut command = Command::new(source_root().join("scripts/setup.sh"));
        command
            .arg(purpose)
            .env("PATH", &path)
            .env("CARGO_TARGET_DIR", folder.path().join(target));
        Run::of(&command.output().unwrap())
    };
    let run = setup("test", "none");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    let line = format!(
        "error: {}: a first build takes 9 GB, and 8 GB are free: make room\n",
        source_root().display()
    );
    assert_eq!(run.stderr, line);
    for (purpose, target) in [("build", "none"), ("build", "")] {
        let run = setup(purpose, target);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    }
}
