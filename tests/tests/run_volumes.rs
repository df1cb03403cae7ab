// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest cannot leave a program in a shared folder that gives its caller rights on the host.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use paravane_tests::volume_shell::Shell;
use paravane_tests::{linux, program, source_root, vm};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the program that tries all ways, and one that the guest may write to.
struct Folders {
    folder: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        linux::compile(
            &source_root().join("tests/guest/rights"),
            &folder.path().join("rights"),
        );
        fs::create_dir(folder.path().join("shared")).unwrap();
        Folders { folder }
    }

    fn shared(&self, name: &str) -> PathBuf {
        self.folder.path().join("shared").join(name)
    }

    /// Runs a script in a machine. The folder is /w, with these options, and the program is
    /// /t/rights.
    fn run(&self, options: &str, script: &str) -> program::Run {
        let volumes = [
            format!("{}:/t:ro", self.folder.path().display()),
            format!("{}:/w{options}", self.shared("").display()),
        ];
        let mut command = vm::command(["--volume", &volumes[0], "--volume", &volumes[1]]);
        program::finish(command.args(["--", "sh", "-c", script]))
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// All rights that files below a folder give: modes and capabilities.
fn rights(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        let capable = ["security.capability", "trusted.paravane"]
            .map(|name| rustix::fs::lgetxattr(&path, name, &mut [0; 64][..]).is_ok());
        if !kind.is_symlink() && (mode(&path) & 0o6000 != 0 || capable.contains(&true)) {
            all.push(path.clone());
        }
        if kind.is_dir() {
            all.extend(rights(&path));
        }
    }
    all
}

/// This holds for each order of the options.
#[test]
fn a_folder_in_a_folder_is_mounted_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("outer/inner")).unwrap();
    fs::create_dir(path("other")).unwrap();
    fs::write(path("outer/file"), "outer\n").unwrap();
    fs::write(path("other/file"), "other\n").unwrap();
    let outer = format!("{}:/m", path("outer").display());
    let inner = format!("{}:/m/inner", path("other").display());
    for volumes in [[&outer, &inner], [&inner, &outer]] {
        let mut command = vm::command(["--volume", volumes[0], "--volume", volumes[1]]);
        let run = program::finish(command.args(["--", "cat", "/m/file", "/m/inner/file"]));
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "outer\nother\n"),
            "{run:?}"
        );
    }
}

#[test]
fn a_guest_makes_no_setuid_program_of_this_host() {
    let folders = Folders::new();
    let done = folders.run("", "/t/rights /w");
    let expected = "open: 755\nmknod: 755\nmkdir: 755\nchmod folder: 755\nfchmod: 755\n\
        chmod: 755\nfchmodat: 755\n\
        rename: 755\nlink: 755\nsecurity.capability: Operation not supported\n\
        trusted.paravane: Operation not supported\n\
        user.paravane: set\n";
    assert_eq!((done.code, done.stdout.as_str()), (0, expected), "{done:?}");
    assert_eq!(rights(&folders.shared("")), Vec::<PathBuf>::new());
    // With :suid the modes are kept.
    let done = folders.run(":suid", "rm -r /w/*; /t/rights /w");
    let expected = "open: 6755\nmknod: 6755\nmkdir: 755\nchmod folder: 6755\nfchmod: 6755\n\
        chmod: 4755\nfchmodat: 2755\n";
    assert!(
        done.code == 0 && done.stdout.starts_with(expected),
        "{done:?}"
    );
    assert_eq!(mode(&folders.shared("renamed")), 0o6755);
    if rustix::process::geteuid().is_root() {
        assert!(
            done.stdout.contains("security.capability: set\n"),
            "{done:?}"
        );
    }
}

/// Programs that copy, unpack and install succeed. The files have the modes that are allowed.
#[test]
fn programs_that_set_modes_are_not_disturbed() {
    let folders = Folders::new();
    let script = "set -e; umask 022; cd /tmp; echo x > a; chmod 6755 a; mkdir d; chmod 2775 d
        cp -p a /w/copied; tar -cf t a d; tar -xpf t -C /w; mkdir -m 2775 /w/made
        cp -a d /w/e; chmod u+s /w/copied; stat -c '%a %n' /w/*";
    let done = folders.run("", script);
    let expected = "755 /w/a\n755 /w/copied\n775 /w/d\n775 /w/e\n775 /w/made\n";
    assert_eq!((done.code, done.stdout.as_str()), (0, expected), "{done:?}");
    assert_eq!(rights(&folders.shared("")), Vec::<PathBuf>::new());
}

/// A program that its owner on the host made setuid keeps the bit until the guest writes to the
/// program.
#[test]
fn programs_of_the_host_keep_their_rights_until_they_are_written_to() {
    let folders = Folders::new();
    for name in ["kept", "written", "cut"] {
        fs::write(folders.shared(name), "x").unwrap();
        fs::set_permissions(folders.shared(name), fs::Permissions::from_mode(0o6755)).unwrap();
    }
    fs::create_dir(folders.shared("team")).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(folders.shared("team"), None, Some(12345)).unwrap();
    }
    fs::set_permissions(folders.shared("team"), fs::Permissions::from_mode(0o2750)).unwrap();
    let script = "set -e; cd /w; cat kept; mv kept moved; chmod g+w team; echo evil >> written; \
        : > cut; touch team/new";
    let done = folders.run("", script);
    assert_eq!((done.code, done.stdout.as_str()), (0, "x"), "{done:?}");
    assert_eq!(mode(&folders.shared("moved")), 0o6755);
    assert_eq!(mode(&folders.shared("written")), 0o755);
    assert_eq!(mode(&folders.shared("cut")), 0o755);
    // The setgid bit of a folder selects the group of new files.
    assert_eq!(mode(&folders.shared("team")), 0o2770);
    let group = |name: &str| fs::metadata(folders.shared(name)).unwrap().gid();
    assert_eq!(group("team/new"), group("team"));
}

/// The guest's mode bits apply in the folder. Files that the monitor makes elsewhere have the
/// user's own modes.
#[test]
fn a_volume_does_not_open_the_monitors_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, socket) = (folder.path().join("shared"), folder.path().join("metrics"));
    fs::create_dir(&shared).unwrap();
    let volume = format!("{}:/x", shared.display());
    let script = "umask 077; exec \"$0\" \"$@\"";
    let inner = vm::command(["--volume", &volume, "--metrics", socket.to_str().unwrap()]);
    let mut monitor = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(inner.get_program())
        .args(inner.get_args())
        .args([
            "--timeout",
            "60",
            "--",
            "sh",
            "-c",
            "umask 0; : > /x/file; echo on; read line",
        ])
        .envs(
            inner
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let line = program::first_line(&mut monitor);
    assert_eq!(line, "on\n");
    let seen = (mode(&socket), mode(&shared.join("file")));
    drop(monitor.stdin.take());
    program::wait_within(&mut monitor, program::PATIENCE);
    assert_eq!((seen.0 & 0o077, seen.1), (0, 0o666), "{seen:?}");
}

/// A file that is read in order is read ahead by up to 1 MiB, and no other.
#[test]
fn reading_ahead_is_bounded() {
    const READS: u64 = 60;
    let folder = tempfile::tempdir().unwrap();
    for name in ["ordered", "scattered"] {
        fs::write(folder.path().join(name), vec![1; 32 << 20]).unwrap();
    }
    let mut shell = Shell::new(&format!("{}:/x:ro", folder.path().display()));
    let mut grows = |command: &str| -> u64 {
        let before = "before=$(awk '/^Cached/ { print $2 }' /proc/meminfo)";
        let after = "awk -v b=$before '/^Cached/ { print $2 - b }' /proc/meminfo";
        let said = shell.says(&format!("{before}; {command}; {after}"));
        said.parse().unwrap_or_else(|_| panic!("{said}"))
    };
    let read = "dd of=/dev/null bs=4k status=none";
    let ordered = grows(&format!("{read} if=/x/ordered count=512"));
    let scattered = grows(&format!(
        "i=1; while [ $i -le {READS} ]; do {read} if=/x/scattered count=1 skip=$((i * 100)); \
         i=$((i + 1)); done"
    ));
    println!("2 MiB in order: {ordered} KiB; {READS} pages: {scattered} KiB");
    assert!((2048 + 512..=2 * 2048).contains(&ordered), "{ordered}");
    assert!(scattered <= READS * 4 + 256, "{scattered}");
}

/// Files of the host may have a largest size. The guest learns of it, and goes on.
#[test]
fn a_largest_size_of_files_ends_no_machine() {
    let folder = tempfile::tempdir().unwrap();
    let machine = vm::command([
        "--volume",
        &format!("{}:/x", folder.path().display()),
        "--",
        "sh",
        "-c",
        "dd if=/dev/zero of=/x/f bs=1M seek=5000 count=1 2>&1 | grep -o 'File too large'; \
         echo small >/x/g; cat /x/g",
    ]);
    let mut command = Command::new("prlimit");
    command.arg("--fsize=4294967296").arg(machine.get_program());
    let run = program::finish(command.args(machine.get_args()));
    assert_eq!(
        (run.code, &*run.stdout),
        (0, "File too large\nsmall\n"),
        "{run:?}"
    );
}

/// The monitor has a descriptor for each file that the guest knows. Where it may have few, the
/// guest forgets what it does not use.
#[test]
fn a_folder_may_have_more_files_than_the_monitor_may_open() {
    const FILES: usize = 1500;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        let path = folder.path().join(format!("d{}", number % 7));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(number.to_string()), format!("{number}\n")).unwrap();
    }
    let volume = format!("{}:/w", folder.path().display());
    let script = "cd /w; find . -type f | wc -l; cat */* | sort -n | uniq | wc -l
        i=0; while [ $i -lt 300 ]; do echo $i >new$i || exit 1; i=$((i + 1)); done
        cat new* | wc -l; find . -type f | xargs ls -l | wc -l; rm new*; ls | wc -l";
    let whole = vm::command(["--volume", &volume, "--", "sh", "-c", script]);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 500 && exec \"$@\"", "sh"]);
    command.arg(whole.get_program()).args(whole.get_args());
    for (name, value) in whole.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let run = program::finish(&mut command);
    assert_eq!(run.code, 0, "{run:?}");
    let lines = "1500\n1500\n300\n1800\n7\n";
    assert_eq!(run.stdout, lines, "{}", run.stderr);
}

/// A folder of which this user may read the names, and nothing else.
#[test]
fn names_are_listed_where_nothing_can_be_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    let names = folder.path().join("names");
    fs::create_dir(&names).unwrap();
    for name in ["one", "two"] {
        fs::write(names.join(name), "").unwrap();
    }
    fs::set_permissions(&names, Permissions::from_mode(0o444)).unwrap();
    let volume = format!("{}:/w:ro", folder.path().display());
    let whole = vm::command(["--volume", &volume, "--", "ls", "/w/names"]);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        let rights = "-dac_override,-dac_read_search";
        command.args(["--bounding-set", rights, "--inh-caps", rights]);
        command.arg(whole.get_program());
        command
    } else {
        Command::new(whole.get_program())
    };
    command.args(whole.get_args());
    for (name, value) in whole.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let run = program::finish(&mut command);
    fs::set_permissions(&names, Permissions::from_mode(0o755)).unwrap();
    for name in ["one", "two"] {
        let refused = format!("/w/names/{name}: Permission denied\n");
        assert!(run.stderr.contains(&refused), "{run:?}");
    }
}
