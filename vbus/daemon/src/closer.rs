// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Closes the files of peers that are no memory, on a thread of its own.
//!
//! Another process can make the close of a file take any time: a file system of the peer (FUSE)
//! need not answer, and a TCP connection may linger. A file that no process has received yet is
//! closed with the socket on which it waits. So vbusd's first thread closes no file that is not
//! memory, and no socket on which such a file waits.

use crate::receive::{Next, next, receive};
use crate::{confined, memory};
use paravane_confine::Files;
use rustix::fs::{fcntl_get_seals, fstat};
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The most files of one user that may wait. vbusd takes no more of that user then.
const MANY: usize = 64;

/// The number of files and sockets that each user's peers have left to be closed.
type Counts = Arc<Mutex<BTreeMap<u32, usize>>>;

/// The thread, as the first one sees it.
#[derive(Debug)]
pub struct Closer {
    jobs: Sender<Job>,
    counts: Counts,
}

#[derive(Debug)]
struct Job {
    uid: u32,
    files: Vec<OwnedFd>,
}

/// Whether a file is memory, which is closed at once. Much more memory than a connection may have
/// takes long to free.
pub fn is_memory(file: &OwnedFd) -> bool {
    fcntl_get_seals(file).is_ok() && fstat(file).is_ok_and(|status| few(status.st_blocks))
}

/// Whether this number of blocks of 512 bytes is no more than a connection's memory.
fn few(blocks: i64) -> bool {
    u64::try_from(blocks).is_ok_and(|blocks| blocks <= memory::MAX / 512)
}

impl Closer {
    /// Starts the thread, which confines itself.
    pub fn start() -> anyhow::Result<Self> {
        let (jobs, queue) = channel();
        let counts = Counts::default();
        let theirs = Arc::clone(&counts);
        confined::start("closer", "vbusd-closer", Files::none(), move || {
            run(&queue, &theirs);
        })?;
        Ok(Closer { jobs, counts })
    }

    /// Closes files.
    pub fn close(&self, uid: u32, files: Vec<OwnedFd>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(uid).or_default() += files.len();
        // The thread ends with this value only.
        let _ = self.jobs.send(Job { uid, files });
    }

    /// Ends a peer's socket, and closes it with whatever waits on it.
    pub fn end(&self, uid: u32, socket: OwnedFd) {
        // From now on nothing more can come.
        let _ = shutdown(&socket, Shutdown::Both);
        let rest = if self.has_many(uid) {
            // Only sockets with files are left to the thread, so a user needs one that waits for
            // each.
            drop_bytes(&socket)
        } else {
            take_rest(&socket)
        };
        let mut files = match rest {
            Rest::Nothing => return,
            Rest::Files(files) => files,
        };
        files.push(socket);
        self.close(uid, files);
    }

    /// How many of all users' wait.
    pub fn all(&self) -> usize {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.values().sum()
    }

    /// Whether as many of a user's files wait as may, so that no more are taken from the user's
    /// sockets.
    pub fn has_many(&self, uid: u32) -> bool {
        self.of(uid) >= MANY
    }

    /// How many of a user's wait.
    pub fn of(&self, uid: u32) -> usize {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&uid).copied().unwrap_or(0)
    }
}

fn run(queue: &Receiver<Job>, counts: &Counts) {
    while let Ok(Job { uid, files }) = queue.recv() {
        for file in files {
            drop(file);
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = counts.get_mut(&uid) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&uid);
                }
            }
        }
    }
}

/// What waited on a socket that takes nothing more.
enum Rest {
    /// Nothing but memory, and all of it was taken.
    Nothing,
    /// These files, and perhaps more.
    Files(Vec<OwnedFd>),
}

fn take_rest(socket: &OwnedFd) -> Rest {
    loop {
        match receive(socket, &mut []) {
            Ok(received) if received.end => return Rest::Nothing,
            Ok(received) if received.files.iter().all(is_memory) => {}
            Ok(received) => return Rest::Files(received.files),
            Err(_) => return Rest::Files(Vec::new()),
        }
    }
}

/// Takes the packets before the first with files, and leaves that.
fn drop_bytes(socket: &OwnedFd) -> Rest {
    loop {
        match next(socket) {
            Ok(Next::End) => return Rest::Nothing,
            Ok(Next::Bytes) => {}
            Ok(Next::Files) | Err(_) => return Rest::Files(Vec::new()),
        }
        if receive(socket, &mut []).is_err() {
            return Rest::Files(Vec::new());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

    #[test]
    fn only_so_much_memory_is_closed_at_once() {
        let memory = || memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let file = memory().unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, memory::MAX).unwrap();
        assert!(is_memory(&file));
        fallocate(&file, FallocateFlags::empty(), memory::MAX, 1).unwrap();
        assert!(!is_memory(&file));
        // Pages that there are not take no time.
        let file = memory().unwrap();
        ftruncate(&file, 2 * memory::MAX).unwrap();
        assert!(is_memory(&file));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_memory(&file.into()));
    }
}
