// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recognises changes that the guest itself makes in a shared folder, and so knows already.
//!
//! fanotify says that this process has made a change, and keeps the reports of different processes
//! apart. So a report that is left out never hides a change by another program, whatever happens at
//! the same time. This process, however, also writes files for other purposes, of which the guest
//! does not know: a log, a disk's file. So a report is left out only if the device has noted a
//! request of the guest for the same name or file, and carries it out or has done so a moment ago
//! ([`RECENT`]).
//!
//! This cannot recognise a change of this process for another purpose, of the same file, in the
//! same moment: another volume of the machine may have such files, in which case nothing is left
//! out ([`listed`](super::listed)). A machine that has one of its disks or its log in a volume and
//! writes to the same file by way of the volume sees such a write of the monitor only when its
//! attributes expire. So does one that writes by way of two names of a folder that is mounted in
//! its own volume once more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a change is remembered. A change that the host reports later is passed to the guest,
/// which is never wrong.
const RECENT: Duration = Duration::from_millis(50);
/// The most changes that are remembered. Others are passed to the guest.
const MOST: usize = 4096;

/// The longest name that is remembered, in bytes. The host has no longer ones.
pub const NAME: usize = 255;

/// What is changed. Folders and files are numbers of the file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Name(u64, Vec<u8>),
    /// A file's or folder's attributes, and its contents.
    File(u64),
    Contents(u64),
}

/// Requests that change a thing.
#[derive(Default)]
struct Note {
    running: u32,
    /// The end of the last one.
    ended: Option<Instant>,
    /// Of [`Thing::File`]: a change of the contents ran beside one of them. The attributes that the
    /// guest got may be those from before it.
    mixed: bool,
}

impl Note {
    fn is_recent(&self, now: Instant) -> bool {
        self.running > 0
            || self
                .ended
                .is_some_and(|ended| now.saturating_duration_since(ended) < RECENT)
    }

    /// The file's contents change from now on: changes of attributes that are reported next may
    /// come from that, and the guest has not got them.
    fn overtake(&mut self) {
        self.ended = None;
        self.mixed |= self.running > 0;
    }
}

/// What the guest changes.
#[derive(Default)]
pub struct Own(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    of: HashMap<Thing, Note>,
    tidied: Option<Instant>,
}

/// A change that is being made. It ends when this is dropped.
pub struct Noted<'a> {
    own: &'a Own,
    thing: Thing,
}

impl Own {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before a name is made, removed, or opened with what may change its file.
    pub fn name(&self, folder: u64, name: &[u8]) -> Option<Noted<'_>> {
        // A guest may send a MiB.
        if name.len() > NAME {
            return None;
        }
        self.note(Thing::Name(folder, name.to_vec()))
    }

    /// To be called before a file's contents are changed. The guest does not learn what that does
    /// to its attributes: the host may take away setuid.
    pub fn contents(&self, inode: u64) -> Option<Noted<'_>> {
        self.note(Thing::Contents(inode))
    }

    /// To be called before a file or folder is changed, of which the guest gets the attributes.
    pub fn file(&self, inode: u64) -> Option<Noted<'_>> {
        self.note(Thing::File(inode))
    }

    fn note(&self, thing: Thing) -> Option<Noted<'_>> {
        let mut notes = self.lock();
        // Also if there is no room for a note of its own.
        if let Thing::Contents(inode) = thing
            && let Some(file) = notes.of.get_mut(&Thing::File(inode))
        {
            file.overtake();
        }
        if notes.of.len() >= MOST && !notes.of.contains_key(&thing) {
            notes.tidy(Instant::now());
            if notes.of.len() >= MOST {
                return None;
            }
        }
        let beside_contents = match thing {
            Thing::File(inode) => {
                let contents = notes.of.get(&Thing::Contents(inode));
                contents.is_some_and(|note| note.running > 0)
            }
            _ => false,
        };
        let note = notes.of.entry(thing.clone()).or_default();
        note.mixed = beside_contents || note.mixed && note.running > 0;
        note.running += 1;
        drop(notes);
        Some(Noted { own: self, thing })
    }

    fn has(&self, thing: &Thing) -> bool {
        let notes = self.lock();
        notes
            .of
            .get(thing)
            .is_some_and(|note| !note.mixed && note.is_recent(Instant::now()))
    }

    /// Whether the guest changes a name or the file of that name.
    pub fn has_name(&self, folder: u64, name: &[u8]) -> bool {
        self.has(&Thing::Name(folder, name.to_vec()))
    }

    /// Whether the guest changes a file's contents, or all of it.
    pub fn has_contents(&self, inode: u64) -> bool {
        self.has(&Thing::Contents(inode)) || self.has_file(inode)
    }

    /// Whether the guest changes a file, and gets its attributes.
    pub fn has_file(&self, inode: u64) -> bool {
        self.has(&Thing::File(inode))
    }

    /// Forgets what is over, from time to time.
    pub fn tidy(&self) {
        let (now, mut notes) = (Instant::now(), self.lock());
        if notes.tidied.is_none_or(|tidied| now > tidied + RECENT) {
            notes.tidy(now);
        }
    }
}

impl Notes {
    fn tidy(&mut self, now: Instant) {
        self.of.retain(|_, note| note.is_recent(now));
        self.tidied = Some(now);
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if let Some(note) = self.own.lock().of.get_mut(&self.thing) {
            note.running = note.running.saturating_sub(1);
            note.ended = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_the_guests_until_a_moment_after_it() {
        let own = Own::default();
        assert!(!own.has_name(1, b"a"));
        let noted = own.name(1, b"a");
        own.tidy();
        assert!(own.has_name(1, b"a"));
        assert!(!own.has_name(2, b"a") && !own.has_name(1, b"b") && !own.has_file(1));
        drop(noted);
        std::thread::sleep(RECENT);
        assert!(!own.has_name(1, b"a"));
        std::thread::sleep(RECENT);
        own.tidy();
        assert!(own.lock().of.is_empty());
    }

    /// The guest gets the attributes of the first change, and the second may change them again.
    #[test]
    fn a_change_of_the_contents_overtakes_one_of_the_attributes() {
        let own = Own::default();
        // After it.
        drop(own.file(1));
        assert!(own.has_file(1));
        drop(own.contents(1));
        assert!(!own.has_file(1) && own.has_contents(1));
        // Before it.
        drop(own.file(1));
        assert!(own.has_file(1));
        // Beside it, in both orders.
        let file = own.file(2);
        drop(own.contents(2));
        assert!(!own.has_file(2));
        drop(file);
        assert!(!own.has_file(2));
        let contents = own.contents(3);
        drop(own.file(3));
        assert!(!own.has_file(3) && own.has_contents(3));
        drop(contents);
        assert!(!own.has_file(3));
        drop(own.file(3));
        assert!(own.has_file(3) && !own.has_file(1 << 32));
    }

    #[test]
    fn few_changes_are_remembered() {
        let own = Own::default();
        let all: Vec<_> = (0..=MOST as u64).map(|inode| own.file(inode)).collect();
        assert!(all[MOST].is_none() && all[..MOST].iter().all(Option::is_some));
        assert!(own.has_file(0) && !own.has_file(MOST as u64));
        assert!(own.file(0).is_some());
        // A change of the contents that is not remembered overtakes, too.
        assert!(own.contents(1).is_none() && !own.has_file(1));
        drop(all);
        let own = Own::default();
        assert!(own.name(1, &[b'x'; NAME]).is_some() && own.name(1, &[b'x'; NAME + 1]).is_none());
    }
}
