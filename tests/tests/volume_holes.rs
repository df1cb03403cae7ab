// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files with holes in a shared folder, and files that are mapped.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::{linux, program, source_root, vm};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: usize = 1 << 20;
/// What a file without holes has data in.
const WHOLE: &str = "0-8388608 \n";

/// A folder of the host with the program, and with a file that has holes.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        linux::compile(
            &source_root().join("tests/guest/holes"),
            &folder.at("holes"),
        );
        folder.on_host("make", "sparse");
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What the program says on the host.
    fn on_host(&self, what: &str, name: &str) -> String {
        let mut command = Command::new(self.at("holes"));
        let done = command.arg(what).arg(self.at(name)).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// What a script says in a machine that has the folder at /x, with these options.
    fn in_guest(&self, options: &str, script: &str) -> String {
        let volume = format!("{}:/x{options}", self.0.path().display());
        let mut command = vm::command(["--volume", &volume, "--", "sh", "-c", script]);
        let run = program::finish(&mut command);
        assert_eq!(run.code, 0, "{options}: {run:?}");
        run.stdout
    }
}

fn kilobytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() / 2
}

#[test]
fn a_guest_sees_the_holes_that_the_host_sees() {
    let folder = Folder::new();
    let expected = folder.on_host("list", "sparse");
    // The test would show nothing on a file system without holes.
    assert_eq!(expected, "1048576-1114112 3145728-3211264 \n");
    let list = "/x/holes list /x/sparse; /x/holes list /x/sparse";
    for options in ["", ":ro", ":cache=none", ":ro:cache=always", ":workers"] {
        let twice = format!("{expected}{expected}");
        assert_eq!(folder.in_guest(options, list), twice, "{options}");
    }
    // Data that the guest has not written back yet could be missing.
    let all = format!("{WHOLE}{WHOLE}");
    assert_eq!(folder.in_guest(":cache=always", list), all);
}

#[test]
fn copies_of_files_with_holes_have_them_too() {
    let folder = Folder::new();
    // The guest's own programs know no holes, so it has the host's.
    let script = "mount --bind /x /host/mnt && chroot /host /bin/sh -ec 'cd /mnt
        cp --sparse=auto sparse copied; tar -S -cf t sparse; mkdir d; tar -C d -xf t'";
    let volume = format!("{}:/x", folder.0.path().display());
    let volumes = ["--volume", &volume, "--volume", "/:/host:ro"];
    let mut command = vm::command(volumes);
    let run = program::finish(command.args(["--", "sh", "-c", script]));
    assert_eq!((run.code, &*run.stdout), (0, ""), "{run:?}");
    let source = fs::read(folder.at("sparse")).unwrap();
    for name in ["copied", "d/sparse"] {
        assert!(fs::read(folder.at(name)).unwrap() == source, "{name}");
        let size = kilobytes(&folder.at(name));
        assert!((128..512).contains(&size), "{name}: {size} KiB");
    }
    assert!(kilobytes(&folder.at("t")) < 512);
}

/// A program that maps a file sees no hole where it has written, although the host has one there
/// until the guest writes. The host then has what was written.
#[test]
fn what_is_written_through_a_mapping_is_no_hole() {
    for options in ["", ":cache=none", ":cache=always"] {
        let folder = Folder::new();
        let said = folder.in_guest(options, "/x/holes map /x/sparse mapped");
        assert_eq!(said, WHOLE, "{options}");
        let now = fs::read(folder.at("sparse")).unwrap();
        assert!(now[5 * MIB..].starts_with(b"mapped\0"), "{options}");
        // No program has it open any more: there are holes again.
        let seen = folder.in_guest(options, "/x/holes list /x/sparse");
        match options {
            ":cache=always" => assert_eq!(seen, WHOLE),
            _ => assert_eq!(seen, folder.on_host("list", "sparse"), "{options}"),
        }
    }
}
