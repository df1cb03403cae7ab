// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file system of a shared folder: the crate's file system, and how long the guest may keep
//! names, attributes and contents.
//!
//! | cache | names, attributes | contents |
//! |---|---|---|
//! | none | are asked for each time | are never kept |
//! | auto | [`LONG`] in folders that are watched, else [`SHORT`] | as the attributes say |
//! | always | for good | for good, also what the guest has not written yet |
//!
//! With a cache, opening a file for reading needs no request if this user may surely read it: the
//! attributes for the guest's kernel say so, and the kernel reads with the handle 0. Lists are read
//! without opening the folder. Files that are written to are opened: their modes may change while
//! they are open.

mod ops;
mod whole;

use super::cached::{Parts, ReadAt};
use super::holes::Mappable;
use super::listing::{self, End};
use super::open_files::OpenFiles;
use super::opened;
use super::own::Noted;
use super::place;
use super::room::Room;
use super::root::Root;
use super::watch::Watch;
use super::{Access, Cache};
use fuse_backend_rs::abi::fuse_abi::{CreateIn, stat64};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, OpenOptions, ZeroCopyWriter,
};
use fuse_backend_rs::file_buf::FileVolatileSlice;
use fuse_backend_rs::passthrough::PassthroughFs;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the guest keeps what is reported when it changes.
pub const LONG: Duration = Duration::from_secs(30);
/// How long it keeps what may change unnoticed.
pub const SHORT: Duration = Duration::from_secs(1);
/// How long it keeps what only the guest changes.
const FOR_GOOD: Duration = Duration::from_secs(86400);
/// `FUSE_ATTR_NO_OPEN` of the project's kernel: the file can be read with the handle 0.
const NO_OPEN: u32 = 1 << 31;
/// Flags of open() with which a file can be read through another descriptor. The first is the
/// kernel's own, for a program that is executed; the last is `O_LARGEFILE`, which the C library
/// calls 0.
const PLAIN: u32 =
    0x20 | libc::O_NOFOLLOW.unsigned_abs() | libc::O_CLOEXEC.unsigned_abs() | 0o100_000;
/// Bytes of the entry `.` or `..` in the host's list: `struct linux_dirent64`.
const DOT: u32 = 24;
/// The most looks at what comes after a part: `.`, `..`, the end, and a position that has moved.
const LOOKS: usize = 4;

/// A part of a list that the guest has got.
#[derive(Default)]
struct Part {
    /// The position after it, unless it is empty.
    position: Option<u64>,
    /// There was no room for the next entry.
    more: bool,
    /// The name of one of them in the other case.
    other: Option<CString>,
    /// It begins with `..`, perhaps after `.`.
    dots: bool,
}

impl Part {
    /// Notes an entry of which the guest has got some bytes, and after which the list continues at
    /// this position.
    fn add(&mut self, bytes: usize, position: u64) {
        if bytes > 0 {
            self.position = Some(position);
        } else {
            self.more = true;
        }
    }

    /// Notes an entry with a name, which shows whether case counts.
    fn add_named(&mut self, bytes: usize, position: u64, name: &[u8]) {
        self.add(bytes, position);
        if self.other.is_none() {
            self.other = whole::other_case(name);
        }
    }
}

/// The file system of a folder.
pub struct Folder {
    inner: Arc<PassthroughFs<()>>,
    cache: Cache,
    /// It is on the host's own disk or in its memory. Elsewhere, errors that the host reports when
    /// a file is closed are of interest, and equal times do not mean equal contents.
    local: bool,
    watch: Option<Arc<Watch>>,
    open: Arc<OpenFiles>,
    mappable: Mappable,
    room: Room,
    /// The guest may keep what its programs write.
    delays: bool,
    /// The host's number of the folder's file system.
    device: u64,
    /// Set when the guest meets another one.
    mixed: Arc<AtomicBool>,
    user: u32,
}

impl Folder {
    /// Wraps the crate's file system. Without `watch` changes of the host are not noticed.
    ///
    /// # Errors
    /// The host says nothing of the folder.
    pub fn new(
        inner: Arc<PassthroughFs<()>>,
        cache: Cache,
        watch: Option<Arc<Watch>>,
        root: &Root,
    ) -> io::Result<Self> {
        Ok(Folder {
            inner,
            cache,
            local: root.local,
            watch,
            open: Arc::new(OpenFiles::new()),
            mappable: Mappable::default(),
            room: root.room(),
            delays: cache == Cache::Always && root.sharing.access != Access::ReadOnly,
            device: root.device()?,
            mixed: Arc::clone(&root.mixed),
            user: rustix::process::geteuid().as_raw(),
        })
    }

    /// Whether changes in a folder are reported.
    fn watched(&self, inode: u64) -> bool {
        let watch = self.watch.as_ref().filter(|_| self.cache == Cache::Auto);
        watch.is_some_and(|watch| watch.covers(&self.inner, inode))
    }

    /// To be held while the guest makes or removes a name, or opens one.
    fn own_name(&self, parent: u64, name: &CStr) -> Option<Noted<'_>> {
        self.watch.as_ref()?.own_name(parent, name)
    }

    /// Handles a failed request to make a name: the name may exist all the same.
    fn doubt(&self, parent: u64, name: &CStr, error: &io::Error) {
        use io::ErrorKind::{AlreadyExists, WouldBlock};
        // The last starts again.
        let nothing = matches!(error.kind(), AlreadyExists | WouldBlock);
        if let Some(watch) = self.watch.as_ref().filter(|_| !nothing) {
            watch.doubt(parent, name);
        }
    }

    /// To be held while the guest changes a file's contents.
    fn own_contents(&self, inode: u64) -> Option<Noted<'_>> {
        self.watch.as_ref()?.own_contents(inode)
    }

    /// To be held while the guest changes a file, of which it gets the attributes.
    fn own_file(&self, inode: u64) -> Option<Noted<'_>> {
        self.watch.as_ref()?.own_file(inode)
    }

    /// The flags of open() for a file of the host. A guest that writes back later gives the offset
    /// of each write, and the host's file can end before the guest's. So the host must not append.
    fn placed(&self, flags: u32) -> u32 {
        if self.delays {
            flags & !libc::O_APPEND.unsigned_abs()
        } else {
            flags
        }
    }

    /// Whether the guest understands that a part of a list is the last.
    fn told_ends(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_active())
    }

    fn kept(&self, watched: bool) -> Duration {
        match self.cache {
            Cache::None => Duration::ZERO,
            Cache::Auto if watched => LONG,
            Cache::Auto => SHORT,
            Cache::Always => FOR_GOOD,
        }
    }

    /// How long the guest keeps a file's attributes.
    fn attributes_kept(&self, inode: u64, attr: &stat64) -> Duration {
        let watched = match &self.watch {
            _ if self.cache != Cache::Auto => false,
            Some(watch) if is_folder(attr) => watch.is_watched(inode),
            Some(watch) => attr.st_nlink == 1 && watch.covers_file(inode),
            None => false,
        };
        self.kept(watched)
    }

    /// Completes the answer about a file in a folder, which is watched or not.
    fn complete(&self, watched: bool, mut entry: Entry) -> io::Result<Entry> {
        // Others may change what is mounted there, and this host does not report it.
        let foreign = entry.attr.st_dev != self.device;
        if foreign {
            self.mixed.store(true, Ordering::SeqCst);
        }
        let watched = watched && !foreign;
        entry.entry_timeout = self.kept(watched);
        if is_folder(&entry.attr) {
            if let Some(watch) = self.watch.as_ref().filter(|_| !foreign) {
                watch.told_of(entry.inode);
                let before = watch.is_watched(entry.inode);
                if self.watched(entry.inode) && !before {
                    // It may have changed before it was watched.
                    entry.attr = self
                        .inner
                        .getattr(&Context::default(), entry.inode, None)?
                        .0;
                }
            }
        } else if let Some(watch) = &self.watch {
            watch.set_file(entry.inode, watched && entry.attr.st_nlink == 1);
        }
        entry.attr_timeout = self.attributes_kept(entry.inode, &entry.attr);
        if self.keeps() && self.may_read(&entry.attr) {
            entry.attr_flags |= NO_OPEN;
        }
        Ok(entry)
    }

    /// Whether the host surely lets this user read a file.
    fn may_read(&self, attr: &stat64) -> bool {
        attr.st_mode & libc::S_IFMT == libc::S_IFREG
            && (attr.st_mode & 0o444 == 0o444
                || attr.st_uid == self.user && attr.st_mode & 0o400 != 0)
    }

    /// The guest forgets a file or folder: `count` of the answers in which it got it.
    fn forgotten(&self, inode: u64, count: u64) {
        self.open.close(inode);
        if let Some(watch) = &self.watch {
            watch.forget(&self.inner, inode, count);
        }
    }

    /// A file that is read without a handle.
    fn file(&self, inode: u64) -> io::Result<Arc<File>> {
        match self.open.get(inode) {
            Some(file) => Ok(file),
            None => self.open_again(inode),
        }
    }

    fn open_again(&self, inode: u64) -> io::Result<Arc<File>> {
        self.while_unleased(inode, || self.open_passed(inode))
    }

    /// Does something that opens a file for reading, without waiting for a program that has leased
    /// it on threads that must not wait.
    fn while_unleased<T>(&self, inode: u64, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // The crate opens a file that it passes on so that the host may wait for a lease. While it
        // is open already, no other program can lease it: then that takes no time.
        let ctx = Context::default();
        let held = if place::is_patient() {
            None
        } else {
            place::opening(0, |flags| self.inner.open(&ctx, inode, flags, 0))?.0
        };
        let done = work();
        if let Some(handle) = held {
            self.inner
                .release(&ctx, inode, 0, handle, false, false, None)?;
        }
        done
    }

    fn open_passed(&self, inode: u64) -> io::Result<Arc<File>> {
        let file = opened::with(&self.inner, inode, copy)?;
        keep(&self.open, self.room, inode, &file);
        Ok(file)
    }

    /// Whether the guest may keep the contents of files and folders whose times and sizes have not
    /// changed. Network file systems have times of up to two seconds, and what others change there
    /// is not reported.
    fn keeps(&self) -> bool {
        self.cache == Cache::Always || (self.cache == Cache::Auto && self.local)
    }

    /// Reads a file without a handle.
    fn read_plain(
        &self,
        inode: u64,
        to: &mut dyn ZeroCopyWriter,
        size: usize,
        offset: u64,
    ) -> io::Result<usize> {
        let mut from = ReadAt(|parts: &[FileVolatileSlice<'_>], at| {
            // SAFETY: the guest's memory stays mapped until the request is answered, which is after
            // this call.
            let parts = unsafe { Parts::new(parts) };
            match self.open.get(inode) {
                Some(file) => parts.fill(file.as_fd(), at),
                None => self.read_first(inode, parts, size, at),
            }
        });
        to.write_from(&mut from, size, offset)
    }

    /// Reads from a file that is not open. It is kept open for the next reads, or for the worker
    /// that carries out this one, unless this one had all of it.
    fn read_first(&self, inode: u64, parts: Parts, size: usize, at: u64) -> io::Result<usize> {
        let (open, room) = (Arc::clone(&self.open), self.room);
        self.while_unleased(inode, || {
            opened::with(&self.inner, inode, move |file| {
                let read = parts.fill(file, at);
                let whole = at == 0 && read.as_ref().is_ok_and(|&read| read < size);
                if !whole || open.read_whole(inode) {
                    keep(&open, room, inode, &copy(file)?);
                }
                read
            })
        })
    }

    /// Does something while the file is open for writing: until then no other program can lease it.
    /// Waits for a program that has.
    fn held<T>(
        &self,
        ctx: &Context,
        inode: u64,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let write = libc::O_WRONLY.unsigned_abs();
        let handle = self.inner.open(ctx, inode, write, 0)?.0.unwrap_or(0);
        let done = work();
        self.inner
            .release(ctx, inode, 0, handle, false, false, None)?;
        done
    }

    /// Makes a file, or opens one that exists.
    ///
    /// A thread that must not wait only makes files: whether another program has leased one that
    /// exists is a worker's concern. It makes them with `O_EXCL`, so a request that starts again
    /// has done nothing. One is left that another program leases between its making and its
    /// opening, which the host does in one call: the worker then opens it as one that exists. A
    /// guest that has set `O_EXCL` itself would get a wrong answer, so that request waits here for
    /// such a program, at most `fs.lease-break-time`.
    fn make(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        args: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        let only = libc::O_EXCL.unsigned_abs();
        if place::is_patient() || args.flags & only != 0 {
            return self.inner.create(ctx, parent, name, args);
        }
        let made = place::opening(args.flags | only, |flags| {
            self.inner
                .create(ctx, parent, name, CreateIn { flags, ..args })
        });
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                place::may_wait()?;
                Err(error)
            }
            made => made,
        }
    }

    /// Whether nothing comes after a part of a list.
    ///
    /// The crate's list cannot say so. It leaves out `.` and `..`, looks others up, and hides the
    /// error of that if `.` or `..` came before. So it is asked for as little as fits one of
    /// these, and what it has passed over shows in the folder's own position. That stays where it
    /// is at the end; some file systems move it there once.
    fn is_last(&self, ctx: &Context, inode: u64, handle: u64, part: &Part) -> bool {
        let (false, Some(mut position)) = (part.more, part.position) else {
            return false;
        };
        for _ in 0..LOOKS {
            let mut more = false;
            let mut any = |_: DirEntry<'_>| {
                more = true;
                Ok(0)
            };
            let list = &self.inner;
            let read = list.readdir(ctx, inode, handle, DOT, position, &mut any);
            // An error may hide entries: a name that is too long for this, or fails otherwise.
            if read.is_err() || more {
                return false;
            }
            match list.lseek(ctx, inode, handle, 0, libc::SEEK_CUR.unsigned_abs()) {
                Ok(now) if now == position => return true,
                Ok(now) => position = now,
                Err(_) => return false,
            }
        }
        false
    }

    /// Reads a part of a list. `read` gets the handle of the folder. `watched`: the folder is, and
    /// the list has attributes.
    fn list(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        offset: u64,
        watched: bool,
        read: impl FnOnce(u64) -> io::Result<Part>,
    ) -> io::Result<()> {
        if handle != 0 {
            return read(handle).map(drop);
        }
        let close = |handle| self.inner.releasedir(ctx, inode, 0, handle);
        let (handle, whole) = match self.open.list_at(inode, offset) {
            Some((handle, whole)) => (handle, whole && watched),
            None => {
                let _room = self.room.check(1)?;
                let handle = self.inner.opendir(ctx, inode, 0)?.0.unwrap_or(0);
                (handle, offset == 0 && watched)
            }
        };
        match read(handle) {
            Ok(part) if self.told_ends() && self.is_last(ctx, inode, handle, &part) => {
                close(handle)?;
                let other = part.other.as_ref().filter(|_| whole);
                let apart = other.is_some_and(|other| self.tells_apart(ctx, inode, other));
                listing::end(if apart { End::Whole } else { End::Last });
                Ok(())
            }
            Ok(Part {
                position: Some(position),
                ..
            }) => {
                if let Some((inode, handle)) = self.open.keep_list(inode, position, handle, whole) {
                    let _ = self.inner.releasedir(ctx, inode, 0, handle);
                }
                Ok(())
            }
            Ok(part) => {
                // After the two, the folder is empty.
                if part.dots && !part.more && self.told_ends() {
                    listing::end(End::Last);
                }
                close(handle)
            }
            Err(error) => {
                let _ = close(handle);
                Err(error)
            }
        }
    }
}

fn is_folder(attr: &stat64) -> bool {
    attr.st_mode & libc::S_IFMT == libc::S_IFDIR
}

/// Keeps a file open for the next reads, if its descriptor is one of the folder's.
fn keep(open: &OpenFiles, room: Room, inode: u64, file: &Arc<File>) {
    if room.has(file.as_raw_fd()) {
        open.keep(inode, Arc::clone(file));
    }
}

/// The open file, for longer.
fn copy(file: BorrowedFd<'_>) -> io::Result<Arc<File>> {
    let file = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
    Ok(Arc::new(File::from(file)))
}

/// No handle: the file is not open.
fn given(handle: Option<u64>) -> Option<u64> {
    handle.filter(|handle| *handle != 0)
}
