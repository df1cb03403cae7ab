// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the host's reports, and derives the changes for the guest.

use super::super::events::{ALONE, Event};
use super::super::notify::Change;
use super::{FORGOTTEN, Watch};
use fuse_backend_rs::api::filesystem::{Context, FileSystem};
use fuse_backend_rs::passthrough::PassthroughFs;
use rustix::fs::inotify::ReadFlags;
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::sync::atomic::Ordering;

/// The most changes that are remembered in order to report each only once.
const SEEN: usize = 4096;

/// The changes that were reported up to now.
pub struct Look<'a> {
    watch: &'a Watch,
    fs: &'a PassthroughFs<()>,
    /// Programs write in pieces: the same change is often reported many times.
    seen: HashSet<Change>,
    /// With the file system's own numbers.
    news: Vec<Change>,
    /// More than can be remembered.
    many: bool,
    /// A file that was moved, until the event of its new place, which comes next.
    moved: Option<u32>,
    /// The number of events.
    pub events: usize,
    /// Something has changed in a folder that the host did not name.
    pub nowhere: bool,
}

impl<'a> Look<'a> {
    /// `news` is known already.
    pub fn new(watch: &'a Watch, fs: &'a PassthroughFs<()>, news: Vec<Change>) -> Self {
        Look {
            watch,
            fs,
            seen: HashSet::new(),
            news,
            many: false,
            moved: None,
            events: 0,
            nowhere: false,
        }
    }

    /// Notes an event.
    pub fn take(&mut self, event: &Event) {
        self.events += 1;
        let cookie = event.cookie;
        let elsewhere = |moved| moved != cookie || cookie == ALONE;
        if event.folder.is_none() || self.moved.is_some_and(elsewhere) {
            // It may be in a folder that is not watched.
            self.watch.files().clear();
        }
        let left = event.what.contains(ReadFlags::MOVED_FROM);
        self.moved = left.then_some(cookie);
        for change in self.changed(event) {
            if self.seen.len() >= SEEN {
                self.many = true;
            } else if self.seen.insert(change.clone()) {
                self.news.push(change);
            }
        }
        if event.what.contains(ReadFlags::IGNORED)
            && let Some(folder) = &event.folder
        {
            self.watch.gone(folder);
        }
    }

    /// The messages for the guest.
    pub fn end(self) -> Vec<Change> {
        if self.moved.is_some() {
            self.watch.files().clear();
        }
        if self.many {
            return vec![Change::All];
        }
        self.news
    }

    /// What an event means.
    ///
    /// The names of a file that the guest has moved are known to it, but not the file's attributes:
    /// what a program of the host did to it before may be reported under the old name, where it is
    /// not found any more.
    fn changed(&mut self, event: &Event) -> Vec<Change> {
        let what = event.what;
        let lost = what.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT);
        let Some(folder) = event.folder.as_ref().filter(|_| !lost) else {
            self.nowhere |= !lost;
            return vec![Change::All];
        };
        let watch = self.watch;
        let inode = watch.lock().by_watch.get(folder).copied();
        let Some(folder) = inode.filter(|inode| *inode != FORGOTTEN) else {
            return Vec::new();
        };
        let ours = event.ours && watch.spares.load(Ordering::SeqCst);
        let Some(name) = &event.name else {
            let told = what.contains(ReadFlags::ATTRIB) && !(ours && watch.own.has_file(folder));
            let change = told.then_some(Change::Attributes(folder));
            return change.into_iter().collect();
        };
        let known = ours && watch.own.has_name(folder, name);
        let names =
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let mut all = Vec::new();
        if what.intersects(names) && !known {
            all.push(Change::Name(folder, name.clone()));
        }
        let moved = what.contains(ReadFlags::MOVED_TO);
        let contents = what.contains(ReadFlags::MODIFY);
        let attributes = what.contains(ReadFlags::ATTRIB);
        if moved || attributes || !known && contents {
            let own = |file| match attributes {
                true => watch.own.has_file(file),
                false => watch.own.has_contents(file),
            };
            let change = match file(self.fs, folder, name) {
                Ok(file) if !moved && ours && own(file) => None,
                Ok(file) if contents => Some(Change::Contents(file)),
                Ok(file) => Some(Change::Attributes(file)),
                Err(error) => unknown(&error),
            };
            all.extend(change);
        }
        all
    }
}

/// The file of a name.
fn file(fs: &PassthroughFs<()>, folder: u64, name: &[u8]) -> io::Result<u64> {
    let (context, name) = (Context::default(), CString::new(name)?);
    let entry = fs.lookup(&context, folder, &name)?;
    fs.forget(&context, entry.inode, 1);
    Ok(entry.inode)
}

/// The change to report for a file that is not found.
fn unknown(error: &io::Error) -> Option<Change> {
    match error.raw_os_error() {
        // It has another name by now or was removed, which is reported next.
        Some(libc::ENOENT) => None,
        // The guest's own files may take all descriptors, or this user may not look it up any more.
        // The guest may still have it open.
        _ => Some(Change::All),
    }
}
