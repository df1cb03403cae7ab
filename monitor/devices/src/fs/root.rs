// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared folder itself: where it is on the host, and how it is served.

use super::folder::Folder;
use super::holes::Holes;
use super::listed::Listed;
use super::masked::Masked;
use super::mounts::Mounts;
use super::room::Room;
use super::watch::Watch;
use super::{Access, Cache, Sharing};
use anyhow::{Context, bail};
use fuse_backend_rs::api::filesystem::FsOptions;
use fuse_backend_rs::api::server::Server;
use fuse_backend_rs::api::{Vfs, VfsOptions};
use fuse_backend_rs::passthrough::{CachePolicy, Config, PassthroughFs};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// File systems (`f_type` of statfs) of the host's own disks and memory: ext2 to ext4, xfs, btrfs,
/// f2fs, tmpfs, overlay, squashfs, erofs. A request for others may wait for a network or for
/// another program, so the workers serve it.
const LOCAL: [i64; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x794c_7630,
    0x7371_7368,
    0xe0f5_e1e2,
];

/// The time from one look at what is mounted to the next.
const LOOK: Duration = Duration::from_millis(2);

/// What carries requests out.
pub type Served = Server<Masked<Vfs>>;

/// What is shared, for starting again after a reset.
#[derive(Debug)]
pub struct Root {
    /// The path that the user gave, for messages.
    pub path: String,
    /// Opened only once. Later the path may lead elsewhere: guests may write to folders above it
    /// that are shared too.
    folder: OwnedFd,
    /// The host's folder of this process's descriptors. Paths of descriptors are read in it, by the
    /// one call for links that the policy of the device's thread admits.
    descriptors: OwnedFd,
    pub sharing: Sharing,
    /// It is on the host's own disk or in its memory.
    pub local: bool,
    /// Reports changes of the host.
    pub watch: Option<Arc<Watch>>,
    /// Something below it is on another file system, which may be far.
    pub mixed: Arc<AtomicBool>,
    mounts: Mounts,
    /// The last look at what is mounted.
    looked: Option<Instant>,
    /// For as long as the device lives.
    shared: Arc<Listed>,
}

/// A served folder.
pub struct Serving {
    pub server: Arc<Served>,
    pub fs: Arc<PassthroughFs<()>>,
    /// The guest's numbers of its files have this in their highest byte.
    pub index: u8,
}

impl Serving {
    /// Makes the guest's number of a file of the crate's.
    pub fn outside(index: u8) -> impl Fn(u64) -> u64 + Send {
        move |inode| match inode {
            1 => 1,
            _ => u64::from(index) << 56 | inode,
        }
    }
}

impl Root {
    /// Opens a folder.
    ///
    /// # Errors
    /// It cannot be shared.
    pub fn new(path: &Path, sharing: Sharing) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        if !std::fs::metadata(path).with_context(name)?.is_dir() {
            bail!("{}: not a directory", path.display());
        }
        let path = path.canonicalize().with_context(name)?;
        let Some(path) = path.to_str() else {
            bail!("{}: its name is not UTF-8", path.display());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open =
            |path: &str| rustix::fs::open(path, flags, Mode::empty()).context(path.to_string());
        let mut root = Root {
            path: path.to_string(),
            folder: open(path)?,
            descriptors: open("/proc/self/fd")?,
            sharing,
            local: false,
            watch: None,
            mixed: Arc::default(),
            mounts: Mounts::new().with_context(name)?,
            looked: None,
            shared: Arc::new(Listed::new(Path::new(path))),
        };
        root.mixed.store(root.far_below(), Ordering::SeqCst);
        let kind = rustix::fs::fstatfs(&root.folder).with_context(name)?.f_type;
        root.local = LOCAL.contains(&kind);
        // On a host of the network others make changes, which this one does not report.
        if root.local && sharing.cache == Cache::Auto {
            root.watch = watch(&root);
        }
        Ok(root)
    }

    /// Looks for new mounts in the folder: to be called before requests are served. A look is a
    /// host call, so there is one in [`LOOK`].
    pub fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return;
        }
        self.looked = Some(now);
        if !self.mixed.load(Ordering::SeqCst) && self.mounts.changed() && self.far_below() {
            self.mixed.store(true, Ordering::SeqCst);
        }
    }

    fn far_below(&self) -> bool {
        let number = self.folder.as_raw_fd().to_string();
        let path = rustix::fs::readlinkat(&self.descriptors, number, Vec::new());
        path.map_or(true, |path| {
            let path = Path::new(OsStr::from_bytes(path.as_bytes()));
            self.mounts.far_below(path)
        })
    }

    /// The room for descriptors of files in it.
    pub fn room(&self) -> Room {
        Room::new(self.sharing.descriptors)
    }

    /// A path that leads to the open folder, wherever it is now.
    pub fn place(&self) -> String {
        // The dot is needed because the crate and Landlock's rules do not follow the last part of a
        // path.
        format!("/proc/self/fd/{}/.", self.folder.as_raw_fd())
    }

    /// The host's number of the file system that it is on.
    ///
    /// # Errors
    /// The host's error.
    pub fn device(&self) -> std::io::Result<u64> {
        Ok(rustix::fs::fstat(&self.folder)?.st_dev)
    }

    /// Starts to serve it.
    ///
    /// # Errors
    /// The host does not let this user share it.
    pub fn serve(&self) -> anyhow::Result<Serving> {
        let cache = self.sharing.cache;
        let config = Config {
            root_dir: self.place(),
            xattr: true,
            do_import: true,
            // The guest's number of a file has the host's in it. Numbers that the crate makes are
            // kept for each file that the guest ever knew.
            use_host_ino: true,
            // The guest then reads what surrounds the bytes that a program appends; without this
            // option that would fail for files that are open for writing only.
            writeback: cache == Cache::Always,
            cache_policy: match cache {
                Cache::None => CachePolicy::Never,
                Cache::Auto => CachePolicy::Auto,
                Cache::Always => CachePolicy::Always,
            },
            ..Config::default()
        };
        let fs = Arc::new(PassthroughFs::<()>::new(config)?);
        {
            let _mask = Mask::keep();
            fs.import()?;
        }
        let user = rustix::process::geteuid().as_raw();
        let mut options = VfsOptions {
            // `Masked` maps them: the crate has one mapping for users and groups.
            id_mapping: (0, 0, 0),
            no_open: false,
            no_opendir: cache == Cache::Always || (cache == Cache::Auto && self.local),
            no_writeback: cache != Cache::Always,
            // The threads have no CAP_FSETID, so the host's kernel removes what gives rights from a
            // file that is written to.
            killpriv_v2: self.sharing.access != Access::Suid,
            ..VfsOptions::default()
        };
        // Attributes always come with the names.
        options.out_opts.remove(FsOptions::READDIRPLUS_AUTO);
        if cache == Cache::Always {
            options.out_opts.remove(FsOptions::AUTO_INVAL_DATA);
        }
        if cache == Cache::None {
            // The answer has more flags, see `mappings`.
            options.out_opts.insert(FsOptions::INIT_EXT);
        }
        let vfs = Vfs::new(options);
        let watch = self.watch.clone();
        let folder = Folder::new(Arc::clone(&fs), cache, watch, self)?;
        let index = vfs
            .mount(Box::new(folder), "/")
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        let holes = Holes::new(&vfs);
        let masked = Masked::new(vfs, self.sharing.access == Access::Suid, user != 0);
        Ok(Serving {
            server: Arc::new(Server::new(masked.with_holes(holes))),
            fs,
            index,
        })
    }
}

/// The thread's umask, restored when this is dropped. The crate sets the umask to 0: at first, and
/// each time the guest ends the file system. The device's thread has no umask of its own at first,
/// and none where the host does not give it one, so that changes the whole program's: everything
/// that the monitor creates, including its sockets, would be accessible to all users.
pub struct Mask(Mode);

impl Mask {
    /// Notes the umask.
    pub fn keep() -> Self {
        Mask(rustix::process::umask(Mode::empty()))
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        rustix::process::umask(self.0);
    }
}

/// The host's means to report changes, if it gives any.
fn watch(root: &Root) -> Option<Arc<Watch>> {
    let path = &root.path;
    match Watch::new(root.folder.as_fd(), Arc::clone(&root.shared)) {
        Ok(watch) => Some(Arc::new(watch)),
        Err(error) => {
            tracing::warn!(
                "{path}: cannot be watched ({error}; see the host's \
                 fs.fanotify.max_user_groups and fs.inotify.max_user_instances): the guest sees \
                 changes of the host after up to a second, and asks more often"
            );
            None
        }
    }
}
