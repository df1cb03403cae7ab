// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests with untrusted archives that are made by hand.

use super::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tar::{Builder, Header};

const RULES: Rules = Rules {
    entries: 1000,
    bytes: 1 << 20,
    mode: 0o777,
    layer: false,
    first: None,
};

fn image() -> Rules {
    Rules {
        layer: true,
        ..RULES
    }
}

/// The rules for `data` that comes out of a machine and goes into an existing folder.
fn merged() -> Rules {
    Rules {
        first: Some(("data".into(), None)),
        ..RULES
    }
}

/// An archive of names, kinds, and contents or targets.
fn archive(files: &[(&str, EntryType, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for &(name, kind, content) in files {
        let mut header = Header::new_gnu();
        // Writes the name as an attacker would: the crate refuses such names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1000);
        let data = if kind == EntryType::Regular {
            content
        } else {
            ""
        };
        if kind != EntryType::Regular {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_size(data.len() as u64);
        header.set_cksum();
        builder.append(&header, data.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn unpack(folder: &Path, rules: Rules, files: &[(&str, EntryType, &str)]) -> Result<(), String> {
    let mut tree = Tree::new(folder, rules).unwrap();
    tree.apply(&archive(files)[..])
        .map_err(|error| format!("{error:#}"))
}

use EntryType::{Directory, Link, Regular, Symlink};

#[test]
fn files_are_what_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        ("./d/", Directory, ""),
        ("d/f", Regular, "text"),
        ("d/l", Link, "d/f"),
        ("s", Symlink, "d/f"),
        ("x/y/z", Regular, "deep"),
        ("null", EntryType::Char, ""),
    ];
    unpack(folder.path(), image(), &files).unwrap();
    let at = |name: &str| folder.path().join(name);
    assert_eq!(fs::read(at("s")).unwrap(), b"text");
    let meta = fs::metadata(at("d/f")).unwrap();
    assert_eq!(
        (
            meta.permissions().mode() & 0o7777,
            meta.mtime(),
            meta.nlink()
        ),
        (0o755, 1000, 2)
    );
    assert_eq!(fs::read(at("x/y/z")).unwrap(), b"deep");
    assert!(!at("null").exists());
    // Over existing contents, folders included.
    unpack(
        folder.path(),
        image(),
        &[("d", Regular, "now a file"), ("s", Directory, "")],
    )
    .unwrap();
    assert_eq!(fs::read(at("d")).unwrap(), b"now a file");
    assert!(fs::symlink_metadata(at("s")).unwrap().is_dir());
}

#[test]
fn nothing_leads_outside() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("in");
    let secret = outer.path().join("secret");
    let absolute = outer.path().display().to_string();
    for files in [
        vec![("../out", Regular, "x")],
        vec![("a/../../out", Regular, "x")],
        vec![("l", Symlink, ".."), ("l/out", Regular, "x")],
        vec![("l", Symlink, absolute.as_str()), ("l/out", Regular, "x")],
        vec![
            ("l", Symlink, absolute.as_str()),
            ("l/secret", Regular, "x"),
        ],
        vec![("l", Symlink, "../secret"), ("l", Regular, "x")],
        vec![("d", Symlink, "/proc/self/cwd"), ("d/out", Regular, "x")],
        vec![("h", Link, "../secret"), ("h", Regular, "x")],
        vec![
            ("s", Symlink, "../secret"),
            ("h", Link, "s"),
            ("h", Regular, "x"),
        ],
        vec![("l", Symlink, absolute.as_str()), ("h", Link, "l/secret")],
        vec![
            ("l", Symlink, absolute.as_str()),
            ("l/.wh.secret", Regular, ""),
        ],
        vec![
            ("l", Symlink, absolute.as_str()),
            ("l/.wh..wh..opq", Regular, ""),
        ],
        vec![("/etc/paravane-test", Regular, "x")],
    ] {
        for layer in [false, true] {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).unwrap();
            fs::write(&secret, "secret").unwrap();
            // Any outcome is allowed inside of the folder.
            let _ = unpack(&folder, Rules { layer, ..RULES }, &files);
            let mut names: Vec<_> = fs::read_dir(outer.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            names.sort();
            assert_eq!(names, ["in", "secret"], "{files:?}");
            assert_eq!(fs::read(&secret).unwrap(), b"secret", "{files:?}");
            assert_eq!(fs::metadata(&secret).unwrap().nlink(), 1, "{files:?}");
        }
    }
    assert!(!Path::new("/etc/paravane-test").exists());
}

#[test]
fn layers_hide_what_is_below() {
    let folder = tempfile::tempdir().unwrap();
    let rules = Rules {
        layer: true,
        mode: 0o7777,
        ..RULES
    };
    let mut tree = Tree::new(folder.path(), rules).unwrap();
    let owner = rustix::process::geteuid().is_root();
    tree.owner = false;
    tree.apply(
        &archive(&[
            ("a/1", Regular, ""),
            ("a/2", Regular, ""),
            ("b/c/3", Regular, ""),
            ("bin", Symlink, "usr/bin"),
            ("usr/bin", Directory, ""),
        ])[..],
    )
    .unwrap();
    tree.apply(
        &archive(&[
            ("a/.wh.1", Regular, ""),
            ("b/4", Regular, ""),
            ("b/.wh..wh..opq", Regular, ""),
            ("bin/tool", Regular, "t"),
        ])[..],
    )
    .unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(!at("a/1").exists() && at("a/2").exists());
    assert!(at("b/4").exists() && !at("b/c").exists());
    // A link to a folder stays a link.
    assert!(at("usr/bin/tool").exists() && fs::symlink_metadata(at("bin")).unwrap().is_symlink());
    assert_eq!(
        fs::metadata(at("a/2")).unwrap().permissions().mode() & 0o7777,
        0o4755
    );
    assert!(owner || fs::metadata(at("a/2")).unwrap().uid() == rustix::process::geteuid().as_raw());
}

#[test]
fn limits_and_names_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let few = Rules {
        entries: 1,
        ..RULES
    };
    let two = [("a", Regular, "x"), ("b", Regular, "x")];
    assert!(
        unpack(folder.path(), few, &two)
            .unwrap_err()
            .contains("more than 1 files")
    );
    let small = Rules { bytes: 3, ..RULES };
    assert!(
        unpack(folder.path(), small, &[("big", Regular, "1234")])
            .unwrap_err()
            .contains("more than")
    );
    assert!(!folder.path().join("big").exists());
    let first = Rules {
        first: Some(("a".into(), Some("z".into()))),
        ..RULES
    };
    unpack(folder.path(), first.clone(), &[("a", Regular, "x")]).unwrap();
    assert!(folder.path().join("z").exists());
    assert!(
        unpack(folder.path(), first, &[("other", Regular, "x")])
            .unwrap_err()
            .contains("does not begin with a")
    );
    assert!(
        Tree::new(folder.path(), RULES)
            .unwrap()
            .apply(&[1; 2000][..])
            .is_err()
    );
    symlink("/", folder.path().join("root")).unwrap();
    unpack(folder.path(), image(), &[("root/inside", Regular, "x")]).unwrap();
    assert!(folder.path().join("inside").exists());
}

/// A folder that contains the target, with its owner's files, and a file beside the target.
fn target() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    fs::write(outer.path().join(".bashrc"), "mine").unwrap();
    let target = outer.path().join("data");
    fs::create_dir_all(target.join("sub")).unwrap();
    fs::set_permissions(target.join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(target.join("sub/file"), "kept").unwrap();
    symlink("..", target.join("up")).unwrap();
    symlink("sub", target.join("down")).unwrap();
    (outer, target)
}

#[test]
fn what_a_machine_sends_stays_in_the_target() {
    for (files, part) in [
        (
            &[("data/l", Symlink, ".."), ("data/l/.bashrc", Regular, "x")][..],
            "not followed",
        ),
        (
            &[("data/l", Symlink, "sub"), ("data/l/file", Regular, "x")],
            "not followed",
        ),
        (
            &[
                ("data/l", Symlink, "/"),
                ("data/l/etc/paravane-test", Regular, "x"),
            ],
            "not followed",
        ),
        // Existing links may come out of a machine, too.
        (&[("data/up/.bashrc", Regular, "x")], "not followed"),
        (&[("data/down/file", Regular, "x")], "not followed"),
        (&[("data/up/.bashrc", Directory, "")], "not followed"),
        (&[("data/up/new/x", Regular, "x")], "not followed"),
        (
            &[
                ("data/h", Link, "data/up/.bashrc"),
                ("data/h", Regular, "x"),
            ],
            "a hard link",
        ),
        (&[("data/h", Link, "data/sub/file")], "a hard link"),
        (&[("data/h", Link, "../.bashrc")], "a hard link"),
        (
            &[("data", Symlink, ".."), ("data/.bashrc", Regular, "x")],
            "a folder on the host",
        ),
        (&[("data", Regular, "x")], "a folder on the host"),
        (&[("data/", EntryType::Fifo, "")], "a folder on the host"),
        (&[("data/sub", Regular, "x")], "a folder on the host"),
        (&[("data/sub", Symlink, "..")], "a folder on the host"),
        (&[(".bashrc", Regular, "x")], "does not begin with data"),
        (&[("./.bashrc", Regular, "x")], "does not begin with data"),
        (&[("", Symlink, "..")], "does not begin with data"),
        (&[("data/../.bashrc", Regular, "x")], "leads outside"),
        (
            &[("other/data/x", Regular, "x")],
            "does not begin with data",
        ),
    ] {
        let (outer, target) = target();
        let error = unpack(&target, merged(), files).unwrap_err();
        assert!(error.contains(part), "{files:?}: {error}");
        let mut names: Vec<_> = fs::read_dir(outer.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, [".bashrc", "data"], "{files:?}");
        assert_eq!(
            fs::read(outer.path().join(".bashrc")).unwrap(),
            b"mine",
            "{files:?}"
        );
        assert_eq!(
            fs::metadata(outer.path().join(".bashrc")).unwrap().nlink(),
            1,
            "{files:?}"
        );
        assert_eq!(
            fs::read(target.join("sub/file")).unwrap(),
            b"kept",
            "{files:?}"
        );
    }
    assert!(!Path::new("/etc/paravane-test").exists());
}

#[test]
fn what_a_machine_sends_goes_into_a_folder_that_is_there() {
    let (outer, target) = target();
    let files = [
        ("data/", Directory, ""),
        ("data/sub", Directory, ""),
        ("data/sub/more", Regular, "new"),
        ("data/sub/file", Regular, "other"),
        ("/data/up", Directory, ""),
        ("data/up/.bashrc", Regular, "inside"),
        ("data/fresh", Directory, ""),
    ];
    unpack(&target, merged(), &files).unwrap();
    let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
    assert_eq!(
        (read("sub/more"), read("sub/file"), read("up/.bashrc")),
        ("new".into(), "other".into(), "inside".into())
    );
    assert_eq!(fs::read(outer.path().join(".bashrc")).unwrap(), b"mine");
    // Only their owner may change the rights of existing files.
    let mode = |name: &str| {
        fs::metadata(target.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!((mode("sub"), mode("fresh")), (0o700, 0o755));
}

#[test]
fn a_layer_s_folders_are_removed_however_deep() {
    let folder = tempfile::tempdir().unwrap();
    let deep = vec!["d"; 40].join("/");
    let many: Vec<String> = (0..3000).map(|n| format!("{deep}/{n}")).collect();
    let files: Vec<_> = many
        .iter()
        .map(|name| (name.as_str(), Regular, ""))
        .collect();
    let rules = Rules {
        entries: 10_000,
        ..image()
    };
    unpack(folder.path(), rules.clone(), &files).unwrap();
    assert_eq!(
        fs::read_dir(folder.path().join(&deep)).unwrap().count(),
        3000
    );
    // Everything of the lower layer, and nothing of this one.
    let last = format!("{deep}/kept");
    let opaque = format!("{deep}/.wh..wh..opq");
    unpack(
        folder.path(),
        rules.clone(),
        &[(&last, Regular, ""), (&opaque, Regular, "")],
    )
    .unwrap();
    assert_eq!(fs::read_dir(folder.path().join(&deep)).unwrap().count(), 1);
    unpack(folder.path(), rules, &[(".wh.d", Regular, "")]).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn names_without_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut header = Header::new_gnu();
    header.set_path("l").unwrap();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    let bytes = &header.as_bytes()[..];
    for rules in [RULES, image()] {
        let endless = bytes.chain(std::io::repeat(b'a')).take(1 << 30);
        let error = Tree::new(folder.path(), rules)
            .unwrap()
            .apply(endless)
            .unwrap_err();
        assert!(
            format!("{error:#}").contains("more than 64 KiB"),
            "{error:#}"
        );
    }
}

/// Each level takes descriptors when the folders are removed.
#[test]
fn folders_are_not_too_deep() {
    let deep = |levels: usize| "a/".repeat(levels);
    for rules in [image(), RULES] {
        let folder = tempfile::tempdir().unwrap();
        for levels in [40, 45] {
            unpack(
                folder.path(),
                rules.clone(),
                &[(&deep(levels), Directory, "")],
            )
            .unwrap();
        }
        fs::remove_dir_all(folder.path().join("a")).unwrap();
    }
    // Names of a header have 100 bytes; links lead deeper.
    let folder = tempfile::tempdir().unwrap();
    let mut names = vec![(deep(30), Directory, String::new())];
    let mut last = deep(30);
    for n in 0..10 {
        names.push((n.to_string(), Symlink, last));
        last = format!("{n}/{}", deep(30));
        names.push((last.clone(), Directory, String::new()));
    }
    let borrowed: Vec<_> = names
        .iter()
        .map(|(name, kind, target)| (name.as_str(), *kind, target.as_str()))
        .collect();
    let error = unpack(folder.path(), image(), &borrowed).unwrap_err();
    assert!(error.contains("more than 256 nested folders"), "{error}");
    fs::remove_dir_all(folder.path()).unwrap();
}

/// A guest may write to the folder into which its files are copied.
#[test]
fn the_mode_of_a_fifo_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("secret", folder.path().join("link")).unwrap();
    let parent = OwnedFd::from(fs::File::open(folder.path()).unwrap());
    let error = fifo_mode(&parent, OsStr::new("link"), 0o777).unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);

    // No machine gives one to its host, where a program that reads a folder would wait for ever.
    let fifo = [("fifo", EntryType::Fifo, "")];
    let error = unpack(folder.path(), RULES, &fifo).unwrap_err();
    assert!(format!("{error:#}").contains("a named pipe"), "{error:#}");
    unpack(folder.path(), image(), &fifo).unwrap();
    let mode = fs::symlink_metadata(folder.path().join("fifo"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o7777, 0o755);
}
