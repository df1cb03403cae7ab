// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that the guest reads without a handle of its own, and folders whose lists it reads so.
//!
//! A guest that need not open a file before it reads it saves two requests. The device then opens
//! the file when it is read first, and keeps it open for the next reads, as long as there are not
//! too many and the guest still knows the file. A file of which one read has had everything is
//! closed, unless that has happened before: most files that a program walks over are read once.
//!
//! A list is read through the same open folder to its end: not every file system of the host
//! continues a list correctly in another one.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most files that are open at a time.
const FILES: usize = 256;
/// The most lists that are read at a time. Others are opened again for each part.
const LISTS: usize = 64;
/// The files of which it is remembered that a read has had all of each.
const WHOLE: usize = 256;

/// A table in which the least recently used entry makes room.
struct Recent<K, V> {
    entries: HashMap<K, (V, u64)>,
    /// The entries' keys by the time of their last use.
    used: BTreeMap<u64, K>,
    most: usize,
    clock: u64,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    fn new(most: usize) -> Self {
        Recent {
            entries: HashMap::new(),
            used: BTreeMap::new(),
            most,
            clock: 0,
        }
    }

    fn get(&mut self, key: K) -> Option<&V> {
        let (value, used) = self.entries.get_mut(&key)?;
        self.clock += 1;
        self.used.remove(used);
        self.used.insert(self.clock, key);
        *used = self.clock;
        Some(value)
    }

    /// Returns the entry that made room, or had the same key.
    fn put(&mut self, key: K, value: V) -> Option<(K, V)> {
        let same = self.take(key);
        self.clock += 1;
        self.used.insert(self.clock, key);
        self.entries.insert(key, (value, self.clock));
        if let Some(old) = same {
            return Some((key, old));
        }
        if self.entries.len() <= self.most {
            return None;
        }
        let oldest = self.used.first_key_value().map(|(_, key)| *key)?;
        self.take(oldest).map(|value| (oldest, value))
    }

    fn take(&mut self, key: K) -> Option<V> {
        let (value, used) = self.entries.remove(&key)?;
        self.used.remove(&used);
        Some(value)
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.used.clear();
    }
}

/// The files that one read each has had all of, the last [`WHOLE`] of them.
struct Whole {
    inodes: [u64; WHOLE],
    next: usize,
}

impl Whole {
    /// Notes a file. Returns whether it was noted before.
    fn note(&mut self, inode: u64) -> bool {
        let known = self.inodes.contains(&inode);
        if !known {
            self.inodes[self.next] = inode;
            self.next = (self.next + 1) % WHOLE;
        }
        known
    }
}

/// The open files and lists of a folder.
pub struct OpenFiles {
    files: Mutex<Recent<u64, Arc<File>>>,
    whole: Mutex<Whole>,
    /// Handles by folder and position, and whether the folder was watched when the list began.
    lists: Mutex<Recent<(u64, u64), (u64, bool)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenFiles {
    pub fn new() -> Self {
        OpenFiles {
            files: Mutex::new(Recent::new(FILES)),
            whole: Mutex::new(Whole {
                // No file has this number.
                inodes: [0; WHOLE],
                next: 0,
            }),
            lists: Mutex::new(Recent::new(LISTS)),
        }
    }

    /// A file that is open.
    pub fn get(&self, inode: u64) -> Option<Arc<File>> {
        lock(&self.files).get(inode).cloned()
    }

    /// A file was opened, and one read has had all of it. Returns whether to keep it open. The
    /// guest keeps contents, so it seldom reads them again. Only files that it does read again are
    /// kept open.
    pub fn read_whole(&self, inode: u64) -> bool {
        lock(&self.whole).note(inode)
    }

    /// Keeps a file open.
    pub fn keep(&self, inode: u64, file: Arc<File>) {
        // Closes the file that makes room without the lock: the host may take long.
        let gone = lock(&self.files).put(inode, file);
        drop(gone);
    }

    /// The guest has forgotten a file: its space on the host may be needed.
    pub fn close(&self, inode: u64) {
        let gone = lock(&self.files).take(inode);
        drop(gone);
    }

    /// The handle of a list that was read up to this position, and whether the folder has been
    /// watched since the list began.
    pub fn list_at(&self, inode: u64, position: u64) -> Option<(u64, bool)> {
        lock(&self.lists).take((inode, position))
    }

    /// Keeps the handle of a list for the next part. Returns a folder and its handle that must be
    /// closed for that.
    pub fn keep_list(
        &self,
        inode: u64,
        position: u64,
        handle: u64,
        watched: bool,
    ) -> Option<(u64, u64)> {
        let gone = lock(&self.lists).put((inode, position), (handle, watched));
        gone.map(|((inode, _), (handle, _))| (inode, handle))
    }

    /// Closes all files. The handles of lists belong to the file system, which closes them.
    pub fn clear(&self) {
        lock(&self.files).clear();
        lock(&self.lists).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is read again and again is kept open from the second time on.
    #[test]
    fn what_is_read_again_is_kept_open() {
        let open = OpenFiles::new();
        let others = WHOLE as u64 - 1;
        assert!(!open.read_whole(1));
        for inode in 2..2 + others {
            assert!(!open.read_whole(inode), "{inode}");
        }
        assert!(open.read_whole(1), "forgotten after {others} others");
        assert!(!open.read_whole(2 + others));
        assert!(!open.read_whole(1), "more are remembered than {WHOLE}");
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let mut recent = Recent::new(2);
        assert_eq!(recent.put(1, "a"), None);
        assert_eq!(recent.put(2, "b"), None);
        assert_eq!(recent.get(1), Some(&"a"));
        assert_eq!(recent.put(3, "c"), Some((2, "b")));
        assert_eq!(recent.put(3, "d"), Some((3, "c")));
        assert_eq!((recent.take(1), recent.take(1)), (Some("a"), None));
        assert_eq!(recent.get(2), None);
        assert_eq!(recent.get(3), Some(&"d"));
    }
}
