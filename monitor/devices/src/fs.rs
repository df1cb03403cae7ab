// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File system device (virtio 1.2, section 5.11): a directory of the host in the guest.
//!
//! The requests are FUSE requests, which the crate fuse-backend-rs carries out. The crate never
//! leaves the directory: it opens every name relative to a descriptor of its parent and follows no
//! symbolic link (the guest kernel follows them). A request may have to wait for the host for any
//! time, so a few worker threads carry out those that may wait ([`place`]), and answers come in any
//! order. Run by an ordinary user, files belong to that user on the host, and to root in the guest.
//! Run by root, owners are the same on both sides. No request makes a host program that gives its
//! caller rights, unless the user has asked for that ([`masked`]).

mod cached;
mod dots;
mod events;
mod folder;
mod holes;
mod ids;
mod listed;
mod listing;
mod mappings;
mod masked;
mod mounts;
mod names;
mod notify;
mod open_files;
mod opened;
mod own;
mod place;
mod room;
mod root;
mod watch;

use super::pool::Pool;
use super::{Broken, Chain, Device, Driver, Memory, Waker, kind};
use anyhow::{Context, bail};
use fuse_backend_rs::transport::{Reader, VirtioFsWriter, Writer};
use paravane_confine::Files;
use place::{Place, Places};
use root::{Root, Served, Serving};
use rustix::fs::Mode;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;
use vm_memory::{Bytes, GuestAddress};

/// Size of a tag in the configuration space in bytes.
const TAG: usize = 36;
/// Queues for requests, after the queue for those that cannot wait and that for notifications.
const REQUEST_QUEUES: u32 = 1;
/// Entries of a queue for requests. A request of Linux has at most 4 buffers fewer, each of a page:
/// this is room for 1 MiB, the most that the crate takes.
const REQUESTS: u16 = 512;
/// Feature bit: the second queue is for notifications ([`notify`]).
const NOTIFICATION: u64 = 1;
/// The queue for notifications, if the driver has it.
const NOTIFY: usize = 1;
/// The most requests that wait for the host at a time.
const THREADS: usize = 8;
/// Operation of a read, and a flag of the project's kernel in it (`FUSE_READ_AHEAD`): the file is
/// small, and asked for together with others.
const READ: u32 = 15;
const AHEAD: u32 = 1 << 31;
/// The place of its flags in `struct fuse_read_in`, in bytes.
const READ_FLAGS: u64 = 20;
/// Operation that ends an open file. The guest sends it with the next request, and does not wait.
const RELEASE: u32 = 18;

/// What a guest may do with a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It changes nothing.
    ReadOnly,
    /// Anything except programs that give their callers rights on the host.
    Write,
    /// Such programs too.
    Suid,
}

/// What a guest may keep of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// Nothing: each use is a request.
    None,
    /// What it may: it sees changes of the host a moment later, see [`folder`].
    #[default]
    Auto,
    /// Everything, also what it has not written yet: the host must not change the folder.
    Always,
}

/// How a folder is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// What the guest may do with it.
    pub access: Access,
    /// What it may keep.
    pub cache: Cache,
    /// Workers carry out every request, even if it takes a moment.
    pub workers: bool,
    /// Descriptors of the process from this one on are not for files of the folder.
    pub descriptors: RawFd,
}

/// The defaults for this access.
impl From<Access> for Sharing {
    fn from(access: Access) -> Self {
        Sharing {
            access,
            cache: Cache::default(),
            workers: false,
            descriptors: RawFd::MAX,
        }
    }
}

/// The device.
pub struct Fs {
    serving: Serving,
    tag: String,
    root: Root,
    pool: Option<Pool<Request, Done>>,
    places: Places,
    watcher: Option<JoinHandle<()>>,
    waker: Option<Waker>,
}

/// A request and the server that answers it.
struct Request {
    server: Arc<Served>,
    queue: usize,
    chain: Chain,
    /// The guest caches no contents.
    direct: bool,
}

/// A request's queue and chain, and the bytes written to it.
type Done = (usize, u16, Result<u32, Broken>);

impl Request {
    /// Its operation, and 0 if it has none. The guest may change it, which affects only the guest's
    /// own speed.
    fn operation(&self, memory: &Memory) -> u32 {
        self.word(memory, 0, 4)
    }

    /// Whether it is one of several that the guest has sent at once, in order to wait only once.
    /// The project's kernel has what follows the header in a buffer of its own.
    fn is_ahead(&self, memory: &Memory) -> bool {
        self.word(memory, 1, READ_FLAGS) & AHEAD != 0
    }

    /// What a buffer has at a place, and 0 if that is nothing.
    fn word(&self, memory: &Memory, buffer: usize, at: u64) -> u32 {
        let part = self.chain.clone().readable().nth(buffer);
        let word = part
            .filter(|part| u64::from(part.len()) >= at + 4)
            .and_then(|part| {
                let place = part.addr().0.checked_add(at)?;
                memory.read_obj::<u32>(GuestAddress(place)).ok()
            });
        word.map_or(0, u32::from_le)
    }

    /// Carries the request out.
    fn execute(&self) -> Done {
        (self.queue, self.chain.head_index(), self.answer())
    }

    fn answer(&self) -> Result<u32, Broken> {
        let memory = self.chain.memory();
        let reader = Reader::from_descriptor_chain(memory, self.chain.clone())
            .map_err(|_| Broken::Rule("a file system request outside memory"))?;
        let writer = VirtioFsWriter::new(memory, self.chain.clone())
            .map_err(|_| Broken::Rule("a buffer for a file system's answer outside memory"))?;
        // Forgets the mark that an abandoned request has left.
        let _ = listing::ended();
        // Before the answer, which a guest may place where its request was.
        let begins = self.direct && self.operation(memory) == place::INIT;
        let offered = self.word(memory, 1, mappings::OFFERED);
        // An invalid request gets no answer, and a guest program that waits for one waits for ever.
        let mut written = self
            .server
            .handle_message(reader, Writer::VirtioFs(writer), None, None)
            .unwrap_or(0);
        if begins {
            VirtioFsWriter::new(memory, self.chain.clone())
                .map_err(io::Error::other)
                .and_then(|buffers| mappings::allow(buffers, written, offered))
                .map_err(|_| Broken::Rule("a buffer for an answer that is too small"))?;
        }
        if let Some(end) = listing::ended() {
            written = VirtioFsWriter::new(memory, self.chain.clone())
                .map_err(io::Error::other)
                .and_then(|buffers| listing::mark(buffers, written, end))
                .map_err(|_| Broken::Rule("a buffer for a list that is too small"))?;
        }
        Ok(u32::try_from(written).unwrap_or(0))
    }
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fs")
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

impl Fs {
    /// Shares a directory under a tag, by which the guest mounts it. For reading only, the thread's
    /// policy prevents changes whatever the guest asks for, so no kind of request can be
    /// overlooked.
    ///
    /// # Errors
    /// The tag is invalid, or the directory cannot be shared.
    pub fn new(path: &Path, tag: &str, sharing: impl Into<Sharing>) -> anyhow::Result<Self> {
        let sharing = sharing.into();
        if tag.is_empty() || tag.len() > TAG || tag.bytes().any(|b| b == 0) {
            bail!("the tag {tag:?} must have 1 to {TAG} bytes");
        }
        let root = Root::new(path, sharing)?;
        Ok(Fs {
            serving: root.serve().with_context(|| root.path.clone())?,
            tag: tag.to_string(),
            places: Places::new(!sharing.workers && root.local),
            root,
            pool: None,
            watcher: None,
            waker: None,
        })
    }
}

impl Fs {
    /// The name of the policy, which is also the threads' name.
    fn policy(&self) -> &'static str {
        match self.root.sharing.access {
            Access::ReadOnly => "fs-ro",
            Access::Write => "fs",
            Access::Suid => "fs-suid",
        }
    }
}

impl Fs {
    /// Starts the thread that reports changes of the host.
    fn watch(&mut self) {
        let (Some(watch), Some(waker)) = (&self.root.watch, &self.waker) else {
            return;
        };
        let (watch, waker) = (Arc::clone(watch), waker.clone());
        let fs = Arc::clone(&self.serving.fs);
        let outside = Serving::outside(self.serving.index);
        watch.begin();
        let thread = std::thread::Builder::new()
            .name(self.policy().to_string())
            .spawn(move || watch.run(&fs, outside, &waker));
        match thread {
            Ok(thread) => self.watcher = Some(thread),
            Err(error) => {
                tracing::warn!("{}: cannot be watched: {error}", self.root.path);
                self.stop_watching();
            }
        }
    }

    fn stop_watching(&mut self) {
        let Some(watch) = &self.root.watch else {
            return;
        };
        watch.pause();
        if let Some(thread) = self.watcher.take() {
            watch.end();
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }

    /// Sends messages about changes to the guest, as far as it has room.
    fn report(&self, driver: &mut Driver) -> Result<(), Broken> {
        let watch = self.root.watch.as_ref();
        let Some(watch) = watch.filter(|_| driver.features() & NOTIFICATION != 0) else {
            return Ok(());
        };
        while let Some(change) = watch.changes.next() {
            let Some(chain) = driver.pop(NOTIFY)? else {
                watch.changes.put_back(change);
                break;
            };
            let message = change.message();
            let head = chain.head_index();
            let mut writer = VirtioFsWriter::new(chain.memory(), chain.clone())
                .map_err(|_| Broken::Rule("a buffer for notifications outside memory"))?;
            writer
                .write_all(&message)
                .map_err(|_| Broken::Rule("a buffer for notifications that is too small"))?;
            finish(
                driver,
                (NOTIFY, head, Ok(u32::try_from(message.len()).unwrap_or(0))),
            )?;
        }
        driver.signal(NOTIFY)
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.stop_watching();
    }
}

impl Device for Fs {
    fn kind(&self) -> u32 {
        kind::FS
    }

    fn name(&self) -> String {
        self.policy().to_string()
    }

    fn features(&self) -> u64 {
        self.root.watch.as_ref().map_or(0, |_| NOTIFICATION)
    }

    fn queue_sizes(&self) -> Vec<u16> {
        let mut sizes = vec![128];
        // Without notifications the second queue is for requests.
        sizes.extend(self.root.watch.as_ref().map(|_| 256));
        sizes.push(REQUESTS);
        sizes
    }

    fn config(&self) -> Vec<u8> {
        let mut config = vec![0; TAG];
        config[..self.tag.len()].copy_from_slice(self.tag.as_bytes());
        config.extend(REQUEST_QUEUES.to_le_bytes());
        if self.root.watch.is_some() {
            config.extend(notify::BUFFER.to_le_bytes());
        }
        config
    }

    fn files(&self) -> Files {
        let place = self.root.place();
        match self.root.sharing.access {
            Access::ReadOnly => Files::shared_to_read(place.as_ref()),
            Access::Write | Access::Suid => Files::shared(place.as_ref()),
        }
    }

    fn activate(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        // The guest's mode bits count, not the umask of this program; other threads keep theirs.
        // Where the host does not allow it, files that the guest creates have fewer rights.
        // SAFETY: changes an attribute of this thread alone.
        if unsafe { libc::unshare(libc::CLONE_FS) } == 0 {
            rustix::process::umask(Mode::empty());
        }
        if driver.features() & NOTIFICATION != 0 {
            self.watch();
        }
        Ok(())
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.waker = Some(waker.clone());
        self.pool = Some(Pool::new(
            self.policy(),
            THREADS,
            waker.clone(),
            // A request waits for one host call, which cannot be split.
            Box::new(|request: &Request, _| request.execute()),
        ));
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken> {
        if queue == NOTIFY && driver.features() & NOTIFICATION != 0 {
            return self.report(driver);
        }
        while let Some(chain) = driver.pop(queue)? {
            let server = Arc::clone(&self.serving.server);
            let request = Box::new(Request {
                server,
                queue,
                chain,
                direct: self.root.sharing.cache == Cache::None,
            });
            let begun = Instant::now();
            self.root.look(begun);
            let operation = request.operation(driver.memory());
            let mixed = self.root.mixed.load(Ordering::SeqCst);
            let waiting = match mixed {
                true => u16::MAX,
                // A worker takes longer to get such a one than the host to do it.
                false if operation == RELEASE => 0,
                false if operation == READ && request.is_ahead(driver.memory()) => 0,
                false => driver.waiting(queue),
            };
            let place = self.places.of(operation, waiting, begun);
            let here = match &mut self.pool {
                Some(pool) if place == Place::Worker => pool.submit(request).err(),
                _ => Some(request),
            };
            let Some(request) = here else {
                continue;
            };
            let done = match &mut self.pool {
                Some(pool) if place == Place::Here => {
                    let sleeps = self.places.measure();
                    let done = place::without_waiting(|| request.execute());
                    let slept = || Some(place::sleeps() != sleeps?);
                    self.places.took(begun, Instant::now(), slept);
                    match done {
                        Some(done) => done,
                        None => match pool.submit(request) {
                            Ok(()) => continue,
                            Err(request) => request.execute(),
                        },
                    }
                }
                _ => request.execute(),
            };
            finish(driver, done)?;
        }
        driver.signal(queue)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        for done in self.pool.iter().flat_map(Pool::done) {
            let queue = done.0;
            finish(driver, done)?;
            driver.signal(queue)?;
        }
        self.report(driver)
    }

    /// Closes all files that the driver has open.
    fn reset(&mut self) {
        if let Some(pool) = &self.pool {
            pool.clear();
        }
        self.stop_watching();
        match self.root.serve() {
            Ok(serving) => self.serving = serving,
            Err(error) => tracing::warn!("file system {}: {error:#}", self.root.path),
        }
    }
}

fn finish(driver: &mut Driver, (queue, head, written): Done) -> Result<(), Broken> {
    driver.push(queue, head, written?)
}

#[cfg(test)]
mod tests;
