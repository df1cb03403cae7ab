// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages to the guest about changes on the host.

use super::super::notify::Change;
use super::super::{NOTIFICATION, NOTIFY};
use super::*;
use crate::Broken;
use crate::reactor::{Reactor, Wake};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Messages, channel};
use std::time::{Duration, Instant};

/// In which a message that comes has come.
const LONG: Duration = Duration::from_secs(15);
/// The queue for requests.
const REQUESTS: usize = 2;
// Operations of FUSE.
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
/// Where the guest's buffers for messages begin.
const BUFFERS: u64 = FREE + (2 << 20);

struct Bell(Messages<()>);

impl Wake for Bell {
    fn wake(&self) {
        let _ = self.0.send(());
    }
}

/// A guest that takes messages.
pub(super) struct Told {
    guest: Guest,
    fs: Fs,
    driver: Driver,
    rung: Receiver<()>,
}

impl Told {
    pub(super) fn new(folder: &Path) -> Self {
        let mut fs = Fs::new(folder, "test", Access::Write).unwrap();
        let (ring, rung) = channel();
        let waker = Reactor::new().unwrap().waker(0, Arc::new(Bell(ring)));
        fs.start(&waker).unwrap();
        assert_eq!(
            (fs.features(), fs.queue_sizes().len()),
            (NOTIFICATION, REQUESTS + 1)
        );
        let guest = Guest::new(REQUESTS + 1);
        let mut driver = guest.driver(NOTIFICATION);
        fs.activate(&mut driver).unwrap();
        let mut told = Told {
            guest,
            fs,
            driver,
            rung,
        };
        told.send(INIT, 0, &bytes(&[7, 31, 1 << 17, 0]));
        told
    }

    /// Whether it is not told of its own changes.
    fn spares(&self) -> bool {
        let watch = self.fs.root.watch.as_ref().unwrap();
        watch.own_file(ROOT).is_some()
    }

    /// Sends a request. Returns the beginning of the answer's body.
    fn send(&mut self, operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut answer = self.answer(operation, node, body);
        answer.resize(256, 0);
        answer
    }

    /// Sends a request. Returns the answer's body.
    pub(super) fn answer(&mut self, operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let (length, answer) = request::put(&self.guest, FREE, operation, node, body);
        self.guest
            .offer(REQUESTS, &[(FREE, length, false), (answer, 8192, true)]);
        self.fs.notified(&mut self.driver, REQUESTS).unwrap();
        let begun = Instant::now();
        let written = loop {
            if let Some((_, written)) = self.guest.used(REQUESTS).first() {
                break *written;
            }
            assert!(begun.elapsed() < LONG, "no answer to {operation}");
            let _ = self.rung.recv_timeout(Duration::from_millis(10));
            self.fs.woken(&mut self.driver).unwrap();
        };
        assert_eq!(self.guest.read::<i32>(answer + 4), 0, "{operation}");
        assert_eq!(self.guest.read::<u32>(answer), written, "{operation}");
        self.guest.get(answer + 16, written as usize - 16)
    }

    fn offer(&mut self, size: u32) -> Result<(), Broken> {
        self.guest.offer(NOTIFY, &[(BUFFERS, size, true)]);
        self.fs.notified(&mut self.driver, NOTIFY)
    }

    /// The next message.
    fn message(&mut self) -> Result<Vec<u8>, Broken> {
        self.offer(512)?;
        let begun = Instant::now();
        loop {
            if let Some(used) = self.guest.used(NOTIFY).first() {
                return Ok(self.guest.get(BUFFERS, used.1 as usize));
            }
            assert!(begun.elapsed() < LONG, "no message");
            let _ = self.rung.recv_timeout(Duration::from_millis(10));
            self.fs.woken(&mut self.driver)?;
        }
    }

    /// Reads messages up to this one.
    fn wait_for(&mut self, change: &Change) {
        self.wait_for_one(std::slice::from_ref(change));
    }

    /// Reads messages up to one of these.
    fn wait_for_one(&mut self, changes: &[Change]) {
        let wanted: Vec<_> = changes.iter().map(Change::message).collect();
        while !wanted.contains(&self.message().unwrap()) {}
    }
}

#[test]
fn what_the_host_changes_the_guest_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), "old").unwrap();
    let mut told = Told::new(folder.path());
    let node = long(&told.send(LOOKUP, ROOT, b"file\0"), 0);
    fs::write(path("file"), "new").unwrap();
    told.wait_for(&Change::Contents(node));
    fs::set_permissions(path("file"), Permissions::from_mode(0o600)).unwrap();
    // The end of what was written may be in the same message.
    told.wait_for_one(&[Change::Attributes(node), Change::Contents(node)]);
    fs::write(path("other"), "x").unwrap();
    told.wait_for(&Change::Name(ROOT, b"other".to_vec()));
    // A write just before the rename may not be found under the old name.
    fs::rename(path("file"), path("moved")).unwrap();
    told.wait_for(&Change::Name(ROOT, b"moved".to_vec()));
    told.wait_for(&Change::Attributes(node));
    // A guest that starts again has no folder watched before it asks for one.
    told.fs.reset();
    fs::write(path("moved"), "newer").unwrap();
    told.driver = told.guest.driver(NOTIFICATION);
    assert!(
        told.fs
            .root
            .watch
            .as_ref()
            .unwrap()
            .changes
            .next()
            .is_none()
    );
}

/// A request that fails may have made the name, which is not reported as the guest's own.
#[test]
fn a_name_in_doubt_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Told::new(folder.path());
    told.send(GETATTR, ROOT, &[0; 16]);
    if !told.spares() {
        crate::skip::skip("the host has no fanotify for this folder");
        return;
    }
    let watch = Arc::clone(told.fs.root.watch.as_ref().unwrap());
    watch.doubt(ROOT, c"x");
    told.wait_for(&Change::Name(ROOT, b"x".to_vec()));
    let long = CString::new(vec![b'x'; 256]).unwrap();
    watch.doubt(ROOT, &long);
    told.wait_for(&Change::All);
}

/// A hostile guest's buffer: the device asks for a reset and says why.
#[test]
fn a_buffer_that_is_too_small_breaks_the_device() {
    for (size, written) in [(16, true), (512, false)] {
        let folder = tempfile::tempdir().unwrap();
        let mut told = Told::new(folder.path());
        told.send(GETATTR, ROOT, &[0; 16]);
        told.fs
            .root
            .watch
            .as_ref()
            .unwrap()
            .changes
            .add(Change::Name(ROOT, b"x".to_vec()));
        told.guest.offer(NOTIFY, &[(BUFFERS, size, written)]);
        let broken = told.fs.notified(&mut told.driver, NOTIFY).unwrap_err();
        let text = broken.to_string();
        assert_eq!(text, "a buffer for notifications that is too small");
    }
}

/// Writes to a file as the guest does.
fn write(told: &mut Told, node: u64, handle: u64, text: &[u8]) {
    let mut body = handle.to_le_bytes().to_vec();
    body.extend([0; 8]);
    body.extend(bytes(&[
        text.len().try_into().unwrap(),
        0,
        0,
        0,
        O_WRONLY,
        0,
    ]));
    body.extend(text);
    told.send(WRITE, node, &body);
}

/// What another program does.
fn elsewhere(folder: &Path, command: &str) {
    let mut shell = std::process::Command::new("sh");
    let done = shell.args(["-c", command]).current_dir(folder).status();
    assert!(done.unwrap().success());
}

/// The handle in the answer to CREATE: after `struct fuse_entry_out`.
const CREATED: usize = 128;

#[test]
fn the_guest_is_not_told_of_what_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Told::new(folder.path());
    if !told.spares() {
        crate::skip::skip("the host has no fanotify for this folder");
        return;
    }
    let create = named(&[O_WRONLY | O_CREAT, 0o644, 0, 0], "file");
    let made = told.send(CREATE, ROOT, &create);
    let (node, handle) = (long(&made, 0), long(&made, CREATED));
    write(&mut told, node, handle, b"guest");
    told.send(SETATTR, node, &attributes(MODE, 0o600, 0, None));
    told.send(SETATTR, node, &attributes(SIZE, 0, 2, None));
    told.send(MKDIR, ROOT, &named(&[0o755, 0], "d"));
    told.send(UNLINK, ROOT, b"file\0");
    told.send(RMDIR, ROOT, b"d\0");
    // The first message is of what comes after all that.
    elsewhere(folder.path(), "touch other");
    let other = Change::Name(ROOT, b"other".to_vec());
    assert_eq!(told.message().unwrap(), other.message());
}

/// The other program's change comes at the worst moment: during the guest's own change.
#[test]
fn what_others_do_to_the_same_file_is_not_taken_for_the_guests() {
    let folder = tempfile::tempdir().unwrap();
    let mut told = Told::new(folder.path());
    let create = named(&[O_WRONLY | O_CREAT, 0o644, 0, 0], "file");
    let made = told.send(CREATE, ROOT, &create);
    let (node, handle) = (long(&made, 0), long(&made, CREATED));
    let watch = Arc::clone(told.fs.root.watch.as_ref().unwrap());
    let _name = watch.own_name(ROOT, c"file");
    let _file = watch.own_file(node & (u64::MAX >> 8));
    for _ in 0..10 {
        write(&mut told, node, handle, b"guest");
        elsewhere(folder.path(), "echo host >>file");
        write(&mut told, node, handle, b"guest");
        told.wait_for(&Change::Contents(node));
    }
    elsewhere(folder.path(), "chmod 600 file");
    told.wait_for(&Change::Attributes(node));
    elsewhere(folder.path(), "rm file");
    told.wait_for(&Change::Name(ROOT, b"file".to_vec()));
}

/// A change by a program before the guest moved the file is reported under the old name.
#[test]
fn a_file_that_the_guest_moves_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("old"), "x").unwrap();
    let mut told = Told::new(folder.path());
    let node = long(&told.send(LOOKUP, ROOT, b"old\0"), 0);
    let rename = [&ROOT.to_le_bytes()[..], &[0; 8], b"old\0new\0"].concat();
    told.send(RENAME2, ROOT, &rename);
    told.wait_for(&Change::Attributes(node));
}

/// This process writes for other purposes too: a log, the file of a disk, another volume.
#[test]
fn what_the_monitor_writes_otherwise_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("log"), "x").unwrap();
    fs::create_dir(path("sub")).unwrap();
    let mut told = Told::new(folder.path());
    let node = long(&told.send(LOOKUP, ROOT, b"log\0"), 0);
    fs::write(path("log"), "y").unwrap();
    told.wait_for(&Change::Contents(node));
    let mut told = Told::new(folder.path());
    let inner = Fs::new(&path("sub"), "inner", Access::Write).unwrap();
    let watch = told.fs.root.watch.as_ref().unwrap();
    watch.begin();
    assert!(!told.spares());
    told.send(MKDIR, ROOT, &named(&[0o755, 0], "d"));
    told.wait_for(&Change::Name(ROOT, b"d".to_vec()));
    drop(inner);
}
