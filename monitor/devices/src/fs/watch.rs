// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the host's folders of which the guest keeps names and attributes, and reports changes
//! there.
//!
//! The guest may then keep them for long. The host reports a change after it has happened, so the
//! guest sees it some milliseconds later. It does not report what a program of the host writes
//! through a mapping of a file, or under another name of the same file in a folder that is not
//! watched: files with several names are not covered, and for mappings the guest asks again after
//! [`LONG`](super::folder).
//!
//! The guest gets no messages about its own changes ([`own`](super::own)) where the host can
//! distinguish them ([`events`](super::events)). Elsewhere they cost it a request for what it had
//! cached.

pub mod look;

use super::events::{Events, Key};
use super::listed::Listed;
use super::notify::{Change, Changes};
use super::opened;
use super::own::{NAME, Noted, Own};
use crate::Waker;
use fuse_backend_rs::passthrough::PassthroughFs;
use look::Look;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The folder itself.
const ROOT: u64 = 1;
/// The most folders that a guest can have watched: the host limits them for each user, and the
/// user's other programs need some.
const MOST: usize = 8192;
/// The most folders and the most files that are known at a time: more than a guest's kernel usually
/// keeps. A guest can forget one just before it gets the answer with it, and then it stays here.
/// Folders and files beyond that are not watched.
pub const MOST_KNOWN: usize = 1 << 18;
/// The time between two looks at what has changed: a program that changes a lot does not wake the
/// thread each time.
const PACE: Duration = Duration::from_millis(2);
/// The most events that one look takes.
const ROUND: usize = 1 << 16;
/// The most looks at changes of which the host does not say where they are. With each, all that the
/// guest keeps expires; after one more, nothing is watched.
pub const NOWHERE: u32 = 64;
/// The most names in doubt. One more, and everything is.
const DOUBTS: usize = 256;
/// Stands for a folder that the guest has forgotten, and that is watched still: the host refused.
const FORGOTTEN: u64 = 0;

/// A folder that the guest knows.
#[derive(Default)]
struct Known {
    /// The number of answers in which the guest got it, each of which it will forget.
    lookups: u64,
    watch: Option<Key>,
}

#[derive(Default)]
struct Folders {
    by_inode: HashMap<u64, Known>,
    by_watch: HashMap<Key, u64>,
    /// Counts the removals of watches.
    removed: u64,
}

/// The watched folders.
pub struct Watch {
    events: Arc<Events>,
    /// Readable when [`run`](Watch::run) is to return.
    end: OwnedFd,
    folders: Mutex<Folders>,
    /// Files in watched folders, of which the guest keeps the attributes.
    files: Mutex<HashSet<u64>>,
    /// The messages for the guest.
    pub changes: Changes,
    own: Own,
    /// Names that the guest must ask for again, and what is readable if there are any.
    doubts: Mutex<Vec<Change>>,
    doubted: OwnedFd,
    shared: Arc<Listed>,
    /// The guest gets no messages about its own changes.
    spares: AtomicBool,
    /// The guest takes such messages.
    active: AtomicBool,
    /// Counts the looks at changes in folders that the host did not name.
    nowhere: AtomicU32,
    /// The warning that not all folders are watched was printed.
    told: AtomicBool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Nothing is watched yet. `folder` is open, and is `shared`.
    ///
    /// # Errors
    /// The host reports nothing, or the user has too many such files.
    pub fn new(folder: BorrowedFd<'_>, shared: Arc<Listed>) -> io::Result<Self> {
        Ok(Watch {
            events: Arc::new(Events::new(folder)?),
            end: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            folders: Mutex::default(),
            files: Mutex::default(),
            changes: Changes::default(),
            own: Own::default(),
            doubts: Mutex::default(),
            doubted: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            shared,
            spares: AtomicBool::new(false),
            active: AtomicBool::new(false),
            nowhere: AtomicU32::new(0),
            told: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Folders> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guest takes messages from now on, and [`run`](Watch::run) will be called.
    pub fn begin(&self) {
        // Clears the end of an earlier run, which that run may not have read.
        let _ = rustix::io::read(&self.end, &mut [0; 8]);
        // All volumes of the machine are known by now.
        let spares = self.events.know_ours() && self.shared.is_alone();
        self.spares.store(spares, Ordering::SeqCst);
        self.active.store(true, Ordering::SeqCst);
    }

    /// To be called before the guest makes or removes a name, or opens one with what may change its
    /// file. It needs no message about that while the returned value lives, and a moment longer.
    pub fn own_name(&self, folder: u64, name: &CStr) -> Option<Noted<'_>> {
        self.spares()
            .then(|| self.own.name(folder, name.to_bytes()))?
    }

    /// To be called before the guest changes a file's contents, as [`Watch::own_name`].
    pub fn own_contents(&self, inode: u64) -> Option<Noted<'_>> {
        self.spares().then(|| self.own.contents(inode))?
    }

    /// To be called before the guest changes a file or folder of which it gets the attributes.
    pub fn own_file(&self, inode: u64) -> Option<Noted<'_>> {
        self.spares().then(|| self.own.file(inode))?
    }

    /// The guest's request for a name has failed after it may have made the name. The guest gets no
    /// message about its own change. So this makes it ask again.
    pub fn doubt(&self, folder: u64, name: &CStr) {
        if !self.spares() {
            return;
        }
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        if doubts.len() >= DOUBTS || name.count_bytes() > NAME {
            *doubts = vec![Change::All];
        } else {
            doubts.push(Change::Name(folder, name.to_bytes().to_vec()));
        }
        // Fails if the counter is at its end, and then it is readable.
        let _ = rustix::io::write(&self.doubted, &1u64.to_ne_bytes());
    }

    fn spares(&self) -> bool {
        self.is_active() && self.spares.load(Ordering::SeqCst)
    }

    /// Whether the guest takes messages: it is the project's kernel.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Nothing is watched any more.
    pub fn pause(&self) {
        self.active.store(false, Ordering::SeqCst);
        self.clear();
    }

    /// Whether changes of a file are reported, because it is in a watched folder. What happens
    /// under its other names is not, so it must have only one.
    pub fn set_file(&self, inode: u64, covered: bool) {
        let mut files = self.files();
        if !covered {
            files.remove(&inode);
        } else if files.len() < MOST_KNOWN {
            files.insert(inode);
        }
    }

    /// What [`set_file`](Watch::set_file) said last, unless a file has left the watched folders.
    pub fn covers_file(&self, inode: u64) -> bool {
        self.files().contains(&inode)
    }

    /// Whether changes in a folder are reported. Watches it if it is not watched yet.
    pub fn covers(&self, fs: &PassthroughFs<()>, inode: u64) -> bool {
        if !self.is_active() {
            return false;
        }
        let (known, full, removed) = {
            let folders = self.lock();
            let known = folders.by_inode.get(&inode);
            if known.is_some_and(|known| known.watch.is_some()) {
                return true;
            }
            // The folder itself is never forgotten.
            let known = known.is_some() || inode == ROOT;
            (known, folders.by_watch.len() >= MOST, folders.removed)
        };
        if !known || full {
            self.tell(full, None);
            return false;
        }
        // Without the lock: the host may take long.
        let (key, folder) = match self.add(fs, inode) {
            Ok(added) => added,
            Err(error) => {
                self.tell(error.raw_os_error() == Some(libc::ENOSPC), Some(&error));
                return false;
            }
        };
        let mut folders = self.lock();
        // A folder that is mounted at two places has one watch, which stands for the first.
        if let Some(other) = folders.by_watch.get(&key)
            && *other != FORGOTTEN
        {
            return *other == inode;
        }
        if folders.removed != removed {
            // It may have been forgotten since, and this watch removed.
            folders.by_watch.remove(&key);
            folders.removed += 1;
            let _ = self.events.remove(&key, |end| end(folder.as_raw_fd()));
            return false;
        }
        folders.by_watch.insert(key.clone(), inode);
        folders.by_inode.entry(inode).or_default().watch = Some(key);
        true
    }

    /// Watches a folder by the descriptor that the file system opens for it.
    fn add(&self, fs: &PassthroughFs<()>, inode: u64) -> io::Result<(Key, OwnedFd)> {
        let events = Arc::clone(&self.events);
        opened::with(fs, inode, move |folder| {
            let copy = rustix::io::fcntl_dupfd_cloexec(folder, 0)?;
            Ok((events.add(folder.as_raw_fd())?, copy))
        })
    }

    /// Whether a folder is watched already.
    pub fn is_watched(&self, inode: u64) -> bool {
        let folders = self.lock();
        let known = folders.by_inode.get(&inode);
        known.is_some_and(|known| known.watch.is_some())
    }

    /// Says once that a limit was reached.
    fn tell(&self, limit: bool, error: Option<&io::Error>) {
        if limit && !self.told.swap(true, Ordering::SeqCst) {
            let why = error.map_or_else(
                || format!("a volume may watch {MOST}"),
                |_| {
                    "see the host's fs.inotify.max_user_watches and fs.fanotify.max_user_marks"
                        .to_string()
                },
            );
            tracing::warn!(
                "not all folders of a volume are watched ({why}): in others the guest sees changes \
                 of the host after up to a second, and asks more often"
            );
        }
    }

    /// The guest got a folder in an answer.
    pub fn told_of(&self, inode: u64) {
        let mut folders = self.lock();
        if folders.by_inode.len() >= MOST_KNOWN && !folders.by_inode.contains_key(&inode) {
            return;
        }
        let known = folders.by_inode.entry(inode).or_default();
        known.lookups = known.lookups.saturating_add(1);
    }

    /// How many folders and files are known.
    #[cfg(test)]
    pub fn known(&self) -> [usize; 2] {
        [self.lock().by_inode.len(), self.files().len()]
    }

    /// The guest forgets a file or folder, which `fs` still has.
    pub fn forget(&self, fs: &PassthroughFs<()>, inode: u64, count: u64) {
        self.files().remove(&inode);
        let mut folders = self.lock();
        let Some(known) = folders.by_inode.get_mut(&inode) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups == 0 && inode != ROOT {
            let key = known.watch.take();
            folders.by_inode.remove(&inode);
            folders.removed += 1;
            // With the lock: the folder may be watched again right after this.
            if let Some(key) = key {
                self.remove(&mut folders, fs, inode, key);
            }
        }
    }

    fn remove(&self, folders: &mut Folders, fs: &PassthroughFs<()>, inode: u64, key: Key) {
        let events = Arc::clone(&self.events);
        let again = key.clone();
        let ended = self.events.remove(&key, |_| {
            opened::with(fs, inode, move |folder| {
                events.remove(&again, |end| end(folder.as_raw_fd()))
            })
        });
        folders.by_watch.remove(&key);
        if ended.is_err() {
            // It counts as one of the most.
            folders.by_watch.insert(key, FORGOTTEN);
        }
    }

    /// The guest has forgotten everything.
    pub fn clear(&self) {
        self.files().clear();
        let mut folders = self.lock();
        let all: Vec<_> = folders.by_watch.drain().collect();
        for (key, _) in all {
            let _ = self.events.remove(&key, |_| Ok(()));
        }
        let _ = self.events.clear();
        folders.by_inode.clear();
        folders.removed += 1;
        self.changes.clear();
    }

    /// Makes [`run`](Watch::run) return, soon.
    pub fn end(&self) {
        // Fails if the counter is at its end, and then it is readable.
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
    }

    /// Reports changes until [`end`](Watch::end). `outside` makes the guest's number of a file.
    pub fn run(&self, fs: &PassthroughFs<()>, outside: impl Fn(u64) -> u64, waker: &Waker) {
        while self.wait() {
            if let Err(error) = self.report(fs, &outside) {
                tracing::error!("cannot watch a shared folder any more: {error}");
                self.pause();
                self.changes.add(Change::All);
                waker.wake();
                return;
            }
            waker.wake();
            std::thread::sleep(PACE);
        }
    }

    /// Waits for changes. `false`: it is time to end.
    fn wait(&self) -> bool {
        let mut files = [
            PollFd::new(&self.end, PollFlags::IN),
            PollFd::new(&*self.events, PollFlags::IN),
            PollFd::new(&self.doubted, PollFlags::IN),
        ];
        while let Err(error) = poll(&mut files, None) {
            if error != rustix::io::Errno::INTR {
                tracing::error!("cannot wait for changes of a shared folder: {error}");
                return false;
            }
        }
        if files[0].revents().is_empty() {
            return true;
        }
        let _ = rustix::io::read(&self.end, &mut [0; 8]);
        false
    }

    /// Notes all changes up to now. The messages to the guest follow only when the host has no
    /// more: the guest must not ask again between two reports of the same change, of which the
    /// second is left out.
    ///
    /// # Errors
    /// The host does not report changes any more, or too often not where they are.
    pub fn report(&self, fs: &PassthroughFs<()>, outside: impl Fn(u64) -> u64) -> io::Result<()> {
        let mut buffer = Vec::new();
        let _ = rustix::io::read(&self.doubted, &mut [0; 8]);
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut look = Look::new(self, fs, std::mem::take(&mut *doubts));
        drop(doubts);
        while look.events < ROUND {
            let events = self.events.read(&mut buffer)?;
            if events.is_empty() {
                break;
            }
            for event in events {
                look.take(&event);
            }
        }
        self.own.tidy();
        self.tell_of(look, outside)
    }

    /// Has messages about what was seen sent to the guest.
    ///
    /// # Errors
    /// The host too often does not say where changes are.
    pub fn tell_of(&self, look: Look<'_>, outside: impl Fn(u64) -> u64) -> io::Result<()> {
        let nowhere = look.nowhere;
        for change in look.end() {
            self.changes.add(change.outside(&outside));
        }
        if nowhere && self.nowhere.fetch_add(1, Ordering::SeqCst) >= NOWHERE {
            return Err(io::Error::other("the host does not say where changes are"));
        }
        Ok(())
    }

    /// The host has ended a watch: the folder was removed.
    fn gone(&self, watch: &Key) {
        let mut folders = self.lock();
        if let Some(inode) = folders.by_watch.remove(watch)
            && let Some(known) = folders.by_inode.get_mut(&inode)
        {
            known.watch = None;
        }
    }
}
