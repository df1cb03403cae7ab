// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use paravane_user_io::signals::Interrupted;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process, test_kill_process};
use std::process::Command;
use std::time::SystemTime;

const PATCH: &[u8] =
    b"Why.\n\n--- a/kernel/a.c\n+++ b/kernel/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";

fn recipe(overlay: &[(&'static str, &'static [u8])], patches: &[&'static [u8]]) -> Recipe {
    Recipe {
        overlay: overlay.to_vec(),
        patches: patches.iter().map(|p| ("0001.patch", *p)).collect(),
        config: Vec::new(),
        parts: None,
        unpatched: false,
    }
}

/// A source of four files in a temporary folder.
fn source() -> (tempfile::TempDir, Source) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("linux");
    fs::create_dir_all(path.join("kernel")).unwrap();
    fs::write(
        path.join("Makefile"),
        "# x\nVERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 99\nEXTRAVERSION =\n",
    )
    .unwrap();
    fs::write(path.join("kernel/a.c"), "one\ntwo\nthree\n").unwrap();
    fs::write(path.join("kernel/b.c"), "b\n").unwrap();
    let hash = "1".to_string();
    (folder, Source { path, hash })
}

fn open(folder: &tempfile::TempDir, source: &Source) -> Tree {
    Tree::open(
        &folder.path().join("work"),
        source,
        &Progress::new("testing"),
    )
    .unwrap()
}

fn text(tree: &Tree, path: &str) -> Option<String> {
    fs::read_to_string(tree.source().join(path)).ok()
}

fn time(tree: &Tree, path: &str) -> SystemTime {
    fs::metadata(tree.source().join(path))
        .unwrap()
        .modified()
        .unwrap()
}

#[test]
fn only_what_changes_is_written_and_what_went_away_is_undone() {
    let (folder, source) = source();
    let progress = Progress::new("testing");
    let tree = open(&folder, &source);
    assert_eq!(tree.version(), "6.12.99");
    tree.apply(
        &recipe(&[("arch/new.c", b"1"), ("arch/old.c", b"1")], &[PATCH]),
        &progress,
    )
    .unwrap();
    assert_eq!(text(&tree, "kernel/a.c").unwrap(), "one\nTWO\nthree\n");
    let times = ["kernel/a.c", "kernel/b.c", "arch/new.c"].map(|path| time(&tree, path));

    // The patch is unchanged. One file of the overlay has changed, and one is removed.
    let tree = open(&folder, &source);
    tree.apply(&recipe(&[("arch/new.c", b"2")], &[PATCH]), &progress)
        .unwrap();
    assert_eq!(time(&tree, "kernel/a.c"), times[0]);
    assert_eq!(time(&tree, "kernel/b.c"), times[1]);
    assert_eq!(text(&tree, "arch/new.c").unwrap(), "2");
    assert!(text(&tree, "arch/old.c").is_none());

    // Without a patch the file has its original contents again, and can be patched again.
    tree.apply(&recipe(&[], &[]), &progress).unwrap();
    assert_eq!(text(&tree, "kernel/a.c").unwrap(), "one\ntwo\nthree\n");
    assert!(text(&tree, "arch/new.c").is_none());
    tree.apply(&recipe(&[], &[PATCH]), &progress).unwrap();
    assert_eq!(text(&tree, "kernel/a.c").unwrap(), "one\nTWO\nthree\n");
}

#[test]
fn a_patch_that_does_not_apply_is_named_with_the_file() {
    let (folder, source) = source();
    fs::write(source.path.join("kernel/a.c"), "something else\n").unwrap();
    let tree = open(&folder, &source);
    let error = tree
        .apply(&recipe(&[], &[PATCH]), &Progress::new("testing"))
        .unwrap_err()
        .to_string();
    for part in ["0001.patch", "6.12.99", "kernel/a.c"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    // The tree is unchanged.
    assert_eq!(text(&tree, "kernel/a.c").unwrap(), "something else\n");
}

#[test]
fn another_series_and_a_file_in_the_way_are_refused() {
    let (folder, source) = source();
    let tree = open(&folder, &source);
    let error = tree.apply(
        &recipe(&[("kernel/b.c", b"")], &[]),
        &Progress::new("testing"),
    );
    assert!(error.unwrap_err().to_string().contains("kernel/b.c"));

    let makefile = "VERSION = 6\nPATCHLEVEL = 120\nSUBLEVEL = 1\n";
    fs::write(source.path.join("Makefile"), makefile).unwrap();
    let source = Source {
        hash: "2".to_string(),
        ..source
    };
    let error = Tree::open(
        &folder.path().join("work"),
        &source,
        &Progress::new("testing"),
    )
    .unwrap_err();
    assert!(error.to_string().contains("6.120.1"), "{error}");
    // The previous tree is still there.
    assert_eq!(text(&tree, "kernel/b.c").unwrap(), "b\n");
}

#[test]
fn a_file_that_a_patch_does_not_find_is_named() {
    let (folder, source) = source();
    fs::remove_file(source.path.join("kernel/a.c")).unwrap();
    let tree = open(&folder, &source);
    let error = tree
        .apply(&recipe(&[], &[PATCH]), &Progress::new("testing"))
        .unwrap_err();
    assert!(error.to_string().contains("kernel/a.c"), "{error}");
}

/// This is one test, because a signal affects the whole process.
#[test]
fn lines_are_whole_and_a_signal_ends_what_builds() {
    let (folder, source) = source();
    let tree = open(&folder, &source);
    fs::create_dir_all(tree.object()).unwrap();
    fs::write(tree.log(), "").unwrap();
    let shell = |script| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    };

    let mut lines = Vec::new();
    let parts = shell("printf 'a\\nb'; sleep 0.05; printf 'c\\n\\nlast'");
    tree.run(parts, &mut |line| lines.push(line.to_string()))
        .unwrap();
    assert_eq!(lines, ["a", "bc", "", "last"]);

    let mut pid = None;
    let result = tree.run(shell("echo $$; exec sleep 1000"), &mut |line| {
        pid = line.parse().ok().and_then(Pid::from_raw);
        kill_process(getpid(), Signal::TERM).unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&Interrupted(15)), "{error:#}");
    // It has been waited for.
    assert_eq!(test_kill_process(pid.unwrap()), Err(Errno::SRCH));
}
