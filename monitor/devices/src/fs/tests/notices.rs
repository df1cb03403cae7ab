// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the guest is told of changes on the host.

use super::super::notify::Change;
use super::super::root::{Root, Serving};
use super::super::watch::Watch;
use super::super::{NOTIFICATION, NOTIFY, Sharing};
use super::*;
use crate::Broken;
use crate::reactor::{Reactor, Wake};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender as Messages, channel};
use std::time::{Duration, Instant};

/// In which a message that comes has come.
const LONG: Duration = Duration::from_secs(15);
/// The queue for requests.
const REQUESTS: usize = 2;
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

    /// Sends a request. Returns the beginning of the answer's body.
    fn send(&mut self, operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut answer = self.answer(operation, node, body);
        answer.resize(256, 0);
        answer
    }

    /// Sends a request. Returns the answer's body.
    pub(super) fn answer(&mut self, operation: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(40 + body.len()).unwrap();
        let mut request = bytes(&[length, operation, 7, 0]);
        request.extend(node.to_le_bytes());
        request.extend([0; 16]);
        request.extend(body);
        let answer = FREE + (1 << 20);
        self.guest.put(FREE, &request);
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
        let wanted = change.message();
        while self.message().unwrap() != wanted {}
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
    told.wait_for(&Change::Attributes(node));
    fs::write(path("other"), "x").unwrap();
    told.wait_for(&Change::Name(ROOT, b"other".to_vec()));
    // What is written just before may not be found under the old name.
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

/// A host that changes more than it reports.
#[test]
fn what_is_lost_is_said_to_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b"].map(|name| folder.path().join(name));
    for name in &names {
        fs::write(name, "x").unwrap();
    }
    let root = Root::new(folder.path(), Sharing::from(Access::Write)).unwrap();
    let serving = root.serve().unwrap();
    let watch = Watch::new().unwrap();
    watch.begin();
    assert!(watch.covers(&serving.fs, ROOT));
    watch.set_file(7, true);
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    // Two in turn: what happens twice is reported once.
    for (number, name) in names.iter().cycle().take(most + 2).enumerate() {
        let mode = 0o600 | u32::from(number % 4 < 2);
        fs::set_permissions(name, Permissions::from_mode(mode)).unwrap();
    }
    let outside = Serving::outside(serving.index);
    watch.report(&serving.fs, &outside).unwrap();
    let (first, second) = (watch.changes.next(), watch.changes.next());
    assert_eq!((first, second), (Some(Change::All), None));
    assert!(!watch.covers_file(7), "it may have been moved");
    fs::write(&names[0], "y").unwrap();
    watch.report(&serving.fs, &outside).unwrap();
    assert!(matches!(watch.changes.next(), Some(Change::Contents(_))));
}
