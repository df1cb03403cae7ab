// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines, applied to a root in a temporary directory.

#![allow(clippy::unwrap_used)] // The way in which a test fails.

use super::line::{Kind, Line, parse};
use super::{Specifiers, Tree, apply};
use crate::user::Accounts;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Root(TempDir);

impl Root {
    /// With these files, by path and content.
    fn with(files: &[(&str, &str)]) -> Self {
        let root = Root(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = root.path(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn lines(text: &str) -> Self {
        Root::with(&[("/usr/lib/tmpfiles.d/a.conf", text)])
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn apply(&self) -> Vec<String> {
        let tree = Tree::open(self.0.path()).unwrap();
        apply(&tree, &Accounts::default())
    }

    fn mode(&self, path: &str) -> u32 {
        let file = fs::symlink_metadata(self.path(path)).unwrap();
        file.permissions().mode() & 0o7777
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn target(&self, path: &str) -> PathBuf {
        fs::read_link(self.path(path)).unwrap()
    }
}

fn one(text: &str) -> Result<Option<Line>, String> {
    parse(text.as_bytes(), &Specifiers::default())
}

#[test]
fn each_type_creates_what_it_says() {
    let root = Root::lines(
        "# a comment\n\
         d /run/lock 1777 - - -\n\
         D /run/a/b/c 2750\n\
         q /srv\n\
         f /run/file 0600 - - - two\\nlines\\x21\n\
         f /run/empty\n\
         F /run/old - - - - new\n\
         p /run/fifo 0620\n\
         L /run/link - - - - ../target\n\
         L? /run/dangling - - - - /nowhere\n\
         L? /run/leads - - - - file\n\
         C /run/copy - - - - /etc/tree\n\
         C /etc/missing\n\
         C /etc/other - - - - /nowhere\n\
         w /run/[ou]* - - - - written\n\
         z /run/e* 0640\n\
         Z /run/copy 0750\n",
    );
    fs::create_dir_all(root.path("etc/tree/sub")).unwrap();
    fs::write(root.path("etc/tree/sub/file"), "deep").unwrap();
    symlink("sub/file", root.path("etc/tree/link")).unwrap();
    fs::create_dir(root.path("run")).unwrap();
    fs::write(root.path("run/old"), "the old text").unwrap();
    assert_eq!(root.apply(), Vec::<String>::new());
    assert_eq!(root.mode("/run/lock"), 0o1777);
    assert_eq!(
        (root.mode("/run/a"), root.mode("/run/a/b/c")),
        (0o755, 0o2750)
    );
    assert_eq!(root.mode("/srv"), 0o755);
    assert_eq!(root.text("/run/file"), "two\nlines!");
    assert_eq!(root.mode("/run/file"), 0o600);
    assert_eq!(
        (root.text("/run/empty"), root.mode("/run/empty")),
        (String::new(), 0o640)
    );
    // The F line has truncated it before.
    assert_eq!(root.text("/run/old"), "written");
    let fifo = fs::metadata(root.path("run/fifo")).unwrap();
    assert!(fifo.file_type().is_fifo());
    assert_eq!(root.mode("/run/fifo"), 0o620);
    assert_eq!(root.target("/run/link"), Path::new("../target"));
    assert!(fs::symlink_metadata(root.path("run/dangling")).is_err());
    assert_eq!(root.target("/run/leads"), Path::new("file"));
    assert_eq!(root.text("/run/copy/sub/file"), "deep");
    assert_eq!(root.target("/run/copy/link"), Path::new("sub/file"));
    assert_eq!(root.mode("/run/copy/sub/file"), 0o750);
    // The original is as it was.
    assert_eq!(root.mode("/etc/tree/sub/file"), 0o644);
    // A second time there is nothing to do.
    assert_eq!(root.apply(), Vec::<String>::new());
}

#[test]
fn existing_files_stay_unless_a_line_replaces_them() {
    let files = [
        ("/run/kept", "kept"),
        ("/run/linked", "a file"),
        ("/run/replaced", "a file"),
    ];
    let root = Root::with(&files);
    let lines = "f /run/kept 0640 - - - other\n\
                 L /run/linked - - - - elsewhere\n\
                 L+ /run/replaced - - - - elsewhere\n\
                 d= /run/made\n\
                 d :0700 /x\n\
                 d /run/own :0700\n\
                 d /run/new :0700\n";
    fs::create_dir_all(root.path("usr/lib/tmpfiles.d")).unwrap();
    fs::write(root.path("usr/lib/tmpfiles.d/a.conf"), lines).unwrap();
    fs::write(root.path("run/made"), "a file").unwrap();
    fs::create_dir(root.path("run/own")).unwrap();
    fs::set_permissions(root.path("run/own"), fs::Permissions::from_mode(0o755)).unwrap();
    let complaints = root.apply();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("/usr/lib/tmpfiles.d/a.conf:5: "));
    assert_eq!(
        (root.text("/run/kept"), root.mode("/run/kept")),
        ("kept".into(), 0o640)
    );
    assert_eq!(root.text("/run/linked"), "a file");
    assert_eq!(root.target("/run/replaced"), Path::new("elsewhere"));
    assert!(root.path("run/made").is_dir());
    assert_eq!(
        (root.mode("/run/own"), root.mode("/run/new")),
        (0o755, 0o700)
    );
}

#[test]
fn a_file_hides_those_of_its_name_in_later_directories() {
    let root = Root::with(&[
        ("/usr/lib/tmpfiles.d/a.conf", "d /run/a-usr"),
        (
            "/usr/lib/tmpfiles.d/b.conf",
            "d /run/b-usr\nd /run/twice 0700",
        ),
        (
            "/usr/lib/tmpfiles.d/c.conf",
            "d /run/c-usr\nd /run/twice 0755",
        ),
        ("/usr/lib/tmpfiles.d/d.conf", "d /run/d-usr"),
        ("/usr/lib/tmpfiles.d/README", "no line"),
        ("/run/tmpfiles.d/b.conf", ""),
        ("/etc/tmpfiles.d/a.conf", "d /run/a-etc\nd /run/twice 0711"),
        ("/etc/tmpfiles.d/z.conf", "d /run/z-etc"),
    ]);
    symlink("/dev/null", root.path("etc/tmpfiles.d/d.conf")).unwrap();
    assert_eq!(root.apply(), Vec::<String>::new());
    let mut made: Vec<_> = fs::read_dir(root.path("run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    made.sort();
    assert_eq!(made, ["a-etc", "c-usr", "tmpfiles.d", "twice", "z-etc"]);
    assert_eq!(root.mode("/run/twice"), 0o711);
}

#[test]
fn owners_are_those_of_the_root() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let own = file.as_file().metadata().unwrap();
    let (passwd, group) = (
        format!("me:x:{}:0::/:/bin/sh\n", own.uid()),
        format!("us:x:{}:\n", own.gid()),
    );
    let root = Root::lines("d /run/x 0755 me us\nd /run/y - nobody-here -\nd- /run/z - - nobodies");
    let tree = Tree::open(root.0.path()).unwrap();
    let complaints = apply(&tree, &Accounts::of(&passwd, &group));
    let unknown = "/usr/lib/tmpfiles.d/a.conf:2: /run/y: there is no user nobody-here";
    assert_eq!(complaints, [unknown]);
    assert!(!root.path("run/y").exists() && !root.path("run/z").exists());
    let made = fs::metadata(root.path("run/x")).unwrap();
    assert_eq!((made.uid(), made.gid()), (own.uid(), own.gid()));
}

#[test]
fn no_link_leads_out() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let out = outside.path().display();
    let root = Root::lines(
        "d /run/down/new\nf+ /run/file - - - - changed\nw /run/file - - - - changed\n\
         z /run/file 0777\nd /run/up/new\nC /run/stolen - - - - /run/down/file\n",
    );
    fs::create_dir(root.path("run")).unwrap();
    symlink(outside.path(), root.path("run/down")).unwrap();
    symlink(outside.path().join("file"), root.path("run/file")).unwrap();
    symlink(
        "../../../../../../../..".to_string() + &out.to_string(),
        root.path("run/up"),
    )
    .unwrap();
    let complaints = root.apply();
    assert!(!complaints.is_empty());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    let file = outside.path().join("file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "outside");
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o644
    );
    assert!(!root.path("run/stolen").exists());
}

#[test]
fn a_hostile_root_is_bounded() {
    // FIFOs, too many lines, a copy of a directory into itself.
    let long = format!("d /{}\n", "a/".repeat(100));
    let many: String = (0..20_000).map(|n| format!("y{n} /x\n")).collect();
    let text =
        format!("{long}C /run/deep - - - - /run\nw /run/fifo - - - - text\nC /run/b\n{many}");
    let root = Root::lines(&text);
    fs::create_dir(root.path("run")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let etc = root.path("etc/tmpfiles.d");
    fs::create_dir_all(&etc).unwrap();
    for path in [root.path("run/fifo"), etc.join("0-fifo.conf")] {
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, mode, 0).unwrap();
    }
    fs::write(etc.join("0-large.conf"), vec![b'\n'; 300 << 10]).unwrap();
    let complaints = root.apply();
    assert!(
        complaints.len() <= super::MAX_COMPLAINTS + 1,
        "{complaints:?}"
    );
    assert!(complaints.last().unwrap().contains("more lines"));
    for part in [
        "fifo.conf: cannot read it: not a regular",
        "large.conf: cannot read it: larger",
    ] {
        assert!(
            complaints.iter().any(|c| c.contains(part)),
            "{part}: {complaints:?}"
        );
    }
}

#[test]
fn systemd_does_not_seem_to_run() {
    let root = Root::lines("F! /run/nologin\nd /run/systemd/system\nd /run/systemd/seats");
    assert_eq!(root.apply(), Vec::<String>::new());
    assert!(root.path("run/systemd/seats").is_dir());
    assert!(!root.path("run/systemd/system").exists());
    assert!(!root.path("run/nologin").exists());
}

#[test]
fn invalid_lines_are_reported() {
    for (text, part) in [
        ("d", "needs a type and a path"),
        ("y /x", "unknown type y"),
        ("d% /x", "unknown type d%"),
        ("d x", "not an absolute path"),
        ("d /x/../y", ".."),
        ("d /x 0999", "invalid mode 0999"),
        ("d /x 17777", "invalid mode 17777"),
        ("d /x +755", "invalid mode +755"),
        ("d \"/x", "quote is not closed"),
        ("d /x\\q", "invalid escape"),
        ("d /x\\x00", "invalid escape"),
        ("w /x", "needs an argument"),
        ("c /x - - - - 1:y", "MAJOR:MINOR"),
        ("c /x - - - - 4096:0", "MAJOR:MINOR"),
        ("C /x - - - - relative", "not an absolute path"),
        ("f~ /x - - - - YQ==", "base64"),
    ] {
        let why = one(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
    for nothing in [
        "",
        "  ",
        "# d /x",
        "x /tmp/*",
        "r! /x",
        "a+ /x - - - - u::r",
        "f^ /x",
    ] {
        assert_eq!(one(nothing), Ok(None), "{nothing}");
    }
    let line = one(r#"f+!-  "/run/a b"  ~:0640 :me - 10d  say\t"x"  "#)
        .unwrap()
        .unwrap();
    assert_eq!(
        (line.kind, line.path.to_str()),
        (Kind::File, Some("/run/a b"))
    );
    assert!(line.plus && line.may_fail && !line.replace);
    let mode = line.mode.unwrap();
    assert_eq!((mode.bits, mode.masked, mode.only_new), (0o640, true, true));
    assert!(
        line.user
            .as_ref()
            .is_some_and(|user| user.only_new && user.name == "me")
    );
    assert_eq!(
        (line.group.as_ref(), line.argument.as_deref()),
        (None, Some(&b"say\t\"x\""[..]))
    );
    let line = one("d /var/run//x/./y/").unwrap().unwrap();
    assert_eq!(line.path, Path::new("/run/x/y"));
    let line = one("L /etc/x").unwrap().unwrap();
    assert_eq!(line.argument_path(), Path::new("/usr/share/factory/etc/x"));
}

/// Quotes a field and escapes it as necessary.
fn quoted(field: &str) -> String {
    let mut all = "\"".to_string();
    for character in field.chars() {
        match character {
            '"' | '\\' => all.extend(['\\', character]),
            '\n' => all.push_str("\\n"),
            '%' => all.push_str("%%"),
            other => all.push(other),
        }
    }
    all + "\""
}

proptest! {
    #[test]
    fn any_line_is_handled(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&text, &Specifiers::default());
    }

    #[test]
    fn lines_with_small_errors_are_handled(
        text in "[fFwdDvqQepLcbCzZxrta][+!=~^?$-]{0,3} [/a%tm\\\\\"'x0-9. *-]{0,40}",
    ) {
        let _ = one(&text);
    }

    #[test]
    fn written_fields_are_read(
        parts in prop::collection::vec("[^/\0]{1,12}", 1..5), bits in 0u32..=0o7777, masked: bool,
        name in "[a-z][a-z0-9_-]{0,8}",
    ) {
        prop_assume!(parts.iter().all(|part| part != "." && part != ".."));
        let path = format!("/{}", parts.join("/"));
        prop_assume!(!path.starts_with("/var/run/"));
        let mark = if masked { "~" } else { "" };
        let line = one(&format!("d {} {mark}{bits:o} {name} :{name} -", quoted(&path)));
        let line = line.unwrap().unwrap();
        prop_assert_eq!(line.path, Path::new(&path));
        let mode = line.mode.unwrap();
        prop_assert_eq!((mode.bits, mode.masked, mode.only_new), (bits, masked, false));
        prop_assert_eq!(line.user.unwrap().name, name.clone());
        prop_assert!(line.group.is_some_and(|group| group.only_new && group.name == name));
    }
}
