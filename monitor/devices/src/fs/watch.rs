// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches on the host those folders of which the guest keeps names and attributes, and says what
//! changes there.
//!
//! The guest may then keep them for long. inotify reports a change after it has happened, so the
//! guest sees it some milliseconds later. It does not report what a program of the host writes
//! through a mapping of a file, or under another name of the same file in a folder that is not
//! watched: files with several names are not covered, and for mappings the guest asks again after
//! [`LONG`](super::folder).
//!
//! Changes by the guest itself are reported too, and cost it a request for what it had cached.

use super::notify::{Change, Changes};
use crate::Waker;
use fuse_backend_rs::abi::virtio_fs::RemovemappingOne;
use fuse_backend_rs::api::filesystem::{Context, FileSystem};
use fuse_backend_rs::passthrough::PassthroughFs;
use fuse_backend_rs::transport::FsCacheReqHandler;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The folder itself.
const ROOT: u64 = 1;
/// The most folders that a guest can have watched: the host limits them for each user, and the
/// user's other programs need some.
const MOST: usize = 8192;
/// The time between two looks at what has changed: a program that changes a lot does not wake the
/// thread each time.
const PACE: Duration = Duration::from_millis(2);
/// The most events that one look takes.
const ROUND: usize = 1 << 16;
/// The most changes that are remembered in order to report each only once.
const SEEN: usize = 4096;
/// Bytes of events that are read at once.
const EVENTS: usize = 64 << 10;

/// What is reported of a folder and the files in it.
const INTEREST: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// A folder that the guest knows.
#[derive(Default)]
struct Known {
    /// How often the guest has been told of it, and will forget it.
    lookups: u64,
    watch: Option<i32>,
}

#[derive(Default)]
struct Folders {
    by_inode: HashMap<u64, Known>,
    by_watch: HashMap<i32, u64>,
    /// Counts the removals of watches.
    removed: u64,
}

/// The watched folders.
pub struct Watch {
    inotify: Arc<OwnedFd>,
    /// Readable when [`run`](Watch::run) is to return.
    end: OwnedFd,
    folders: Mutex<Folders>,
    /// Files in watched folders, of which the guest keeps the attributes.
    files: Mutex<HashSet<u64>>,
    /// What the guest must be told.
    pub changes: Changes,
    /// The guest takes such messages.
    active: AtomicBool,
    /// The user has been told that not all folders are watched.
    told: AtomicBool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// The host has no inotify, or the user has too many instances.
    pub fn new() -> io::Result<Self> {
        Ok(Watch {
            inotify: Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?),
            end: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            folders: Mutex::default(),
            files: Mutex::default(),
            changes: Changes::default(),
            active: AtomicBool::new(false),
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
        // What an earlier run may not have seen.
        let _ = rustix::io::read(&self.end, &mut [0; 8]);
        self.active.store(true, Ordering::SeqCst);
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
        if covered {
            self.files().insert(inode);
        } else {
            self.files().remove(&inode);
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
        let watch = match add(&self.inotify, fs, inode) {
            Ok(watch) => watch,
            Err(error) => {
                self.tell(error.raw_os_error() == Some(libc::ENOSPC), Some(&error));
                return false;
            }
        };
        let mut folders = self.lock();
        // A folder that is mounted at two places has one watch, which stands for the first.
        if let Some(other) = folders.by_watch.get(&watch) {
            return *other == inode;
        }
        if folders.removed != removed {
            // It may have been forgotten meanwhile, and this watch removed.
            self.remove(&mut folders, Some(watch));
            return false;
        }
        folders.by_watch.insert(watch, inode);
        folders.by_inode.entry(inode).or_default().watch = Some(watch);
        true
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
                |_| "see the host's fs.inotify.max_user_watches".to_string(),
            );
            tracing::warn!(
                "not all folders of a volume are watched ({why}): in others the guest sees changes \
                 of the host after up to a second, and asks more often"
            );
        }
    }

    /// The guest was told of a folder.
    pub fn told_of(&self, inode: u64) {
        let mut folders = self.lock();
        let known = folders.by_inode.entry(inode).or_default();
        known.lookups = known.lookups.saturating_add(1);
    }

    /// The guest forgets a file or folder.
    pub fn forget(&self, inode: u64, count: u64) {
        self.files().remove(&inode);
        let mut folders = self.lock();
        let Some(known) = folders.by_inode.get_mut(&inode) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups == 0 && inode != ROOT {
            let watch = known.watch;
            folders.by_inode.remove(&inode);
            folders.removed += 1;
            self.remove(&mut folders, watch);
        }
    }

    fn remove(&self, folders: &mut Folders, watch: Option<i32>) {
        if let Some(watch) = watch {
            folders.by_watch.remove(&watch);
            folders.removed += 1;
            // Fails if the folder is gone.
            let _ = inotify::remove_watch(&*self.inotify, watch);
        }
    }

    /// The guest has forgotten everything.
    pub fn clear(&self) {
        self.files().clear();
        let mut folders = self.lock();
        let all: Vec<_> = folders.by_watch.keys().copied().collect();
        for watch in all {
            self.remove(&mut folders, Some(watch));
        }
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
            PollFd::new(&*self.inotify, PollFlags::IN),
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

    /// Notes all changes up to now. The guest is told of them only when the host has no more: it
    /// must not ask again between two reports of the same change, of which the second is left out.
    pub fn report(&self, fs: &PassthroughFs<()>, outside: impl Fn(u64) -> u64) -> io::Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); EVENTS];
        let mut reader = Reader::new(&*self.inotify, &mut buffer);
        // Programs write in pieces: the same change is often reported many times.
        let (mut seen, mut news) = (HashSet::new(), Vec::new());
        let (mut looks, mut many) = (0, false);
        // A file that was moved, until the event of its new place, which comes next.
        let mut moved = None;
        // What is in the buffer is not reported again.
        while looks < ROUND || !reader.is_buffer_empty() {
            looks += 1;
            let event = match reader.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::WOULDBLOCK) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if lost || moved.is_some_and(|cookie| cookie != event.cookie()) {
                // It may be in a folder that is not watched.
                self.files().clear();
            }
            let left = event.events().contains(ReadFlags::MOVED_FROM);
            moved = left.then_some(event.cookie());
            let inode = self.lock().by_watch.get(&event.wd()).copied();
            for change in changes(fs, event.events(), inode, event.file_name()) {
                if seen.len() >= SEEN {
                    many = true;
                } else if seen.insert(change.clone()) {
                    news.push(change);
                }
            }
            if event.events().contains(ReadFlags::IGNORED) {
                self.gone(event.wd());
            }
        }
        if moved.is_some() {
            self.files().clear();
        }
        if many {
            news = vec![Change::All];
        }
        for change in news {
            self.changes.add(change.outside(&outside));
        }
        Ok(())
    }

    /// The host has ended a watch: the folder is gone.
    fn gone(&self, watch: i32) {
        let mut folders = self.lock();
        if let Some(inode) = folders.by_watch.remove(&watch)
            && let Some(known) = folders.by_inode.get_mut(&inode)
        {
            known.watch = None;
        }
    }
}

/// What an event means, with the file system's own numbers.
fn changes(
    fs: &PassthroughFs<()>,
    events: ReadFlags,
    inode: Option<u64>,
    name: Option<&CStr>,
) -> Vec<Change> {
    if events.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
        return vec![Change::All];
    }
    let Some(inode) = inode else {
        return Vec::new();
    };
    let Some(name) = name else {
        let own = events.contains(ReadFlags::ATTRIB);
        return own
            .then_some(Change::Attributes(inode))
            .into_iter()
            .collect();
    };
    // The file may have another name by now, which is reported next.
    let file = || {
        let context = Context::default();
        let entry = fs.lookup(&context, inode, name).ok()?;
        fs.forget(&context, entry.inode, 1);
        Some(entry.inode)
    };
    let names = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
    let mut all = Vec::new();
    if events.intersects(names) {
        all.push(Change::Name(inode, name.to_bytes().to_vec()));
        if events.contains(ReadFlags::MOVED_TO) {
            // What was reported under its old name was not found there any more.
            all.extend(file().map(Change::Attributes));
        }
    } else if events.contains(ReadFlags::MODIFY) {
        all.extend(file().map(Change::Contents));
    } else {
        all.extend(file().map(Change::Attributes));
    }
    all
}

impl Change {
    /// The same with the guest's numbers.
    fn outside(&self, number: impl Fn(u64) -> u64) -> Change {
        match self {
            Change::Name(folder, name) => Change::Name(number(*folder), name.clone()),
            Change::Attributes(inode) => Change::Attributes(number(*inode)),
            Change::Contents(inode) => Change::Contents(number(*inode)),
            Change::All => Change::All,
        }
    }
}

/// Watches a folder by the descriptor that the file system opens for it.
fn add(inotify: &Arc<OwnedFd>, fs: &PassthroughFs<()>, inode: u64) -> io::Result<i32> {
    let watch = Arc::new(AtomicI32::new(-1));
    let (to, inotify) = (Arc::clone(&watch), Arc::clone(inotify));
    let mut opened = Opened(move |fd: RawFd| {
        let path = format!("/proc/self/fd/{fd}/.");
        let watch = inotify::add_watch(&*inotify, path, INTEREST)?;
        to.store(watch, Ordering::SeqCst);
        Ok(())
    });
    opened.with(fs, inode)?;
    Ok(watch.load(Ordering::SeqCst))
}

/// What to do with a file that the file system opens for reading. The crate opens files only for
/// requests, and passes the descriptor on only for mappings into the guest, which are not offered.
pub struct Opened<F>(pub F);

impl<F: FnMut(RawFd) -> io::Result<()>> Opened<F> {
    /// Has the file opened.
    pub fn with(&mut self, fs: &PassthroughFs<()>, inode: u64) -> io::Result<()>
    where
        F: Send + Sync + 'static,
    {
        fs.setupmapping(&Context::default(), inode, 0, 0, 0, 0, 0, self)
    }
}

impl<F: FnMut(RawFd) -> io::Result<()> + Send + Sync + 'static> FsCacheReqHandler for Opened<F> {
    fn map(&mut self, _: u64, _: u64, _: u64, _: u64, fd: RawFd) -> io::Result<()> {
        (self.0)(fd)
    }

    fn unmap(&mut self, _: Vec<RemovemappingOne>) -> io::Result<()> {
        Ok(())
    }
}
