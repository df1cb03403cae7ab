// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File system device (virtio 1.2, section 5.11): a directory of the host in the guest.
//!
//! The requests are FUSE requests, which the crate fuse-backend-rs carries out. The crate never
//! leaves the directory: it opens every name relative to a descriptor of its parent and follows no
//! symbolic link (the guest kernel follows them). A request may have to wait for the host for any
//! time, so a few worker threads carry them out, and answers come in any order. Run by an ordinary
//! user, files belong to that user on the host, and to root in the guest. Run by root, owners are
//! the same on both sides. No request makes a host program that gives its caller rights, unless the
//! user has asked for that ([`masked`]).

mod masked;

use super::pool::Pool;
use super::{Broken, Chain, Device, Driver, Memory, Waker, kind};
use anyhow::{Context, bail};
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::api::{Vfs, VfsOptions};
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use fuse_backend_rs::transport::{Reader, VirtioFsWriter, Writer};
use masked::Masked;
use paravane_confine::Files;
use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress};

/// Size of a tag in the configuration space in bytes.
const TAG: usize = 36;
/// Queues for requests, after the queue for those that cannot wait.
const REQUEST_QUEUES: u32 = 1;
/// The most requests that wait for the host at a time.
const THREADS: usize = 8;
/// Operations (`enum fuse_opcode`) that only change the monitor's tables and run on the device's
/// thread: FORGET, INIT, INTERRUPT, DESTROY, BATCH_FORGET.
const AT_ONCE: [u32; 5] = [2, 26, 36, 38, 42];

/// What carries requests out.
type Served = Server<Masked<Vfs>>;

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

/// The device.
pub struct Fs {
    server: Arc<Served>,
    tag: String,
    root: Root,
    pool: Option<Pool<Request, Done>>,
}

/// A request and the server that answers it.
struct Request {
    server: Arc<Served>,
    queue: usize,
    chain: Chain,
}

/// A request's queue and chain, and the bytes written to it.
type Done = (usize, u16, Result<u32, Broken>);

impl Request {
    /// Whether it takes no time.
    fn at_once(&self, memory: &Memory) -> bool {
        // The guest may change it meanwhile, which affects only the guest's own speed.
        let header = self.chain.clone().readable().next();
        let operation = header.and_then(|part| {
            memory
                .read_obj::<u32>(GuestAddress(part.addr().0.checked_add(4)?))
                .ok()
        });
        operation.is_none_or(|operation| AT_ONCE.contains(&u32::from_le(operation)))
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
        // An invalid request gets no answer, and a guest program that waits for one waits for ever.
        let written = self
            .server
            .handle_message(reader, Writer::VirtioFs(writer), None, None);
        Ok(u32::try_from(written.unwrap_or(0)).unwrap_or(0))
    }
}

/// What is shared, for starting again after a reset.
#[derive(Debug)]
struct Root {
    /// The path that the user gave, for messages.
    path: String,
    /// Opened only once. Later the path may lead elsewhere: guests may write to folders above it
    /// that are shared too.
    folder: OwnedFd,
    access: Access,
}

impl Root {
    /// A path that leads to the open folder, wherever it is now.
    fn place(&self) -> String {
        // The dot is needed because the crate and Landlock's rules do not follow the last part of a
        // path.
        format!("/proc/self/fd/{}/.", self.folder.as_raw_fd())
    }

    fn serve(&self) -> anyhow::Result<Arc<Served>> {
        let config = Config {
            root_dir: self.place(),
            xattr: true,
            do_import: true,
            // The guest is offered it. It then reads what surrounds the bytes that a program
            // appends; without this option that would fail for files that are open for writing
            // only.
            writeback: true,
            cache_policy: CachePolicy::Auto,
            ..Config::default()
        };
        let fs = PassthroughFs::<()>::new(config)?;
        {
            let _mask = Mask::keep();
            fs.import()?;
        }
        let user = rustix::process::geteuid().as_raw();
        let vfs = Vfs::new(VfsOptions {
            // One user: this one, whom the guest sees as root.
            id_mapping: if user == 0 { (0, 0, 0) } else { (user, 0, 1) },
            no_open: false,
            no_opendir: false,
            ..VfsOptions::default()
        });
        vfs.mount(Box::new(fs), "/")
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Arc::new(Server::new(Masked::new(
            vfs,
            self.access == Access::Suid,
            user != 0,
        ))))
    }
}

/// The thread's umask, restored when this is dropped. The crate sets the umask to 0. It is called
/// before the device's thread has a umask of its own, so it changes the whole program's: everything
/// that the monitor creates, including its sockets, would be accessible to all users.
struct Mask(Mode);

impl Mask {
    fn keep() -> Self {
        Mask(rustix::process::umask(Mode::empty()))
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
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
    pub fn new(path: &Path, tag: &str, access: Access) -> anyhow::Result<Self> {
        if tag.is_empty() || tag.len() > TAG || tag.bytes().any(|b| b == 0) {
            bail!("the tag {tag:?} must have 1 to {TAG} bytes");
        }
        let name = || path.display().to_string();
        if !std::fs::metadata(path).with_context(name)?.is_dir() {
            bail!("{}: not a directory", path.display());
        }
        let path = path.canonicalize().with_context(name)?;
        let Some(path) = path.to_str() else {
            bail!("{}: its name is not UTF-8", path.display());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Root {
            path: path.to_string(),
            folder: rustix::fs::open(path, flags, Mode::empty()).with_context(name)?,
            access,
        };
        Ok(Fs {
            server: root.serve().with_context(|| path.to_string())?,
            tag: tag.to_string(),
            root,
            pool: None,
        })
    }
}

impl Fs {
    /// The name of the policy, which is also the threads' name.
    fn policy(&self) -> &'static str {
        match self.root.access {
            Access::ReadOnly => "fs-ro",
            Access::Write => "fs",
            Access::Suid => "fs-suid",
        }
    }
}

impl Device for Fs {
    fn kind(&self) -> u32 {
        kind::FS
    }

    fn name(&self) -> String {
        self.policy().to_string()
    }

    fn queue_sizes(&self) -> Vec<u16> {
        vec![128, 256]
    }

    fn config(&self) -> Vec<u8> {
        let mut config = vec![0; TAG];
        config[..self.tag.len()].copy_from_slice(self.tag.as_bytes());
        config.extend(REQUEST_QUEUES.to_le_bytes());
        config
    }

    fn files(&self) -> Files {
        let place = self.root.place();
        match self.root.access {
            Access::ReadOnly => Files::shared_to_read(place.as_ref()),
            Access::Write | Access::Suid => Files::shared(place.as_ref()),
        }
    }

    fn activate(&mut self, _driver: &mut Driver) -> Result<(), Broken> {
        // The guest's mode bits count, not the umask of this program; other threads keep theirs.
        // Where the host does not allow it, files that the guest creates have fewer rights.
        // SAFETY: changes an attribute of this thread alone.
        if unsafe { libc::unshare(libc::CLONE_FS) } == 0 {
            rustix::process::umask(Mode::empty());
        }
        Ok(())
    }

    fn start(&mut self, waker: &Waker) -> anyhow::Result<()> {
        self.pool = Some(Pool::new(
            self.policy(),
            THREADS,
            waker.clone(),
            // A request is one host call, which cannot be split.
            Box::new(|request: &Request, _| request.execute()),
        ));
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken> {
        while let Some(chain) = driver.pop(queue)? {
            let server = Arc::clone(&self.server);
            let request = Box::new(Request {
                server,
                queue,
                chain,
            });
            let here = match &mut self.pool {
                Some(pool) if !request.at_once(driver.memory()) => pool.submit(request).err(),
                _ => Some(request),
            };
            if let Some(request) = here {
                finish(driver, request.execute())?;
            }
        }
        driver.signal(queue)
    }

    fn woken(&mut self, driver: &mut Driver) -> Result<(), Broken> {
        for done in self.pool.iter().flat_map(Pool::done) {
            let queue = done.0;
            finish(driver, done)?;
            driver.signal(queue)?;
        }
        Ok(())
    }

    /// Closes all files that the driver has open.
    fn reset(&mut self) {
        if let Some(pool) = &self.pool {
            pool.clear();
        }
        match self.root.serve() {
            Ok(server) => self.server = server,
            Err(error) => tracing::warn!("file system {}: {error:#}", self.root.path),
        }
    }
}

fn finish(driver: &mut Driver, (queue, head, written): Done) -> Result<(), Broken> {
    driver.push(queue, head, written?)
}

#[cfg(test)]
mod tests;
