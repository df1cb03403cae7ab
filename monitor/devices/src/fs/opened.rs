// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A way to the descriptors of the crate's file system, which keeps them to itself.

use fuse_backend_rs::abi::virtio_fs::RemovemappingOne;
use fuse_backend_rs::api::filesystem::{Context, FileSystem};
use fuse_backend_rs::passthrough::PassthroughFs;
use fuse_backend_rs::transport::FsCacheReqHandler;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// What to do with a file that the file system opens for reading, and what that gave. The crate
/// opens files only for requests, and passes the descriptor on only for mappings into the guest,
/// which are not offered.
struct Opened<F, T> {
    work: F,
    done: Option<T>,
}

/// Has the file system open a file or folder for reading, and does something with it while it is
/// open.
///
/// # Errors
/// The host does not open it, or that of `work`.
pub fn with<F, T>(fs: &PassthroughFs<()>, inode: u64, work: F) -> io::Result<T>
where
    F: FnMut(BorrowedFd<'_>) -> io::Result<T> + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    let mut opened = Opened { work, done: None };
    fs.setupmapping(&Context::default(), inode, 0, 0, 0, 0, 0, &mut opened)?;
    opened.done.ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl<F, T> FsCacheReqHandler for Opened<F, T>
where
    F: FnMut(BorrowedFd<'_>) -> io::Result<T> + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    fn map(&mut self, _: u64, _: u64, _: u64, _: u64, fd: RawFd) -> io::Result<()> {
        // SAFETY: the crate closes the file only after this call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        self.done = Some((self.work)(file)?);
        Ok(())
    }

    fn unmap(&mut self, _: Vec<RemovemappingOne>) -> io::Result<()> {
        Ok(())
    }
}
