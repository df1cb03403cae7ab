// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that no Linux would send, under the thread's own policy, and their effects on files of
//! the host.

mod holes;
mod lists;
mod lost;
mod notices;
mod request;
mod rights;
mod slow;
mod taken;

use super::super::Device;
use super::super::test_guest::{FREE, Guest};
use super::{Access, Driver, Fs, Places};
use paravane_confine as confine;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

// Operations of FUSE.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
const REMOVEXATTR: u32 = 24;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const CREATE: u32 = 35;
const FALLOCATE: u32 = 43;
const RENAME2: u32 = 45;

/// The folder itself.
const ROOT: u64 = 1;
/// `struct setattr_in`: which fields count.
const MODE: u32 = 1;
const SIZE: u32 = 1 << 3;
const HANDLE: u32 = 1 << 6;
/// The answer of a file system without such an attribute.
const NONE: i32 = libc::EOPNOTSUPP;

/// A driver that sends whatever a test wants.
struct Sender {
    guest: Guest,
    fs: Fs,
    driver: Driver,
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Sender {
    fn new(fs: Fs) -> Self {
        let guest = Guest::new(2);
        let driver = guest.driver(0);
        let mut sender = Sender { guest, fs, driver };
        sender.ok(INIT, 0, &bytes(&[7, 31, 1 << 17, 0]));
        sender
    }

    /// Sends a request. Returns the error, or the body of the answer.
    fn send(&mut self, operation: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let (length, answer) = request::put(&self.guest, FREE, operation, node, body);
        self.guest
            .offer(1, &[(FREE, length, false), (answer, 8192, true)]);
        self.fs.notified(&mut self.driver, 1).unwrap();
        let used = self.guest.used(1);
        // The file system's end has no length in its answer.
        let length = usize::try_from(used[0].1).unwrap().max(16);
        assert!(
            used.len() == 1 && (used[0].1 >= 16 || operation == DESTROY),
            "{used:?}"
        );
        let error = self.guest.read::<i32>(answer + 4);
        if error != 0 {
            return Err(-error);
        }
        Ok(self.guest.get(answer + 16, length - 16))
    }

    fn ok(&mut self, operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        self.send(operation, node, body)
            .unwrap_or_else(|error| panic!("{operation}: {error}"))
    }

    fn lookup(&mut self, name: &str) -> u64 {
        long(
            &self.ok(LOOKUP, ROOT, &[name.as_bytes(), b"\0"].concat()),
            0,
        )
    }

    /// The mode that the answer shows.
    fn chmod(&mut self, node: u64, mode: u32, handle: Option<u64>) -> Result<u32, i32> {
        let answer = self.setattr(node, MODE, mode, 0, handle)?;
        // After the time for which it is valid: `struct fuse_attr`.
        Ok(u32::from_le_bytes(
            answer[16 + 60..16 + 64].try_into().unwrap(),
        ))
    }

    fn setattr(
        &mut self,
        node: u64,
        valid: u32,
        mode: u32,
        size: u64,
        handle: Option<u64>,
    ) -> Result<Vec<u8>, i32> {
        self.send(SETATTR, node, &attributes(valid, mode, size, handle))
    }

    fn set(&mut self, node: u64, name: &str, value: &[u8]) -> Result<(), i32> {
        let mut body = bytes(&[u32::try_from(value.len()).unwrap(), 0]);
        body.extend(name.as_bytes());
        body.push(0);
        body.extend(value);
        self.send(SETXATTR, node, &body).map(drop)
    }

    /// Opens a file for writing. Returns the handle.
    fn open(&mut self, node: u64, flags: i32) -> u64 {
        long(
            &self.ok(OPEN, node, &bytes(&[flags.try_into().unwrap(), 0])),
            0,
        )
    }
}

/// `struct fuse_setattr_in`.
fn attributes(valid: u32, mode: u32, size: u64, handle: Option<u64>) -> Vec<u8> {
    let mut body = bytes(&[valid | handle.map_or(0, |_| HANDLE), 0]);
    body.extend(handle.unwrap_or(0).to_le_bytes());
    body.extend(size.to_le_bytes());
    body.extend([0; 32 + 12]);
    body.extend(bytes(&[mode, 0, 0, 0, 0]));
    body
}

/// Runs `body` as the device's thread of a folder.
fn confined<T: Send>(
    folder: &Path,
    access: Access,
    body: impl FnOnce(&mut Sender) -> T + Send,
) -> T {
    let fs = Fs::new(folder, "test", access).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            confine::enter(&fs.name(), &fs.files()).unwrap();
            body(&mut Sender::new(fs))
        });
        thread.join().unwrap()
    })
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn named(words: &[u32], name: &str) -> Vec<u8> {
    [&bytes(words)[..], name.as_bytes(), b"\0"].concat()
}

const O_WRONLY: u32 = libc::O_WRONLY as u32;
const O_CREAT: u32 = libc::O_CREAT as u32;

/// A capability of a file: version 2, effective, CAP_SETUID.
fn capability() -> Vec<u8> {
    bytes(&[0x0200_0001, 1 << 7, 0, 0, 0])
}

const LIST: &str = "system.posix_acl_access";

/// An access control list of version 2 that agrees with the mode: owner, group, others.
fn access_list() -> Vec<u8> {
    let entry = |tag: u32, rights: u32| bytes(&[rights << 16 | tag, u32::MAX]);
    [bytes(&[2]), entry(1, 6), entry(4, 4), entry(0x20, 4)].concat()
}

/// All ways to a file that gives its caller rights.
fn try_all(sender: &mut Sender) -> Vec<(&'static str, Result<(), i32>)> {
    let mut all = Vec::new();
    for (name, flags) in [
        ("created", O_WRONLY),
        ("created_excl", O_WRONLY | libc::O_EXCL as u32),
    ] {
        let done = sender.send(CREATE, ROOT, &named(&[flags | O_CREAT, 0o6755, 0, 0], name));
        all.push((name, done.map(drop)));
    }
    for (name, kind) in [
        ("node", libc::S_IFREG),
        ("plain", 0),
        ("pipe", libc::S_IFIFO),
    ] {
        let done = sender.send(MKNOD, ROOT, &named(&[kind | 0o6755, 0, 0, 0], name));
        all.push((name, done.map(drop)));
    }
    let made = sender.send(MKDIR, ROOT, &named(&[0o6755, 0], "folder"));
    all.push(("folder", made.map(drop)));
    let file = sender.lookup("file");
    all.push(("chmod", sender.chmod(file, 0o6755, None).map(drop)));
    let other = sender.lookup("other");
    let handle = sender.open(other, libc::O_RDWR);
    all.push((
        "fchmod",
        sender.chmod(other, 0o106_755, Some(handle)).map(drop),
    ));
    let sub = sender.lookup("sub");
    all.push(("chmod sub", sender.chmod(sub, 0o6755, None).map(drop)));
    // A file without a name, made through the folder's node, gets no rights through a folder's
    // either.
    if let Ok(answer) = sender.send(
        OPEN,
        sub,
        &bytes(&[(libc::O_TMPFILE | libc::O_RDWR).try_into().unwrap(), 0]),
    ) {
        all.push((
            "nameless",
            sender.chmod(sub, 0o6755, Some(long(&answer, 0))).map(drop),
        ));
    }
    all
}

fn fill(folder: &Path) {
    for name in ["file", "other"] {
        fs::write(folder.join(name), "x").unwrap();
    }
    fs::create_dir(folder.join("sub")).unwrap();
}

#[test]
fn no_request_makes_a_setuid_file() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let all = confined(folder.path(), Access::Write, try_all);
    for (what, done) in &all {
        assert!(done.is_ok(), "{what}: {done:?}");
    }
    let mut seen = 0;
    for entry in fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(
            mode(&path) & 0o6000,
            0,
            "{}: {:o}",
            path.display(),
            mode(&path)
        );
        seen += 1;
    }
    assert_eq!(seen, 9);
    assert_eq!(mode(&folder.path().join("file")), 0o755);
}

#[test]
fn setuid_files_are_made_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let all = confined(folder.path(), Access::Suid, |sender| {
        let file = sender.lookup("file");
        let shown = sender.chmod(file, 0o4755, None).unwrap();
        assert_eq!(shown & 0o7777, 0o4755);
        // The guest's kernel would not obey it.
        assert_eq!(sender.set(file, LIST, &access_list()), Err(NONE));
        try_all(sender)
    });
    for (what, done) in &all {
        assert!(done.is_ok(), "{what}: {done:?}");
    }
    // Modes of new files, and modes that are set; a new folder never has these bits.
    for name in ["created", "node", "file", "other", "sub"] {
        assert_eq!(mode(&folder.path().join(name)) & 0o4000, 0o4000, "{name}");
    }
}

#[test]
fn the_answer_shows_what_the_file_has() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let shown = confined(folder.path(), Access::Write, |sender| {
        let file = sender.lookup("file");
        sender.chmod(file, 0o7711, None).unwrap()
    });
    // The sticky bit gives no rights.
    assert_eq!(shown & 0o7777, 0o1711);
    assert_eq!(mode(&folder.path().join("file")), 0o1711);
}

#[test]
fn only_attributes_that_mean_nothing_to_the_host_are_set() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let names = [
        "security.capability",
        "security.selinux",
        "security.ima",
        "security.SMACK64EXEC",
        "trusted.overlay.redirect",
        "trusted.x",
        "system.nfs4_acl",
        "Security.capability",
        "btrfs.compression",
        "user",
        "",
    ];
    let (set, gone, user, list) = confined(folder.path(), Access::Write, |sender| {
        let file = sender.lookup("file");
        let set = names.map(|name| sender.set(file, name, &capability()));
        let mut gone = |name: &str| sender.send(REMOVEXATTR, file, &named(&[], name)).map(drop);
        let gone = [
            gone("security.capability"),
            gone("security.selinux"),
            gone("trusted.x"),
        ];
        let user = sender.set(file, "user.paravane", b"x");
        (set, gone, user, sender.set(file, LIST, &access_list()))
    });
    for (name, done) in names.iter().zip(set) {
        // An invalid name of an attribute may be refused for that reason.
        let refused = done.unwrap_err();
        assert!(refused == NONE || name.is_empty(), "{name:?}: {refused}");
    }
    assert_eq!(gone, [Err(NONE); 3]);
    // As far as the host's file system has them.
    assert!(user.is_ok() || user == Err(NONE), "{user:?}");
    assert_eq!(list, Err(NONE));
    let path = folder.path().join("file");
    assert_eq!(
        rustix::fs::getxattr(&path, "security.capability", &mut [0; 64]),
        Err(rustix::io::Errno::NODATA)
    );
}

/// This holds also where root runs the monitor: root may write to such files and keep the bits.
#[test]
fn what_is_written_to_is_not_setuid_any_more() {
    for way in ["write", "truncate", "open", "fallocate"] {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let path = folder.path().join("file");
        fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
        assert_eq!(mode(&path), 0o6755);
        confined(folder.path(), Access::Write, |sender| {
            let file = sender.lookup("file");
            match way {
                "write" => {
                    let handle = sender.open(file, libc::O_WRONLY);
                    let mut body = handle.to_le_bytes().to_vec();
                    body.extend([0; 8]);
                    body.extend(bytes(&[4, 0, 0, 0, O_WRONLY, 0]));
                    body.extend(b"evil");
                    sender.ok(WRITE, file, &body);
                }
                "truncate" => drop(sender.setattr(file, SIZE, 0, 100, None).unwrap()),
                "fallocate" => {
                    let handle = sender.open(file, libc::O_WRONLY);
                    let mut body = handle.to_le_bytes().to_vec();
                    body.extend([0; 8]);
                    body.extend(4096u64.to_le_bytes());
                    body.extend([0; 8]);
                    sender.ok(FALLOCATE, file, &body);
                }
                _ => drop(sender.open(file, libc::O_WRONLY | libc::O_TRUNC)),
            }
        });
        assert_eq!(mode(&path), 0o755, "{way}");
    }
}

/// A file that its owner made setuid stays setuid under any name: the guest did not write to it.
#[test]
fn files_of_the_host_keep_their_rights() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    fs::set_permissions(folder.path().join("file"), Permissions::from_mode(0o4755)).unwrap();
    let sub = folder.path().join("sub");
    if rustix::process::geteuid().is_root() {
        // A group of which root is not a member.
        chown(&sub, None, Some(12345)).unwrap();
    }
    fs::set_permissions(&sub, Permissions::from_mode(0o2750)).unwrap();
    let (shown, group) = confined(folder.path(), Access::Write, |sender| {
        let file = sender.lookup("file");
        let moved = [&ROOT.to_le_bytes()[..], &[0; 8], b"file\0moved\0"].concat();
        sender.ok(RENAME2, ROOT, &moved);
        let linked = [&file.to_le_bytes()[..], b"linked\0"].concat();
        // An ordinary user's host may refuse to link by descriptor.
        let _ = sender.send(LINK, ROOT, &linked);
        let sub = sender.lookup("sub");
        // As `chmod g+w` does it.
        let shown = sender.chmod(sub, 0o2770, None).unwrap() & 0o7777;
        (shown, rustix::process::getegid())
    });
    assert_eq!(mode(&folder.path().join("moved")), 0o4755);
    assert_eq!((shown, mode(&sub)), (0o2770, 0o2770));
    // The thread has its old group again.
    assert_eq!(group, rustix::process::getegid());
    // And setgid can be removed.
    confined(folder.path(), Access::Write, |sender| {
        let sub = sender.lookup("sub");
        sender.chmod(sub, 0o770, None).unwrap();
    });
    assert_eq!(mode(&sub), 0o770);
}

/// What the host does at the same time, which a confined thread cannot do.
type Step = Box<dyn FnOnce() + Send>;

/// Runs it on a thread that is not confined.
fn on_host(host: &SyncSender<Step>, step: impl FnOnce() + Send + 'static) {
    let (done, wait) = sync_channel(0);
    let told = move || {
        step();
        done.send(()).unwrap();
    };
    host.send(Box::new(told)).unwrap();
    wait.recv().unwrap();
}

fn host_thread() -> SyncSender<Step> {
    let (host, steps) = sync_channel::<Step>(0);
    std::thread::spawn(move || steps.into_iter().for_each(|step| step()));
    host
}

/// A folder that was moved elsewhere has another folder above it.
#[test]
fn no_request_leads_above_the_folder() {
    let host = tempfile::tempdir().unwrap();
    let shared = host.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fill(&shared);
    let steps = host_thread();
    for access in [Access::Write, Access::ReadOnly] {
        let (root, moved) = confined(&shared, access, |sender| {
            let sub = sender.lookup("sub");
            let (inside, outside) = (shared.join("sub"), host.path().join("sub"));
            let (from, to) = (inside.clone(), outside.clone());
            on_host(&steps, move || fs::rename(from, to).unwrap());
            let above = |sender: &mut Sender, node| sender.send(LOOKUP, node, b"..\0").map(drop);
            let seen = (above(sender, ROOT), above(sender, sub));
            on_host(&steps, move || fs::rename(outside, inside).unwrap());
            seen
        });
        assert_eq!(
            (root, moved),
            (Err(libc::ENOENT), Err(libc::ENOENT)),
            "{access:?}"
        );
    }
}

/// A folder above it may be another guest's, or the same guest's through another volume.
#[test]
fn what_is_shared_stays_that_when_links_take_its_place() {
    let host = tempfile::tempdir().unwrap();
    let path = |name: &str| host.path().join(name);
    fs::create_dir_all(path("outer/shared")).unwrap();
    fs::create_dir_all(path("elsewhere/shared")).unwrap();
    fs::write(path("outer/shared/mine"), "x").unwrap();
    fs::write(path("elsewhere/shared/secret"), "x").unwrap();
    let steps = host_thread();
    let seen = confined(&path("outer/shared"), Access::Write, |sender| {
        let (outer, moved, elsewhere) = (path("outer"), path("moved"), path("elsewhere"));
        on_host(&steps, move || {
            fs::rename(&outer, moved).unwrap();
            std::os::unix::fs::symlink(elsewhere, outer).unwrap();
        });
        let mut all = Vec::new();
        for again in ["destroy", "reset"] {
            if again == "destroy" {
                sender.ok(DESTROY, 0, &[]);
            } else {
                sender.fs.reset();
            }
            sender.ok(INIT, 0, &bytes(&[7, 31, 1 << 17, 0]));
            for name in ["mine", "secret"] {
                let found = sender.send(LOOKUP, ROOT, &named(&[], name)).is_ok();
                all.push((again, name, found));
            }
        }
        all
    });
    for (again, name, found) in seen {
        assert_eq!(found, name == "mine", "{again}: {name}");
    }
}
