// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages by which the device reports changes on the host to the guest (FUSE_NOTIFY), and
//! those that wait for a buffer of the guest.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The size of the guest's buffers in bytes: enough for any name of the host.
pub const BUFFER: u32 = 512;
/// The most messages that wait. More become one, which says that anything may have changed.
const WAITING: usize = 4096;

// `enum fuse_notify_code`.
const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const INC_EPOCH: i32 = 8;
/// `FUSE_EXPIRE_ONLY`: the entry is checked when it is used next. Without this flag, what the guest
/// has mounted there would be unmounted.
const EXPIRE_ONLY: u32 = 1;

/// A possible change. Numbers are those of the guest.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub enum Change {
    /// A name in a folder.
    Name(u64, Vec<u8>),
    /// A file's attributes.
    Attributes(u64),
    /// A file's contents, and so its attributes.
    Contents(u64),
    /// Anything.
    All,
}

impl Change {
    /// The message: `struct fuse_out_header`, and a body.
    pub fn message(&self) -> Vec<u8> {
        let (code, body) = match self {
            Change::Name(folder, name) => {
                let mut body = folder.to_le_bytes().to_vec();
                let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
                body.extend(length.to_le_bytes());
                body.extend(EXPIRE_ONLY.to_le_bytes());
                body.extend(name);
                body.push(0);
                (INVAL_ENTRY, body)
            }
            Change::Attributes(inode) => (INVAL_INODE, inval_inode(*inode, -1)),
            Change::Contents(inode) => (INVAL_INODE, inval_inode(*inode, 0)),
            Change::All => (INC_EPOCH, Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
        let mut message = length.to_le_bytes().to_vec();
        message.extend(code.to_le_bytes());
        // Not the answer to a request.
        message.extend([0; 8]);
        message.extend(body);
        message
    }
}

/// Pages from this offset on are dropped; none, if it is negative.
fn inval_inode(inode: u64, offset: i64) -> Vec<u8> {
    let mut body = inode.to_le_bytes().to_vec();
    body.extend(offset.to_le_bytes());
    body.extend([0; 8]);
    body
}

/// Changes for which the guest has no buffer yet.
#[derive(Debug, Default)]
pub struct Changes(Mutex<VecDeque<Change>>);

impl Changes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Change>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change.
    pub fn add(&self, change: Change) {
        let mut all = self.lock();
        if all.front() == Some(&Change::All) || all.back() == Some(&change) {
            return;
        }
        if change == Change::All || all.len() >= WAITING {
            all.clear();
            all.push_back(Change::All);
        } else {
            all.push_back(change);
        }
    }

    /// The next one.
    pub fn next(&self) -> Option<Change> {
        self.lock().pop_front()
    }

    /// Puts one back: the guest has no buffer for it yet.
    pub fn put_back(&self, change: Change) {
        let mut all = self.lock();
        if all.front() != Some(&Change::All) {
            all.push_front(change);
        }
    }

    /// Forgets all of them: the guest has ended the file system.
    pub fn clear(&self) {
        self.lock().clear();
    }
}

impl Change {
    /// The change with the guest's numbers of inodes.
    pub fn outside(&self, number: impl Fn(u64) -> u64) -> Change {
        match self {
            Change::Name(folder, name) => Change::Name(number(*folder), name.clone()),
            Change::Attributes(inode) => Change::Attributes(number(*inode)),
            Change::Contents(inode) => Change::Contents(number(*inode)),
            Change::All => Change::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        let name = Change::Name(7, b"ab".to_vec()).message();
        let words = |bytes: &[u8]| -> Vec<u32> {
            let word = |part: &[u8]| u32::from_le_bytes(part.try_into().unwrap());
            bytes.chunks_exact(4).map(word).collect()
        };
        assert_eq!(words(&name[..32]), [35, 3, 0, 0, 7, 0, 2, 1]);
        assert_eq!(name[32..], *b"ab\0");
        let contents = words(&Change::Contents(9).message());
        assert_eq!(contents, [40, 2, 0, 0, 9, 0, 0, 0, 0, 0]);
        let attributes = words(&Change::Attributes(9).message());
        assert_eq!(attributes[6..8], [u32::MAX; 2]);
        assert_eq!(words(&Change::All.message()), [16, 8, 0, 0]);
        let longest = Change::Name(1, vec![b'x'; 255]).message();
        assert!(longest.len() <= BUFFER as usize);
    }

    /// For any number of changes, few messages wait, and no change is lost.
    #[test]
    fn too_many_changes_are_one() {
        let changes = Changes::default();
        for inode in 0..WAITING as u64 {
            changes.add(Change::Attributes(inode));
        }
        changes.add(Change::Contents(1));
        changes.add(Change::Contents(2));
        assert_eq!(changes.next(), Some(Change::All));
        assert_eq!(changes.next(), None);
        changes.add(Change::Contents(2));
        changes.add(Change::Contents(2));
        assert_eq!(changes.next(), Some(Change::Contents(2)));
        assert_eq!(changes.next(), None);
    }
}
