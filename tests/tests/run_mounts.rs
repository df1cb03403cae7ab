// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mounts of the host while a machine has one of its folders.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::conditions::is_root;
use paravane_tests::{program, vm};
use std::fs;
use std::process::{Command, Stdio};

/// The host mounts local and remote file systems, elsewhere and in the folder, and unmounts them.
/// Each time the list of mounts changes, the device looks at it while it serves the guest's next
/// request.
#[test]
fn a_machine_outlives_mounts_of_the_host() {
    if !is_root("mount") {
        return;
    }
    // The guest asks by a file for the next change, and waits for the answer.
    let guest = "
        cat /x/kept
        for change in elsewhere near far gone; do
            touch /x/ask-$change
            for try in $(seq 300); do [ ! -e /x/did-$change ] || break; sleep 0.1; done
            ls -d /x/did-$change; cat /x/kept; cat /ro/kept
        done";
    let host = r#"
        folder=$1; shift
        change() {
            until [ -e "$folder/ask-$1" ]; do sleep 0.05; done
            eval "$2"
            touch "$folder/did-$1"
        }
        {
            change elsewhere 'mount -t tmpfs none "$folder/../other"'
            change near 'mount -t tmpfs none "$folder/near"'
            change far 'mount -t proc none "$folder/far"'
            change gone 'umount "$folder/far" "$folder/near" "$folder/../other"'
        } >&2 </dev/null &
        "$@"; code=$?
        kill $! 2>/dev/null
        exit $code
    "#;
    let folder = tempfile::tempdir().unwrap();
    for name in ["shared/near", "shared/far", "other"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let shared = folder.path().join("shared");
    fs::write(shared.join("kept"), "kept\n").unwrap();
    let machine = vm::command([
        "--volume",
        &format!("{}:/x", shared.display()),
        "--volume",
        &format!("{}:/ro:ro", shared.display()),
        "--",
        "sh",
        "-c",
        guest,
    ]);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", host, "sh"])
        .arg(&shared)
        .arg(machine.get_program())
        .args(machine.get_args());
    let run = program::finish(command.stdin(Stdio::null()));
    let each = |change| format!("/x/did-{change}\nkept\nkept\n");
    let expected = ["elsewhere", "near", "far", "gone"].map(each).concat();
    assert_eq!((run.code, run.stdout), (0, format!("kept\n{expected}")));
}
