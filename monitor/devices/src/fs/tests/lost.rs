// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that the host, or this process, cannot identify.

use super::super::Sharing;
use super::super::events::{Event, Key};
use super::super::listed::Listed;
use super::super::notify::Change;
use super::super::root::{Root, Serving};
use super::super::watch::look::Look;
use super::super::watch::{MOST_KNOWN, NOWHERE, Watch};
use super::*;
use rustix::fs::inotify::ReadFlags;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A folder that is watched, of a guest that is not there.
struct Watched {
    folder: tempfile::TempDir,
    serving: Serving,
    watch: Watch,
}

impl Watched {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path(), Sharing::from(Access::Write)).unwrap();
        let serving = root.serve().unwrap();
        let opened = fs::File::open(folder.path()).unwrap();
        let shared = Arc::new(Listed::new(folder.path()));
        let watch = Watch::new(opened.as_fd(), shared).unwrap();
        watch.begin();
        assert!(watch.covers(&serving.fs, ROOT));
        Watched {
            folder,
            serving,
            watch,
        }
    }

    fn report(&self) {
        let outside = Serving::outside(self.serving.index);
        self.watch.report(&self.serving.fs, &outside).unwrap();
    }

    /// The messages for the guest.
    fn changes(&self) -> Vec<Change> {
        std::iter::from_fn(|| self.watch.changes.next()).collect()
    }
}

/// The host changes more than it reports.
#[test]
fn what_is_lost_is_said_to_be_lost() {
    let watched = Watched::new();
    let folder = watched.folder.path();
    let names = ["a", "b"].map(|name| folder.join(name));
    for name in &names {
        fs::write(name, "x").unwrap();
    }
    let watch = &watched.watch;
    watch.set_file(7, true);
    let limits =
        ["fanotify", "inotify"].map(|kind| format!("/proc/sys/fs/{kind}/max_queued_events"));
    let limits = limits
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    let most: usize = limits
        .map(|most| most.trim().parse().unwrap())
        .max()
        .unwrap();
    // Several changes of one name are reported once.
    for number in 0..most + 2 {
        fs::hard_link(&names[0], folder.join(number.to_string())).unwrap();
    }
    watched.report();
    assert_eq!(watched.changes(), [Change::All]);
    assert!(!watch.covers_file(7), "it may have been moved");
    fs::write(&names[0], "y").unwrap();
    watched.report();
    assert!(matches!(watched.changes()[..], [Change::Contents(_)]));
}

/// The guest may have many files open, so that the monitor has no descriptor left to look up what
/// has changed.
#[test]
fn a_change_of_a_file_that_cannot_be_looked_up_is_told() {
    let watched = Watched::new();
    let file = watched.folder.path().join("file");
    for error in [libc::EMFILE, libc::ENFILE, libc::EACCES] {
        fs::write(&file, "x").unwrap();
        watched.report();
        assert_ne!(watched.changes(), []);
        fs::write(&file, "yy").unwrap();
        // On a thread of which each such call fails.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let rules = BTreeMap::from([(libc::SYS_openat, vec![])]);
                let failing = SeccompAction::Errno(error.unsigned_abs());
                let pass = SeccompAction::Allow;
                let filter = SeccompFilter::new(rules, pass, failing, TargetArch::x86_64);
                let program: BpfProgram = filter.unwrap().try_into().unwrap();
                seccompiler::apply_filter(&program).unwrap();
                watched.report();
            });
        });
        assert_eq!(watched.changes(), [Change::All], "{error}");
    }
    // A removed file is reported by its name.
    fs::write(&file, "x").unwrap();
    fs::remove_file(&file).unwrap();
    watched.report();
    assert_eq!(watched.changes(), [Change::Name(ROOT, b"file".to_vec())]);
}

/// A file system that gives no handle for a folder: anything may have changed. If that continues,
/// the guest could keep nothing, so the device stops watching.
#[test]
fn a_change_of_unknown_place_is_told() {
    let watched = Watched::new();
    let outside = Serving::outside(watched.serving.index);
    let fs = &watched.serving.fs;
    let told = |folder: Option<Key>, what, ours| {
        let mut look = Look::new(&watched.watch, fs, Vec::new());
        look.take(&Event {
            what,
            folder,
            name: Some(b"file".to_vec()),
            cookie: 0,
            ours,
        });
        watched.watch.tell_of(look, &outside)
    };
    watched.watch.set_file(7, true);
    told(None, ReadFlags::MODIFY, false).unwrap();
    assert_eq!(watched.changes(), [Change::All]);
    assert!(!watched.watch.covers_file(7), "it may have been moved");
    // Lost events do not count for this, nor do events of a folder that the guest has forgotten.
    for _ in 0..2 * NOWHERE {
        told(None, ReadFlags::QUEUE_OVERFLOW, false).unwrap();
        told(Some(Key::Watch(77)), ReadFlags::MODIFY, false).unwrap();
    }
    assert_eq!(watched.changes(), [Change::All]);
    // Also a change by this process, which may be for another machine.
    for _ in 1..NOWHERE {
        told(None, ReadFlags::MODIFY, true).unwrap();
        assert_eq!(watched.changes(), [Change::All]);
    }
    assert!(told(None, ReadFlags::MODIFY, false).is_err());
    assert_eq!(watched.changes(), [Change::All]);
}

/// The guest forgets a file while the answer with this file is on its way: it sends both requests
/// at the same time.
#[test]
fn what_was_forgotten_too_soon_takes_bounded_memory() {
    let watched = Watched::new();
    let [before, none] = watched.watch.known();
    assert_eq!(none, 0);
    let node = |number: usize| 1 << 40 | number as u64;
    for number in 0..MOST_KNOWN + 10 {
        watched.watch.told_of(node(number));
        watched.watch.set_file(node(number), true);
    }
    assert_eq!(watched.watch.known(), [MOST_KNOWN; 2]);
    // One that is there counts on, and one that goes makes room.
    watched.watch.told_of(node(0));
    let (fs, last) = (&watched.serving.fs, node(MOST_KNOWN));
    assert!(!watched.watch.covers_file(last));
    watched.watch.forget(fs, node(1), 1);
    watched.watch.told_of(last);
    watched.watch.set_file(last, true);
    assert!(watched.watch.covers_file(last));
    assert_eq!(watched.watch.known(), [MOST_KNOWN; 2]);
    watched.watch.clear();
    assert_eq!(watched.watch.known(), [0; 2]);
    assert!(before <= 1);
}
