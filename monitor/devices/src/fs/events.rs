// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Receives the host's reports about watched folders, by fanotify or by inotify.
//!
//! fanotify (Linux 5.17, without privileges) says whether this process has made a change, and never
//! merges the reports of two processes into one. inotify does neither, but works on older hosts and
//! on file systems without file handles. Both use the same bits for the same changes.

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Bytes of events that are read at once.
const BUFFER: usize = 64 << 10;

/// What inotify reports of a folder and the files in it.
const INTEREST: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

// Constants of linux/fanotify.h that the crate libc does not have for every C library.
const INIT: u32 = CLASS_NOTIF | CLOEXEC | NONBLOCK | REPORT_DFID_NAME;
const CLASS_NOTIF: u32 = 0;
const CLOEXEC: u32 = 1;
const NONBLOCK: u32 = 2;
const REPORT_DFID_NAME: u32 = 0xc00;
const MARK_ADD: u32 = 1;
const MARK_REMOVE: u32 = 2;
const MARK_ONLYDIR: u32 = 8;
const MARK_FLUSH: u32 = 0x80;
const MODIFY: u64 = 2;
const ATTRIB: u64 = 4;
const CREATE: u64 = 0x100;
const DELETE: u64 = 0x200;
const EVENT_ON_CHILD: u64 = 0x0800_0000;
const RENAME: u64 = 0x1000_0000;
const ONDIR: u64 = 0x4000_0000;
/// The changes that fanotify reports.
const MASK: u64 = CREATE | DELETE | RENAME | MODIFY | ATTRIB | ONDIR | EVENT_ON_CHILD;
/// Kinds of parts of an event that name a folder and a file in it.
const PLACE: u8 = 2;
const OLD_PLACE: u8 = 10;
const NEW_PLACE: u8 = 12;
/// The size of an event without its parts.
const METADATA: usize = 24;
/// A part's beginning: its kind and length, and the file system.
const FSID: std::ops::Range<usize> = 4..12;
/// The longest file handle (`MAX_HANDLE_SZ`).
const HANDLE: usize = 128;
/// A handle that only identifies a file (`AT_HANDLE_FID`): more file systems give one.
const ONLY_COMPARED: c_int = 0x200;

/// The cookie of a file that was moved from or to a folder that is not watched.
pub const ALONE: u32 = u32::MAX;

/// A watched folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// inotify's watch.
    Watch(i32),
    /// Its file system and file handle.
    Handle(Vec<u8>),
}

/// What has happened.
#[derive(Debug)]
pub struct Event {
    pub what: ReadFlags,
    /// None, if events were lost, or the file system has given no handle for it.
    pub folder: Option<Key>,
    /// A name in the folder. Without one it is the folder itself.
    pub name: Option<Vec<u8>>,
    /// A number that the two names of a file that was moved share; their events follow each other.
    /// Or [`ALONE`].
    pub cookie: u32,
    /// This process has done it.
    pub ours: bool,
}

/// Where the host reports.
#[derive(Debug)]
pub struct Events {
    file: OwnedFd,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Inotify,
    Fanotify,
}

impl Events {
    /// The better means that the host gives for this folder.
    ///
    /// # Errors
    /// It gives none, or the user has too many.
    pub fn new(folder: BorrowedFd<'_>) -> io::Result<Self> {
        if let Ok(events) = Self::fanotify() {
            // Only this shows what the file system lacks.
            let path = format!("/proc/self/fd/{}/.", folder.as_raw_fd());
            let tried = std::fs::File::open(path).and_then(|folder| {
                events.add(folder.as_raw_fd())?;
                events.clear()
            });
            if tried.is_ok() {
                return Ok(events);
            }
        }
        Self::inotify()
    }

    fn fanotify() -> io::Result<Self> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: takes no pointer.
        let file = checked(unsafe { libc::fanotify_init(INIT, flags.unsigned_abs()) })?;
        Ok(Events {
            // SAFETY: the descriptor is new and has no other owner.
            file: unsafe { OwnedFd::from_raw_fd(file) },
            kind: Kind::Fanotify,
        })
    }

    /// The older means.
    ///
    /// # Errors
    /// The host has no inotify, or the user has too many instances.
    pub fn inotify() -> io::Result<Self> {
        Ok(Events {
            file: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            kind: Kind::Inotify,
        })
    }

    /// Whether [`Event::ours`] means something.
    pub fn know_ours(&self) -> bool {
        self.kind == Kind::Fanotify
    }

    /// Watches an open folder. One that is watched already has the same key.
    ///
    /// # Errors
    /// The host's.
    pub fn add(&self, folder: RawFd) -> io::Result<Key> {
        if self.kind == Kind::Inotify {
            let path = format!("/proc/self/fd/{folder}/.");
            let watch = inotify::add_watch(&self.file, path, INTEREST)?;
            return Ok(Key::Watch(watch));
        }
        let key = Key::Handle(handle(folder)?);
        self.mark(MARK_ADD | MARK_ONLYDIR, folder)?;
        Ok(key)
    }

    /// Ends a watch. `folder` opens the folder, of which fanotify needs a descriptor.
    ///
    /// # Errors
    /// The host's: the folder may be watched still.
    pub fn remove(
        &self,
        key: &Key,
        folder: impl FnOnce(&mut dyn FnMut(RawFd) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        match key {
            Key::Watch(watch) => {
                // Fails if the folder was removed.
                let _ = inotify::remove_watch(&self.file, *watch);
                Ok(())
            }
            Key::Handle(_) => folder(&mut |folder| match self
                .mark(MARK_REMOVE | MARK_ONLYDIR, folder)
            {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                done => done,
            }),
        }
    }

    /// Ends all watches of fanotify.
    ///
    /// # Errors
    /// The host's.
    pub fn clear(&self) -> io::Result<()> {
        match self.kind {
            Kind::Inotify => Ok(()),
            Kind::Fanotify => self.mark(MARK_FLUSH, -1),
        }
    }

    fn mark(&self, flags: u32, folder: RawFd) -> io::Result<()> {
        let mask = if flags == MARK_FLUSH { 0 } else { MASK };
        // SAFETY: without a path the call takes no pointer.
        let done = unsafe {
            libc::fanotify_mark(self.file.as_raw_fd(), flags, mask, folder, std::ptr::null())
        };
        checked(done).map(drop)
    }

    /// Reads some events. There are none only if nothing is left.
    ///
    /// # Errors
    /// The host's.
    pub fn read(&self, buffer: &mut Vec<u8>) -> io::Result<Vec<Event>> {
        match self.kind {
            Kind::Inotify => self.read_inotify(),
            Kind::Fanotify => {
                buffer.resize(BUFFER, 0);
                let length = loop {
                    match rustix::io::read(&self.file, &mut buffer[..]) {
                        Ok(length) => break length,
                        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Vec::new()),
                        Err(rustix::io::Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                };
                parse(&buffer[..length], std::process::id().cast_signed())
                    .ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
        }
    }

    fn read_inotify(&self) -> io::Result<Vec<Event>> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.file, &mut buffer);
        let mut all = Vec::new();
        while all.is_empty() || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => all.push(Event {
                    what: event.events(),
                    folder: (event.wd() >= 0).then(|| Key::Watch(event.wd())),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                    cookie: event.cookie(),
                    ours: false,
                }),
                Err(rustix::io::Errno::WOULDBLOCK) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn checked(done: c_int) -> io::Result<c_int> {
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(done)
}

/// `struct file_handle`.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: c_int,
    handle: [u8; HANDLE],
}

/// What fanotify calls an open folder.
fn handle(folder: RawFd) -> io::Result<Vec<u8>> {
    let mut seen = FileHandle {
        bytes: HANDLE.try_into().unwrap_or(0),
        kind: 0,
        handle: [0; HANDLE],
    };
    let mut get = |flags: c_int| {
        let mut mount: c_int = 0;
        // SAFETY: the path is a string, and the other pointers are to values that live through the
        // call. The structure has room for the bytes that it says.
        checked(unsafe {
            libc::name_to_handle_at(
                folder,
                c"".as_ptr(),
                (&raw mut seen).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH | flags,
            )
        })
    };
    match get(0) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => get(ONLY_COMPARED)?,
        done => done?,
    };
    // SAFETY: the descriptor is open during the call.
    let folder = unsafe { BorrowedFd::borrow_raw(folder) };
    let fsid = rustix::fs::fstatfs(folder)?.f_fsid;
    // SAFETY: the kernel's type is two integers: eight bytes, of which each is a value.
    let fsid = unsafe { std::mem::transmute::<rustix::fs::Fsid, [u8; 8]>(fsid) };
    let length = usize::try_from(seen.bytes).unwrap_or(HANDLE).min(HANDLE);
    Ok(key(fsid, seen.kind, &seen.handle[..length]))
}

fn key(fsid: [u8; 8], kind: i32, handle: &[u8]) -> Vec<u8> {
    [&fsid[..], &kind.to_ne_bytes(), handle].concat()
}

/// The events in a buffer of fanotify. `None`: this is not what the kernel writes.
fn parse(mut bytes: &[u8], own: i32) -> Option<Vec<Event>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = usize::try_from(word(bytes, 0)?).ok()?;
        let begin = usize::from(u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?));
        if begin < METADATA || length < begin {
            return None;
        }
        let mask = u64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
        let ours = word(bytes, 20)?.cast_signed() == own;
        let mut parts = bytes.get(begin..length)?;
        let (mut old, mut new) = (None, None);
        while !parts.is_empty() {
            let size = usize::from(u16::from_ne_bytes(parts.get(2..4)?.try_into().ok()?));
            let part = parts.get(..size).filter(|part| !part.is_empty())?;
            match part[0] {
                PLACE | OLD_PLACE => old = Some(place(part)?),
                NEW_PLACE => new = Some(place(part)?),
                _ => {}
            }
            parts = &parts[size..];
        }
        let event = |what: ReadFlags, place: Place, cookie| Event {
            what,
            folder: place.folder,
            name: place.name,
            cookie,
            ours,
        };
        if mask & RENAME == 0 {
            let what = ReadFlags::from_bits_truncate(u32::try_from(mask).ok()?);
            all.push(event(what, old.unwrap_or_default(), 0));
        } else {
            // A place in a folder that is not watched is left out.
            let cookie = match (&old, &new) {
                (Some(_), Some(_)) => u32::try_from(all.len()).ok()?,
                _ => ALONE,
            };
            if old.is_none() && new.is_none() {
                // One of them is watched.
                old = Some(Place::default());
            }
            let names = [(ReadFlags::MOVED_FROM, old), (ReadFlags::MOVED_TO, new)];
            for (what, place) in names {
                all.extend(place.map(|place| event(what, place, cookie)));
            }
        }
        bytes = &bytes[length..];
    }
    Some(all)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A folder and a name in it.
#[derive(Default)]
struct Place {
    folder: Option<Key>,
    name: Option<Vec<u8>>,
}

fn place(part: &[u8]) -> Option<Place> {
    let fsid = part.get(FSID)?.try_into().ok()?;
    let length = usize::try_from(word(part, FSID.end)?).ok()?;
    let kind = word(part, FSID.end + 4)?.cast_signed();
    let handle = part.get(FSID.end + 8..)?;
    let (handle, name) = (handle.get(..length)?, handle.get(length..)?);
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let known = !handle.is_empty();
    Some(Place {
        folder: known.then(|| Key::Handle(key(fsid, kind, handle))),
        // The folder itself is called so.
        name: (name != b"." && !name.is_empty()).then(|| name.to_vec()),
    })
}

#[cfg(test)]
mod tests;
