// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File system device (virtio 1.2, section 5.11): a directory of the host in the guest.
//!
//! The requests are FUSE's, carried out by the crate fuse-backend-rs, which never leaves the directory: it opens every
//! name relative to a descriptor of its parent and follows no symbolic link (those are the guest's kernel's to follow).
//! Run by an ordinary user, files belong to that user on the host, and to root in the guest; run by root, owners are what they are.

use super::{Broken, Device, Driver, kind};
use crate::confine::Files;
use anyhow::{Context, bail};
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::api::{Vfs, VfsOptions};
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use fuse_backend_rs::transport::{Reader, VirtioFsWriter, Writer};
use std::path::Path;
use std::sync::Arc;

/// Bytes of a tag in the configuration space.
const TAG: usize = 36;
/// Queues for requests, behind the one for those that cannot wait.
const REQUEST_QUEUES: u32 = 1;

/// The device.
pub struct Fs {
    server: Server<Arc<Vfs>>,
    tag: String,
    root: Root,
    read_only: bool,
}

/// What is shared, for starting again.
#[derive(Debug)]
struct Root {
    path: String,
}

impl Root {
    fn serve(&self) -> anyhow::Result<Server<Arc<Vfs>>> {
        let config = Config {
            root_dir: self.path.clone(),
            xattr: true,
            do_import: true,
            cache_policy: CachePolicy::Auto,
            ..Config::default()
        };
        let fs = PassthroughFs::<()>::new(config)?;
        fs.import()?;
        let user = rustix::process::geteuid().as_raw();
        let vfs = Vfs::new(VfsOptions {
            // One number: ours, which the guest sees as root.
            id_mapping: if user == 0 { (0, 0, 0) } else { (user, 0, 1) },
            no_open: false,
            no_opendir: false,
            ..VfsOptions::default()
        });
        vfs.mount(Box::new(fs), "/")
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Server::new(Arc::new(vfs)))
    }
}

impl Fs {
    /// Shares a directory under a tag, by which the guest mounts it. `read_only`: nothing in it is changed, whatever the
    /// guest asks for. The thread's policy sees to that, so there is no request that could be overlooked.
    pub fn new(path: &Path, tag: &str, read_only: bool) -> anyhow::Result<Self> {
        if tag.is_empty() || tag.len() > TAG || tag.bytes().any(|b| b == 0) {
            bail!("the tag {tag:?} must have 1 to {TAG} bytes");
        }
        let name = || path.display().to_string();
        if !std::fs::metadata(path).with_context(name)?.is_dir() {
            bail!("{}: not a directory", path.display());
        }
        let path = path.canonicalize().with_context(name)?;
        let Some(path) = path.to_str() else {
            bail!("{}: its name is no UTF-8", path.display());
        };
        let root = Root { path: path.to_string() };
        Ok(Fs {
            server: root.serve().with_context(|| path.to_string())?,
            tag: tag.to_string(),
            root,
            read_only,
        })
    }
}

impl Device for Fs {
    fn kind(&self) -> u32 {
        kind::FS
    }

    fn name(&self) -> String {
        // Its policy's name, too.
        if self.read_only { "fs-ro" } else { "fs" }.to_string()
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
        let path = Path::new(&self.root.path);
        if self.read_only {
            Files::shared_to_read(path)
        } else {
            Files::shared(path)
        }
    }

    fn activate(&mut self, _driver: &mut Driver) -> Result<(), Broken> {
        // The guest's mode bits are what counts, not the umask of this program; other threads keep theirs.
        // SAFETY: changes attributes of this thread alone; fails where the host does not allow it, and then files
        // that the guest makes have fewer rights.
        unsafe {
            if libc::unshare(libc::CLONE_FS) == 0 {
                libc::umask(0);
            }
        }
        Ok(())
    }

    fn notified(&mut self, driver: &mut Driver, queue: usize) -> Result<(), Broken> {
        let memory = Arc::clone(driver.memory());
        while let Some(chain) = driver.pop(queue)? {
            let head = chain.head_index();
            let reader = Reader::from_descriptor_chain(&*memory, chain.clone())
                .map_err(|_| Broken::Rule("a file system request outside memory"))?;
            let writer = VirtioFsWriter::new(&*memory, chain)
                .map_err(|_| Broken::Rule("a buffer for a file system's answer outside memory"))?;
            // What is no request gets no answer; the guest's program that waits for one is the guest's affair.
            let written = self
                .server
                .handle_message(reader, Writer::VirtioFs(writer), None, None)
                .unwrap_or(0);
            driver.push(queue, head, u32::try_from(written).unwrap_or(0))?;
        }
        driver.signal(queue)
    }

    /// All files that the driver has open are closed.
    fn reset(&mut self) {
        match self.root.serve() {
            Ok(server) => self.server = server,
            Err(error) => tracing::warn!("file system {}: {error:#}", self.root.path),
        }
    }
}
